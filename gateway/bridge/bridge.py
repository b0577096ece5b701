"""The Handler between a route and its backend, built once for each client protocol that the route serves."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

from gateway.bridge import indices, members, names, streams
from gateway.bridge.addressing import Addressing
from gateway.bridge.batching import batched
from gateway.bridge.configs import Configs
from gateway.bridge.declared import Declared
from gateway.bridge.extensions import Extensions
from gateway.bridge.fitting import Fitting, reply
from gateway.bridge.inputs import Fitted
from gateway.bridge.metadata import Metadata
from gateway.bridge.points import point_by_point
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signatures import Key, is_unknown, sized
from gateway.bridge.upstream import Upstream
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Status, invalid_output, not_found, unsupported
from gateway.core.frozen import replace
from gateway.core.operations import CONTROL_OPERATIONS, DERIVATIVES, Operation
from gateway.core.protocol import Protocol, Traits
from gateway.core.transport import Handler
from gateway.core.types import Answer, Request, Response, Signature

__all__ = ["Bridge", "Upstream"]

# Triton: "doesn't support models with decoupled transaction policy"; reference servers: "streams its responses"
_OF_STREAMS = re.compile("decoupled|stream", re.IGNORECASE)
_HINT = "of a model that streams, `translate: {stream: last}` or `{stream: collect}` on the route gives one response"


class Bridge:
    """Fits one route's requests, from clients of one protocol, to its backend, and the answers back.

    Where both sides name and type their tensors alike and the route says nothing about them, they pass as they are and
    nothing is asked of the backend beforehand.
    """

    def __init__(self, settings: RouteSettings, client: Protocol, upstream: Upstream) -> None:
        if Datatype.BYTES not in client.traits.datatypes:
            # Its clients have numbers alone, so to them images are the pixels that they are for the backend.
            settings = replace(settings, image_inputs={}, image_outputs={})
        self._settings = settings
        self._of_derivatives = settings.of_derivatives
        self._sizes_derivatives = client.traits.derivatives or upstream.traits.derivatives
        self._client = client
        self._upstream = upstream
        self._alike = settings.leaves_tensors and _are_alike(client.traits, upstream.traits)
        self._fitting = Fitting(client, upstream)
        self._addressing = Addressing(settings, upstream)
        self._configs = Configs(settings, client.traits, upstream)
        self._declared = Declared(settings, upstream, self._addressing)
        self._metadata = Metadata(settings, client.traits, upstream, self._addressing, self._declared, self._alike)
        self._extensions = Extensions(upstream, self._addressing)
        self._operations: dict[Operation, Callable[[Request], Awaitable[Answer]]] = {
            Operation.INFER: self._unary,
            **dict.fromkeys(DERIVATIVES, self._derive),
            Operation.METADATA: self._metadata.signature,
            Operation.MODEL_READY: self._metadata.ready,
            Operation.CONFIG: self._config,
            Operation.MODEL_STATISTICS: self._extensions.statistics,
            **dict.fromkeys(CONTROL_OPERATIONS, self._extensions.control),
        }

    async def __call__(self, request: Request) -> Answer:
        """The answer to a request for the route's model.

        Raises:
            DecodeError: the client's tensors do not fit.
            GatewayError: the backend's error, or its reply does not fit.
        """
        if request.flaw:
            raise await self._refusal(request)
        handle = self._operations.get(request.operation)
        if handle is None:
            raise unsupported(f"{request.operation.value} is not supported by backend {self._upstream.name!r}")
        return await handle(self._configs.taken(request) if self._configs.takes else request)

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        """The responses to a client that takes any number; one where the backend's protocol has no streams.

        Raises:
            DecodeError, GatewayError: as a call does; also after some responses.
        """
        if self._configs.takes:
            request = self._configs.taken(request)
        key = self._addressing.key(request)
        if self._passes(request):
            asked, fitted, signature = self._addressing.asked(request, key), None, None
        else:
            declared = await self._declared.model(key)
            signature, row_by_row = self._batched(declared)
            if row_by_row:
                unary = replace(request, operation=Operation.INFER)
                yield await self._fitted(unary, key, declared, self._settings)
                return
            asked, fitted = await self._fitting.fit(request, key, signature, self._settings)
        if self._configs.places:
            asked = self._configs.placed(asked)
        async with aclosing(self._upstream.stream(asked)) as responses:
            async for each in responses:
                response = await self._with_outputs(each, key, asked) if each.schemaless else each
                if fitted is None or signature is None:
                    # Triton ends a stream with a response that holds nothing, if the client asked for that.
                    yield self._passed(response, request) if response.outputs else reply(response, request)
                else:
                    yield await self._fitting.unfit(response, request, asked, fitted, signature, self._settings)

    def companion(self, operation: Operation) -> Handler:
        """The Handler of requests that name the model `M.gradient` and mean the derivative of `M`."""
        suffix = f".{operation.value}"

        async def handle(request: Request) -> Answer:
            base = replace(request, model=request.model.removesuffix(suffix))
            if base.flaw:
                raise await self._refusal(base)
            base = self._configs.taken(base) if self._configs.takes else base
            match request.operation:
                case Operation.INFER:
                    answer = await self._derive(replace(base, operation=operation))
                    return replace(answer, model=request.model)
                case Operation.METADATA:
                    return await self._metadata.companion(base, operation)
                case Operation.MODEL_READY:
                    return await self._metadata.companion_ready(base, operation)
                case Operation.CONFIG:
                    return await self._config(base, operation)
                case Operation.MODEL_STATISTICS:
                    return await self._extensions.statistics(base, operation)
                case control if control in CONTROL_OPERATIONS:
                    return await self._extensions.control(base, operation)
                case other:
                    raise unsupported(f"{other.value} is not supported by {request.model!r}, itself a derivative")

        return handle

    async def _config(self, request: Request, companion: Operation | None = None) -> Mapping[str, object]:
        """perf_analyzer ends if `config` is not answered with 200; an empty one is enough for it."""
        found = await self._extensions.config(request, companion)
        if found is not None:
            return found
        if not await self._metadata.ready(request):
            raise not_found(f"model {request.model!r} is not ready")
        return {}

    async def _refusal(self, request: Request) -> Exception:
        """What to raise for a request with a flaw: that, or that there is no such model."""
        try:
            await self._declared.described(self._addressing.key(request))
        except GatewayError as error:
            if error.status is Status.NOT_FOUND:
                return error
        return DecodeError(request.flaw)

    async def _unary(self, request: Request) -> Response:
        try:
            return await self._infer(request)
        except GatewayError as error:
            if not self._streams(error) or self._settings.stream != "error" or _HINT in error.message:
                raise
            raise GatewayError(error.status, error.reason, f"{error.message}; {_HINT}") from error

    def _streams(self, error: GatewayError) -> bool:
        """Whether the backend's error says that its model gives nothing but a stream."""
        is_unsupported = error.status is Status.UNIMPLEMENTED and self._upstream.responses is not None
        return is_unsupported and _OF_STREAMS.search(error.message) is not None

    async def _infer(self, request: Request) -> Response:
        if self._settings.stream != "error" and self._upstream.responses is not None:
            return await self._reduced(request)
        key = self._addressing.key(request)
        if self._passes(request):
            return self._passed(await self._upstream.infer(self._addressing.asked(request, key)), request)
        return await self._fitted(request, key, await self._declared.model(key), self._settings)

    def _passes(self, request: Request) -> bool:
        """Whether its tensors are the backend's as they are."""
        return self._alike and not request.schemaless

    def _passed(self, response: Response, request: Request) -> Response:
        """The answer with the backend's outputs as they are; exactly those that were asked for, if some were.

        Raises:
            GatewayError: INTERNAL (invalid-output), one of them is missing.
        """
        asked, outputs = request.outputs, response.outputs
        if not asked or [each.name for each in asked] == [each.name for each in outputs]:
            return reply(response, request)
        try:
            return reply(response, request, tuple(names.picked(outputs, [each.name for each in asked])))
        except DecodeError as error:
            raise invalid_output(f"backend {self._upstream.name!r}: {error}") from error

    async def _with_outputs(self, response: Response, key: Key, asked: Request) -> Response:
        """A response of members, with its tensors."""
        signature = await self._declared.model(key)
        try:
            return members.outputs_told_apart(response, signature, asked.outputs)
        except DecodeError as error:
            raise invalid_output(f"backend {self._upstream.name!r}: {error}") from error

    async def _reduced(self, request: Request) -> Response:
        name = self._upstream.name
        async with aclosing(self.stream(request)) as responses:
            if self._settings.stream == "last":
                return await streams.last(responses, name)
            return await streams.collect(responses, name, self._upstream.limits.message)

    async def _derive(self, request: Request) -> Response:
        key = self._addressing.key(request)
        if self._upstream.traits.derivatives:
            signature = await self._sized(request, key)
            return await self._fitted(request, key, signature, self._of_derivatives)
        companion = self._addressing.companion(key, request.operation)
        asked = replace(request, operation=Operation.INFER)
        if self._passes(request):
            return self._passed(await self._upstream.infer(self._addressing.asked(asked, companion)), request)
        signature = await self._sized(request, key)
        try:
            return await self._fitted(asked, companion, signature, self._of_derivatives)
        except GatewayError as error:
            if error.status is not Status.NOT_FOUND:
                raise
            await self._declared.check(key)
            text = f"{request.operation.value} is not supported by model {request.model!r}: {error.message}"
            raise unsupported(text) from error

    async def _sized(self, request: Request, key: Key) -> Signature:
        """What the derivative takes and gives. Where one side has derivatives as operations, with the sizes of the
        inputs and outputs that the request means."""
        signature = await self._declared.derivative(key, request.operation)
        found = indices.positions(request.inputs, DERIVATIVES[request.operation])
        if not self._sizes_derivatives or request.schemaless or found is None or is_unknown(signature):
            return signature
        try:
            base = await self._declared.model(key)
        except GatewayError as error:
            if error.status is not Status.NOT_FOUND:
                raise
            return signature  # the companion stands alone
        return signature if is_unknown(base) else sized(signature, base, request.operation, found)

    async def _fitted(self, request: Request, key: Key, declared: Signature, settings: RouteSettings) -> Response:
        signature, row_by_row = self._batched(declared)
        asked, fitted = await self._fitting.fit(request, key, signature, settings)
        try:
            response = await self._ask(asked, fitted, signature, row_by_row)
        except DecodeError as error:
            raise invalid_output(f"backend {self._upstream.name!r}: {error}") from error
        return await self._fitting.unfit(response, request, asked, fitted, signature, settings)

    def _batched(self, declared: Signature) -> tuple[Signature, bool]:
        """The signature that tensors are fitted to, and whether the backend is called for each row of them."""
        return batched(declared, self._client.traits.rows, self._upstream.traits.rows)

    async def _ask(self, asked: Request, fitted: Fitted, signature: Signature, row_by_row: bool) -> Response:
        upstream = self._upstream
        if not row_by_row:
            return await self._send(asked)
        return await point_by_point(
            asked,
            fitted,
            signature,
            self._settings,
            upstream.window,
            self._send,
            flat=upstream.traits.points,
        )

    async def _send(self, asked: Request) -> Response:
        return await self._upstream.infer(self._configs.placed(asked) if self._configs.places else asked)


def _are_alike(client: Traits, upstream: Traits) -> bool:
    """Whether the tensors of one are tensors of the other."""
    return client.datatypes == upstream.datatypes and not any(
        traits.untyped or traits.positional or traits.points for traits in (client, upstream)
    )
