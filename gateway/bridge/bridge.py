"""The Bridge is the Handler between a route and its backend. It translates between the client's protocol and the
backend's protocol.

`assembly.routers` creates one Bridge for each client protocol of a route.

A Bridge handles requests in one of two ways. If both protocols name and type tensors in the same way and the route has
no tensor settings, tensors pass unchanged, and the Bridge does not query the backend's metadata. Otherwise, the Bridge
adapts the request to the model's signature, and the response back to the client (see `fitting` for the rules).

Derivatives (UM-Bridge's gradient, apply_jacobian, apply_hessian) are operations if the backend's protocol has such
operations. Otherwise, they are inference calls to a derivative model (`derivatives`). If the route allows it, the
gateway computes missing derivatives from evaluations of the model (`estimates`).
"""

import re
from asyncio import to_thread
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import ClassVar

from gateway.bridge import derivatives, json_members, names
from gateway.bridge.backend import BackendSide, refusing_own_parameters
from gateway.bridge.config_tensor import ConfigTensor
from gateway.bridge.estimates import POINTS, EstimatedDerivatives
from gateway.bridge.extensions import Extensions, config_from_metadata
from gateway.bridge.fitted_calls import FittedCalls
from gateway.bridge.fitting import FittedRequest, Fitting, Fittings
from gateway.bridge.metadata import ModelMetadata
from gateway.bridge.response import collected_stream, fit_response, last_of_stream, reply
from gateway.bridge.rewrite import Rewrite
from gateway.bridge.rows import infer_unequal_rows, unequal_rows
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signature_cache import Key
from gateway.bridge.signatures import RouteSignatures, is_unknown
from gateway.core.datatypes import Datatype
from gateway.core.errors import (
    DecodeError,
    GatewayError,
    Status,
    not_found,
    unsupported,
)
from gateway.core.exchange import MustBeReadError, after_all, written
from gateway.core.frozen import replace, replace_struct
from gateway.core.models import Signature
from gateway.core.operations import CONTROL_OPERATIONS, DERIVATIVES, Operation
from gateway.core.protocol import Protocol, Rows, Traits
from gateway.core.requests import Answer, MissingNumbers, NestedParameters, Request, Response, UnequalRows
from gateway.core.spans import Repeated
from gateway.core.transport import Handler

_ABOUT_STREAMS = re.compile("decoupled|stream", re.IGNORECASE)
"""Phrases in server errors about a model that only streams.

Triton writes "doesn't support models with decoupled transaction policy", and sample servers write "streams its
responses".
"""

_HINT = "for a model that streams, `translate: {stream: last}` or `{stream: collect}` on the route gives one response"


class Bridge:
    """Converts requests in one client protocol for one backend of a route, and the backend's responses back for the
    client."""

    def __init__(self, settings: RouteSettings, client: Protocol, backend: BackendSide) -> None:
        if Datatype.BYTES not in client.traits.wire.datatypes:
            # These clients can send only numbers. They therefore send and receive pixels, like the backend.
            settings = replace(settings, images=None)
        backend = refusing_own_parameters(backend, client)
        self._client = client
        self._settings = settings
        self._backend = backend
        self._reads_first = False
        """True if a server has rejected a message that was relayed without decoding. All later messages are decoded
        first."""
        self._reads_streams_first: set[bool] = set()
        """Same as `_reads_first`, for requests for streams, which a server may accept only with or only without
        datatypes: contains the values of `schemaless` of rejected messages."""
        self._infer = backend.handler
        self._reduces_streams = settings.stream != "error" and backend.responses is not None
        self._unchanged = settings.leaves_tensors_unchanged and _have_same_tensors(client.traits, backend.traits)
        self._fittings = Fittings(client, backend, settings)
        self._fittings_of_derivatives = Fittings(client, backend, settings.for_derivatives)
        self._derivatives_have_lengths = client.traits.wire.derivatives or backend.traits.wire.derivatives
        self._rewrite = Rewrite(settings, backend)
        self._config_tensor = ConfigTensor(settings, client.traits, backend)
        self._has_config_tensors = self._config_tensor.from_client
        self._signatures = RouteSignatures(self._rewrite)
        self._calls = FittedCalls(settings, backend, self._signatures, self._config_tensor)
        self._metadata = ModelMetadata(client, self._rewrite, self._signatures, self._unchanged)
        self._extensions = Extensions(self._rewrite)
        self._estimates = None if settings.derivatives is None else self._estimated_derivatives()
        self._derivative = self._derive if self._estimates is None else self._derive_or_estimate

    def _estimated_derivatives(self) -> EstimatedDerivatives:
        evaluate = Bridge(self._settings.for_points, POINTS, self._backend)
        return EstimatedDerivatives(
            self._settings, self._fittings_of_derivatives, self._signatures, evaluate, self._backend
        )

    def __call__(self, request: Request) -> Awaitable[Answer]:
        """Return the response to a request for one of the route's models.

        Raises:
            DecodeError: the client's tensors do not match the model's signature.
            GatewayError: the backend's error; INTERNAL (invalid-output) if the response does not match the model's
                signature; UNIMPLEMENTED if the backend does not support the operation.
        """
        if request.unread is not None:
            return self._relay(request)
        if request.flaw:
            if isinstance(request.flaw, UnequalRows) and self._takes_rows(request):
                return self._by_row(request, request.flaw)
            if not self._takes(request.flaw):
                return self._refuse(request)
            request = replace_struct(request, flaw="")
        handle = self._OPERATIONS.get(request.operation)
        if handle is None:
            raise unsupported(f"{request.operation.value} is not supported by backend {self._backend.name!r}")
        return handle(self, self._config_tensor.to_parameter(request) if self._has_config_tensors else request)

    async def _relay(self, request: Request) -> Answer:
        """Return the response to a request that is relayed without decoding, with the client's names and tensors."""
        try:
            if not self._reads_first:
                return await self._infer(request)
        except MustBeReadError:
            self._reads_first = True
        except GatewayError as error:
            self._backend.refused(request, error)
            if not self._lacks_hint(error):
                raise
            raise _with_hint(error) from error
        read = await after_all(request, self._client)
        return await written(await self(read), read, request)

    async def _relayed_stream(self, request: Request) -> AsyncGenerator[Response, None]:
        """Yield the responses to a request that is relayed without decoding."""
        try:
            if request.schemaless not in self._reads_streams_first:
                async with aclosing(self._backend.stream(request)) as passing:
                    async for each in passing:
                        yield each
                return
        except MustBeReadError:
            self._reads_streams_first.add(request.schemaless)
        read = await after_all(request, self._client)
        async with aclosing(self.stream(read)) as responses:
            async for each in responses:
                yield await written(each, read, request)

    def _takes(self, flaw: str) -> bool:
        """Return True if the route accepts a request despite its flaw."""
        if isinstance(flaw, NestedParameters):
            return self._backend.traits.wire.nested_parameters
        return isinstance(flaw, MissingNumbers) and "null" in (self._settings.nan, self._client.traits.wire.nan)

    def _takes_rows(self, request: Request) -> bool:
        """Return True if rows can differ in length, because the backend is called once for each row."""
        return request.operation is Operation.INFER and self._backend.traits.wire.rows is Rows.ONE

    async def _by_row(self, request: Request, rows: UnequalRows) -> Response:
        fitting = self._fittings.to(await self._signatures.model(self._rewrite.key(request)))
        return await infer_unequal_rows(request, rows, fitting, self)

    async def _refuse(self, request: Request) -> Answer:
        raise await self._error_for_flaw(request)

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        """Yield the responses for a client that accepts any number of responses.

        If the backend does not stream, yield one response.

        Raises:
            DecodeError, GatewayError: the errors of a call, possibly after some responses.
        """
        if request.unread is not None:
            async with aclosing(self._relayed_stream(request)) as passing:
                async for each in passing:
                    yield each
            return
        if request.flaw:
            if not self._takes(request.flaw):
                raise await self._error_for_flaw(request)
            request = replace_struct(request, flaw="")
        if self._has_config_tensors:
            request = self._config_tensor.to_parameter(request)
        key = self._rewrite.key(request)
        if self._passes_unchanged(request):
            fitted, fitting = FittedRequest(self._rewrite.outgoing(request, key), None, False), None
        else:
            fitting = await self._fitting(request, key)
            if fitting.row_by_row:
                inference = replace(request, operation=Operation.INFER)
                try:
                    response = await self._calls.response(inference, key, fitting)
                except (DecodeError, GatewayError) as error:
                    response = await self._calls.again(error, inference, key, fitting, self._fitting)
                yield response
                return
            try:
                fitted = await self._calls.fit(request, key, fitting)
            except DecodeError as error:
                fitting = await self._calls.other_fitting(error, request, key, fitting, self._fitting)
                fitted = await self._calls.fit(request, key, fitting)
        outgoing = fitted.request
        if self._config_tensor.to_backend:
            outgoing = self._config_tensor.to_tensor(outgoing)
        record = request.record
        work = None if record.events is None else Repeated(record, "fit reply")
        async with aclosing(self._backend.stream(outgoing)) as responses:
            async for each in responses:
                response = await self._with_outputs(each, key, outgoing) if each.schemaless else each
                if fitting is not None and work is not None:
                    yield await self._calls.fit_reply(response, request, fitted, fitting, work)
                elif fitting is not None and fitting.has_images:
                    yield await to_thread(fit_response, response, request, fitted, fitting)
                elif fitting is not None:
                    yield fit_response(response, request, fitted, fitting)
                else:
                    # Triton ends a stream with a response without outputs if the client requests that.
                    yield self._passed(response, request) if response.outputs else reply(response, request)

    def companion(self, operation: Operation) -> Handler:
        """Return the Handler for requests for the route's derivative models of one operation, such as `M.gradient`."""
        suffix = f".{operation.value}"

        async def handle(request: Request) -> Answer:
            base = replace(request, model=request.model.removesuffix(suffix))
            if base.flaw:
                if not self._takes(base.flaw):
                    raise await self._error_for_flaw(base)
                base = replace_struct(base, flaw="")
            base = self._config_tensor.to_parameter(base) if self._has_config_tensors else base
            match request.operation:
                case Operation.INFER:
                    answer = await self._derivative(replace(base, operation=operation))
                    return replace(answer, model=request.model)
                case Operation.METADATA:
                    return await self._metadata.companion(base, operation)
                case Operation.MODEL_READY:
                    return await self._metadata.companion_ready(base, operation)
                case Operation.CONFIG:
                    return await self._config(base, operation)
                case Operation.MODEL_STATISTICS:
                    await self._refuse_if_estimated(base, operation, "its evaluations are part of the statistics of")
                    return await self._extensions.statistics(base, operation)
                case control if control in CONTROL_OPERATIONS:
                    await self._refuse_if_estimated(base, operation, f"send {control.value} for")
                    return await self._extensions.control(base, operation)
                case other:
                    raise unsupported(f"{other.value} is not supported by {request.model!r}, which is a derivative")

        return handle

    async def _refuse_if_estimated(self, request: Request, companion: Operation, what_to_ask: str) -> None:
        """Raise NOT_FOUND if the gateway computes this derivative of `request.model`, because the backend has no such
        model."""
        if await self._signatures.is_estimated(self._rewrite.key(request), companion):
            text = f"model '{request.model}.{companion.value}' is computed by finite differences; {what_to_ask}"
            raise not_found(f"{text} model {request.model!r}")

    async def _config(self, request: Request, companion: Operation | None = None) -> Mapping[str, object]:
        """Return the model's configuration. If the backend has no configuration, derive it from the metadata."""
        estimated = companion and await self._signatures.is_estimated(self._rewrite.key(request), companion)
        config = None if estimated else await self._extensions.config(request, companion)
        if config is not None:
            return config
        if not await self._metadata.ready(request):
            raise not_found(f"model {request.model!r} is not ready; try again later")
        asked = replace(request, operation=Operation.METADATA, part="")
        if companion is None:
            return config_from_metadata(request.model, await self._metadata.signature(asked), self._settings.max_rows)
        signature = await self._metadata.companion(asked, companion)
        return config_from_metadata(f"{request.model}.{companion.value}", signature, self._settings.max_rows)

    async def _error_for_flaw(self, request: Request) -> Exception:
        """Return the error for a request with a flaw: NOT_FOUND if the model does not exist, UNIMPLEMENTED if the model
        does not have the operation (consistent with its metadata), otherwise the flaw itself."""
        if (
            isinstance(request.flaw, MissingNumbers | NestedParameters | UnequalRows)
            and not self._client.traits.wire.points
        ):
            return DecodeError(request.flaw)
        try:
            await self._signatures.described(self._rewrite.key(request))
            supported = await self._metadata.supports(request)
        except GatewayError as error:
            if error.status is Status.NOT_FOUND:
                return error
            return DecodeError(request.flaw)
        if supported:
            return DecodeError(request.flaw)
        return unsupported(f"{request.operation.value} is not supported by model {request.model!r}")

    async def _unary(self, request: Request) -> Response:
        try:
            if self._reduces_streams:
                return await self._reduced(request)
            if self._unchanged and not request.schemaless:
                outgoing = self._rewrite.renamed(request)
                try:
                    # Same as `BackendSide.infer`, but without an additional coroutine.
                    answer = await self._infer(outgoing)
                except GatewayError as error:
                    self._backend.refused(outgoing, error)
                    raise
                assert isinstance(answer, Response)
                return self._passed(answer, request) if request.outputs else reply(answer, request)
            key = self._rewrite.key(request)
            fitting = await self._fitting(request, key)
            if fitting.row_by_row:
                rows = unequal_rows(request.inputs, fitting.signature)
                if rows is not None:
                    return await self._by_row(request, rows)
            try:
                return await self._calls.response(request, key, fitting)
            except (DecodeError, GatewayError) as error:
                return await self._second_attempt(error, request, key, fitting)
        except GatewayError as error:
            if not self._lacks_hint(error):
                raise
            raise _with_hint(error) from error

    async def _second_attempt(
        self, error: DecodeError | GatewayError, request: Request, key: Key, fitting: Fitting
    ) -> Response:
        """Return the response to another attempt after `error`, if the model's tensors have changed since `fitting`.

        Otherwise, raise `error`. If the request contains rows of unequal length, the message contains the remedy."""
        try:
            return await self._calls.again(error, request, key, fitting, self._fitting)
        except DecodeError as mismatch:
            rows = unequal_rows(request.inputs, fitting.signature)
            if rows is None:
                raise
            raise DecodeError(f"{rows}; {UnequalRows.REMEDY}") from mismatch

    async def _fitting(self, request: Request, key: Key) -> Fitting:
        """Return the Fitting for an inference. If inputs are missing in the request, query which inputs are optional.

        Raises:
            GatewayError: the backend's error, or INVALID_ARGUMENT as in `check_undeclared`.
        """
        if request.schemaless and request.parameters:
            await self._signatures.check_undeclared(request.parameters, key)
        fitting = self._fittings.to(await self._signatures.model(key))
        if fitting.is_unknown or not fitting.lacks_inputs(request):
            return fitting
        return self._fittings.to(await self._signatures.with_optional(key))

    async def _explain(self, request: Request) -> Response:
        """Return the explanation of an inference. Pass the tensors unchanged, because signatures do not describe
        explanations or their additional inputs."""
        key = self._rewrite.key(request)
        return reply(await self._backend.infer(self._rewrite.outgoing(request, key)), request)

    def _lacks_hint(self, error: GatewayError) -> bool:
        """Return True if `error` concerns a model that only streams, and does not explain how to call this model."""
        return self._says_that_model_streams(error) and self._settings.stream == "error" and _HINT not in error.message

    def _says_that_model_streams(self, error: GatewayError) -> bool:
        """Return True if the backend's error means that the model only streams."""
        is_unsupported = error.status is Status.UNIMPLEMENTED and self._backend.responses is not None
        return is_unsupported and _ABOUT_STREAMS.search(error.message) is not None

    def _passes_unchanged(self, request: Request) -> bool:
        """Return True if the request's tensors pass unchanged."""
        return self._unchanged and not request.schemaless

    def _passed(self, response: Response, request: Request) -> Response:
        """Return the response with unchanged outputs: the requested outputs or, by default, all outputs.

        Raises:
            GatewayError: INTERNAL (invalid-output) if a requested output is missing.
        """
        requested, outputs = request.outputs, response.outputs
        if not requested or [each.name for each in requested] == [each.name for each in outputs]:
            return reply(response, request)
        try:
            return reply(response, request, tuple(names.picked(outputs, [each.name for each in requested])))
        except DecodeError as error:
            raise self._calls.invalid_output(error) from error

    async def _with_outputs(self, response: Response, key: Key, outgoing: Request) -> Response:
        """Convert the outputs of a schemaless response to tensors."""
        signature = await self._signatures.model(key)
        try:
            return json_members.resolve_outputs(response, signature, outgoing.outputs)
        except DecodeError as error:
            raise self._calls.invalid_output(error) from error

    async def _reduced(self, request: Request) -> Response:
        """Combine a stream of responses into one response, according to the route's `translate.stream`."""
        name = self._backend.name
        async with aclosing(self.stream(request)) as responses:
            if self._settings.stream == "last":
                return await last_of_stream(responses, name)
            return await collected_stream(responses, name, self._backend.limits.message)

    async def _derive_or_estimate(self, request: Request) -> Response:
        """Return the model's own derivative if it has one; otherwise, compute the derivative by finite differences."""
        assert self._estimates is not None
        key = self._rewrite.key(request)
        if await self._signatures.is_estimated(key, request.operation):
            return await self._estimates.derive(request, key)
        return await self._derive(request)

    async def _derive(self, request: Request) -> Response:
        key = self._rewrite.key(request)
        if self._backend.traits.wire.derivatives:
            fitting = await self._fitting_of_derivative(request, key)
            try:
                return await self._calls.response(request, key, fitting)
            except (DecodeError, GatewayError) as error:
                return await self._calls.again(error, request, key, fitting, self._fitting_of_derivative)
        companion = self._rewrite.companion(key, request.operation)
        inference = replace(request, operation=Operation.INFER)
        if self._passes_unchanged(request):
            await self._signatures.check_companion(key, request.operation)
            return self._passed(await self._backend.infer(self._rewrite.outgoing(inference, companion)), request)
        fitting = await self._fitting_of_derivative(request, key)
        try:
            return await self._calls.response(inference, companion, fitting)
        except GatewayError as error:
            if error.status is not Status.NOT_FOUND:
                raise
            await self._signatures.check(key)
            text = f"{request.operation.value} is not supported by model {request.model!r}: {error.message}"
            raise unsupported(text) from error

    async def _fitting_of_derivative(self, request: Request, key: Key) -> Fitting:
        return self._fittings_of_derivatives.to(await self._signature_of_derivative(request, key))

    async def _signature_of_derivative(self, request: Request, key: Key) -> Signature:
        """Return the signature of the derivative model.

        If the client's or the backend's protocol has derivatives as operations, the vectors have the lengths of the
        inputs and outputs to which the request's index tensors refer."""
        signature = await self._signatures.derivative(key, request.operation)
        positions = derivatives.positions(request.inputs, DERIVATIVES[request.operation])
        is_fixed = not self._derivatives_have_lengths or request.schemaless
        if is_fixed or positions is None or is_unknown(signature):
            return signature
        try:
            base = await self._signatures.model(key)
        except GatewayError as error:
            if error.status is not Status.NOT_FOUND:
                raise
            return signature  # the derivative model exists but its base model does not
        return signature if is_unknown(base) else derivatives.sized(signature, base, request.operation, positions)

    _OPERATIONS: ClassVar[Mapping[Operation, "Callable[[Bridge, Request], Awaitable[Answer]]"]] = {
        Operation.INFER: _unary,
        Operation.EXPLAIN: _explain,
        **dict.fromkeys(DERIVATIVES, lambda self, request: self._derivative(request)),
        Operation.METADATA: lambda self, request: self._metadata.signature(request),
        Operation.MODEL_READY: lambda self, request: self._metadata.ready(request),
        Operation.CONFIG: _config,
        Operation.MODEL_STATISTICS: lambda self, request: self._extensions.statistics(request),
        **dict.fromkeys(CONTROL_OPERATIONS, lambda self, request: self._extensions.control(request)),
    }
    """The table of operations that all Bridges share. With 1,000 separate tables, each request would use a table that
    is not in a processor cache."""


def _with_hint(error: GatewayError) -> GatewayError:
    return GatewayError(error.status, error.reason, f"{error.message}; {_HINT}", error.retry_after)


def _have_same_tensors(client: Traits, backend: Traits) -> bool:
    """Return True if each protocol's tensors are valid in the other protocol, because both have named tensors and the
    same datatypes."""
    return client.wire.datatypes == backend.wire.datatypes and not any(
        traits.wire.untyped or traits.wire.unnamed or traits.wire.points for traits in (client, backend)
    )
