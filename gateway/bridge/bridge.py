"""The Handler between a route and its backend, built once for each client protocol that the route serves."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from gateway.bridge import fitting, names, rows, shapes
from gateway.bridge.fitting import Fitted
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signatures import Signatures, of_derivative
from gateway.core.datatypes import Datatype
from gateway.core.errors import (
    DecodeError,
    GatewayError,
    Reason,
    Status,
    invalid_output,
    not_found,
    refusal,
    unsupported,
)
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.protocol import Protocol, Traits
from gateway.core.transport import Handler
from gateway.core.types import Answer, Request, Response, Signature, Tensor, TensorSpec
from gateway.core.values import value


@value
class Upstream:
    """The backend as the bridge sees it. `window`: how many rows of one batch may be on their way at once."""

    name: str
    protocol: str
    traits: Traits
    handler: Handler
    signatures: Signatures
    window: int


class Bridge:
    """Fits one route's requests, from clients of one protocol, to its backend, and the answers back.

    Where both sides name and type their tensors and the route says nothing about them, they pass as they are and
    nothing is asked of the backend beforehand.
    """

    def __init__(self, settings: RouteSettings, client: Protocol, upstream: Upstream) -> None:
        self._settings = settings
        self._client = client
        self._upstream = upstream
        self._opaque = settings.opaque and not any(
            traits.untyped or traits.positional or traits.points for traits in (client.traits, upstream.traits)
        )
        self._operations: dict[Operation, Callable[[Request], Awaitable[Answer]]] = {
            Operation.INFER: self._infer,
            **dict.fromkeys(DERIVATIVES, self._derive),
            Operation.METADATA: self._metadata,
            Operation.MODEL_READY: self._model_ready,
            Operation.CONFIG: self._config,
        }

    async def __call__(self, request: Request) -> Answer:
        """The answer to a request for the route's model.

        Raises:
            DecodeError: the client's tensors do not fit.
            GatewayError: the backend's error, or its reply does not fit.
        """
        handle = self._operations.get(request.operation)
        if handle is None:
            raise unsupported(f"{request.operation.value} is not supported by backend {self._upstream.name!r}")
        return await handle(request)

    def companion(self, operation: Operation) -> Handler:
        """The Handler of requests that name the model `M.gradient` and mean the derivative of `M`."""

        async def handle(request: Request) -> Answer:
            model = request.model.removesuffix(f".{operation.value}")
            if request.operation is Operation.INFER:
                answer = await self._derive(replace(request, model=model, operation=operation))
                return replace(answer, model=request.model)
            if request.operation is Operation.METADATA:
                return await self._companion_metadata(replace(request, model=model), operation)
            if request.operation is Operation.MODEL_READY:
                return await self._companion_ready(replace(request, model=model), operation)
            return await self(replace(request, model=model))

        return handle

    # Inference

    async def _infer(self, request: Request) -> Response:
        asked = self._addressed(request)
        if self._opaque:
            return self._reply(await self._ask(asked), request)
        return await self._fitted(request, asked, await self._signature(asked))

    async def _derive(self, request: Request) -> Response:
        asked = self._addressed(request)
        if self._upstream.traits.derivatives:
            signature = of_derivative(await self._signature(asked), request.operation)
            return await self._fitted(request, asked, signature)
        asked = replace(asked, operation=Operation.INFER, model=self._companion_name(asked.model, request.operation))
        if self._opaque:
            return self._reply(await self._ask(asked), request)
        signature = await self._companion_signature(request, request.operation)
        return await self._fitted(request, asked, signature)

    async def _fitted(self, request: Request, asked: Request, signature: Signature) -> Response:
        client, backend = self._client.traits, self._upstream.traits
        fitted = fitting.fit_inputs(request.inputs, signature, self._settings, client, backend)
        outputs = names.requested(request.outputs, self._settings)
        fitting.check_requested(outputs, signature)
        inputs = fitting.carried(fitted.inputs, self._upstream.protocol, backend)
        asked = replace(asked, inputs=inputs, outputs=() if backend.points else outputs)
        if backend.points:
            response = await self._point_by_point(asked, signature, fitted)
        else:
            response = await self._ask(asked)
        try:
            results = fitting.fit_outputs(response.outputs, asked.outputs, signature, fitted, client)
            chosen = names.for_client(results, request.outputs, self._settings)
        except DecodeError as error:
            raise invalid_output(f"backend {self._upstream.name!r}: {error}") from error
        return self._reply(
            replace(response, outputs=fitting.carried(chosen, self._client.name, client)),
            request,
        )

    async def _point_by_point(self, asked: Request, signature: Signature, fitted: Fitted) -> Response:
        """One call per row; the vectors of the answers stacked."""
        count = 1 if fitted.rows is None else fitted.rows
        if self._client.traits.points:
            response = await self._ask(asked)
            return replace(response, outputs=tuple(_lift(tensor) for tensor in response.outputs))
        if count > self._settings.max_rows:
            limit = f"`translate: {{max_rows: {self._settings.max_rows}}}`"
            raise refusal(Reason.INVALID_INPUT, f"a batch of {count} rows is one call each, and {limit} is the limit")
        if count == 0:
            return Response(tuple(shapes.empty(spec) for spec in signature.outputs))
        columns = [shapes.split(tensor, count) for tensor in asked.inputs]

        async def call(row: int) -> Response:
            return await self._ask(replace(asked, inputs=tuple(column[row] for column in columns)))

        responses = [await call(0)] if count == 1 else await rows.each(count, call, self._upstream.window)
        try:
            outputs = tuple(map(shapes.stack, zip(*(each.outputs for each in responses), strict=True)))
        except (DecodeError, ValueError) as error:
            raise invalid_output(f"backend {self._upstream.name!r}: rows differ in their outputs: {error}") from error
        return replace(responses[0], outputs=outputs)

    async def _ask(self, asked: Request) -> Response:
        try:
            answer = await self._upstream.handler(asked)
        except GatewayError as error:
            if error.status in (Status.NOT_FOUND, Status.INVALID_ARGUMENT):
                self._upstream.signatures.drop(asked.model)
            raise
        assert isinstance(answer, Response)
        return answer

    # Names

    def _addressed(self, request: Request) -> Request:
        """The request with the backend's names for the model and its version."""
        settings = self._settings
        version = request.version if settings.version is None else settings.version
        self._check_version(version, request)
        return replace(
            request,
            model=request.model if settings.model is None else settings.model,
            version=version,
            translate=settings.translate,
            outputs=names.requested(request.outputs, settings) if settings.rename.outputs else request.outputs,
        )

    def _check_version(self, version: str, request: Request) -> None:
        if not version:
            return
        possible = self._upstream.traits.versions
        if possible is None or not possible(version):
            raise not_found(
                f"model {request.model!r} has no version {version!r}: backend {self._upstream.name!r}"
                f' ({self._upstream.protocol}) has no such versions; `rewrite: {{version: ""}}` would drop it'
            )

    def _reply(self, response: Response, request: Request) -> Response:
        """The answer under the names that the client used."""
        return Response(
            response.outputs,
            request.model,
            request.version or response.version,
            request.id,
            response.parameters,
            response.origin,
        )

    def _companion_name(self, model: str, operation: Operation) -> str:
        return self._settings.operations.get(operation) or f"{model}.{operation.value}"

    # Signatures

    async def _signature(self, asked: Request) -> Signature:
        own = self._settings.signature
        if own is not None and own.inputs and own.outputs:
            return own
        signatures = self._upstream.signatures
        key = (asked.model, asked.version, str(asked.parameters.get("config", "")))
        fetched = signatures.kept(key) or await signatures.get(key)
        return fetched if own is None else _overridden(fetched, own)

    async def _companion_signature(self, request: Request, operation: Operation) -> Signature:
        """A tensor backend's companion: as it declares itself, or by rule where it does not tell.

        Raises:
            GatewayError: UNIMPLEMENTED if the backend has no such model.
        """
        asked = self._addressed(request)
        companion = self._companion_name(asked.model, operation)
        try:
            return await self._upstream.signatures.get((companion, asked.version, ""))
        except GatewayError as error:
            if error.status not in (Status.NOT_FOUND, Status.UNIMPLEMENTED):
                raise
            base = await self._signature(asked)
            if error.status is Status.NOT_FOUND:
                text = f"{operation.value} is not supported by model {request.model!r}: {error.message}"
                raise unsupported(text) from error
            return of_derivative(base, operation)

    # Metadata

    async def _metadata(self, request: Request) -> Signature:
        asked = self._addressed(request)
        if self._opaque:
            answer = await self._upstream.handler(asked)
            assert isinstance(answer, Signature)
            return replace(answer, name=request.model)
        # What a client asks for is answered afresh where the question is one call; sizes are remembered.
        signature = await self._signature_for_metadata(asked)
        if self._client.traits.points:
            return await self._sizes(request, signature)
        return self._described(request, signature)

    async def _signature_for_metadata(self, asked: Request) -> Signature:
        own = self._settings.signature
        key = (asked.model, asked.version, str(asked.parameters.get("config", "")))
        fetched = await self._upstream.signatures.get(key)
        return fetched if own is None else _overridden(fetched, own)

    async def _sizes(self, request: Request, signature: Signature) -> Signature:
        """What a one-point client sees: vectors, and the operations that the model or its companions offer."""
        if request.part == "ModelInfo":
            return replace(signature, operations=await self._offered(request, signature))
        return replace(
            signature,
            name=request.model,
            inputs=_points(signature.inputs, request) if request.part != "OutputSizes" else (),
            outputs=_points(signature.outputs, request) if request.part != "InputSizes" else (),
        )

    async def _offered(self, request: Request, signature: Signature) -> frozenset[Operation]:
        if self._upstream.traits.derivatives:
            return signature.operations
        offered = {Operation.INFER} & signature.operations
        for operation in DERIVATIVES:
            asked = self._addressed(request)
            key = (self._companion_name(asked.model, operation), asked.version, "")
            try:
                await self._upstream.signatures.get(key)
            except GatewayError as error:
                if error.status not in (Status.NOT_FOUND, Status.UNIMPLEMENTED, Status.INVALID_ARGUMENT):
                    raise
            else:
                offered.add(operation)
        return frozenset(offered)

    def _described(self, request: Request, signature: Signature) -> Signature:
        """What a tensor client sees: the client's names, without the inputs that the route supplies."""
        settings = self._settings
        constants = {tensor.name for tensor in settings.constants}
        inputs = tuple(spec for spec in signature.inputs if spec.name not in constants)
        outputs = _renamed(signature.outputs, settings.rename.outputs)
        if settings.select:
            there = {spec.name: spec for spec in outputs}
            outputs = tuple(there[name] for name in settings.select if name in there)
        return replace(
            signature,
            name=request.model,
            inputs=_renamed(inputs, settings.rename.inputs),
            outputs=outputs,
            platform=signature.platform or self._upstream.traits.platform,
        )

    async def _companion_metadata(self, request: Request, operation: Operation) -> Signature:
        asked = self._addressed(request)
        if not self._upstream.traits.derivatives:
            companion = replace(asked, model=self._companion_name(asked.model, operation))
            answer = await self._upstream.handler(companion)
            assert isinstance(answer, Signature)
            return replace(answer, name=f"{request.model}.{operation.value}")
        signature = await self._signature_for_metadata(asked)
        if operation not in signature.operations:
            raise unsupported(f"model {request.model!r} does not claim {operation.value}")
        described = self._described(request, of_derivative(signature, operation))
        name = f"{request.model}.{operation.value}"
        return replace(described, name=name, operations=frozenset({Operation.INFER}))

    async def _companion_ready(self, request: Request, operation: Operation) -> bool:
        asked = self._addressed(request)
        if self._upstream.traits.derivatives:
            signature = await self._upstream.signatures.get((asked.model, asked.version, ""))
            return operation in signature.operations and await self._model_ready(request)
        companion = replace(asked, model=self._companion_name(asked.model, operation))
        return bool(await self._upstream.handler(companion))

    async def _model_ready(self, request: Request) -> bool:
        return bool(await self._upstream.handler(self._addressed(request)))

    async def _config(self, request: Request) -> dict[str, object]:
        """perf_analyzer ends if `config` is not answered with 200; an empty one is enough for it."""
        if not await self._model_ready(request):
            raise not_found(f"model {request.model!r} is not ready")
        return {}


def _overridden(fetched: Signature, own: Signature) -> Signature:
    return replace(fetched, inputs=own.inputs or fetched.inputs, outputs=own.outputs or fetched.outputs)


def _points(specs: tuple[TensorSpec, ...], request: Request) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(spec.name, Datatype.FP64, (_point(spec, request),)) for spec in specs)


def _point(spec: TensorSpec, request: Request) -> int:
    size = shapes.point_size(spec.shape)
    if size is None:
        raise refusal(
            Reason.FAILED_PRECONDITION,
            f"tensor {spec.name!r} of model {request.model!r} has the free shape {list(spec.shape)};"
            " `signature` on the route must give its size",
        )
    return size


def _renamed(specs: tuple[TensorSpec, ...], pairs: tuple[tuple[str, str], ...]) -> tuple[TensorSpec, ...]:
    names_of = {backend: client for client, backend in pairs}
    return tuple(replace(spec, name=names_of.get(spec.name, spec.name)) for spec in specs)


def _lift(tensor: Tensor) -> Tensor:
    return replace(tensor, shape=(1, *tensor.shape))
