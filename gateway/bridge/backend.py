"""A backend from the perspective of a Bridge: the functions that call it, its known properties, and the parameters that
it cannot carry. `assembly.backend_sides` creates it."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing

from gateway.bridge.signature_cache import SignatureCache
from gateway.core.errors import GatewayError, Reason, Status, invalid_input, invalid_output, unsupported
from gateway.core.frozen import frozen, replace
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS, Limits, Protocol, Traits
from gateway.core.requests import ATTACHMENT, Answer, Request, Response
from gateway.core.tensors import Parameters, Tensor
from gateway.core.transport import Handler, StreamHandler

ROWS_AT_ONCE = 16
"""The maximum number of rows of one batch in flight for a backend without `max_in_flight`."""


@frozen
class BackendSide:
    """A backend from the perspective of a Bridge."""

    name: str
    protocol: str
    """The name of the backend's protocol."""
    traits: Traits
    """The protocol's traits, adapted to this backend's `batch`, endpoints and `trust_metadata`."""
    handler: Handler
    """Sends a request through the backend's policies."""
    signatures: SignatureCache
    window: int | Callable[[], int]
    """The maximum number of rows of one batch in flight, or a function that returns this number if the backend's
    endpoints can change."""
    responses: StreamHandler | None = None
    """Sends a request and receives a stream of responses; None if the protocol has no streams."""
    limits: Limits = DEFAULT_LIMITS

    def rows_at_once(self) -> int:
        """Return the current value of `window`."""
        return self.window if isinstance(self.window, int) else self.window()

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        """Yield the backend's responses.

        If the protocol or the server (such as KServe) cannot stream, or if its streams cannot carry the request, yield
        only the response of a unary call.

        Raises:
            GatewayError: the backend's error, or UNIMPLEMENTED with both error messages if the unary call is also
                impossible.
        """
        obstacle = ""
        if self.responses is not None:
            begun = False
            try:
                async with aclosing(self.responses(replace(request, operation=Operation.STREAM))) as responses:
                    async for response in responses:
                        begun = True
                        yield response
                return
            except GatewayError as error:
                if begun or error.status is not Status.UNIMPLEMENTED:
                    raise
                obstacle = error.message
        yield await self._only_response(replace(request, operation=Operation.INFER), obstacle)

    async def _only_response(self, request: Request, obstacle: str) -> Response:
        try:
            return await self.infer(request)
        except GatewayError as error:
            if not obstacle or error.status is not Status.UNIMPLEMENTED:
                raise
            # The model can only stream, and a stream is not possible, so the client needs both messages.
            raise unsupported(f"{error.message}; and no stream: {obstacle}") from error

    async def infer(self, request: Request) -> Response:
        """Return the backend's response. After an error that might mean that the model has changed, the next request
        queries the signature again.

        Raises:
            GatewayError: the backend's error.
        """
        try:
            answer = await self.handler(request)
        except GatewayError as error:
            self.refused(request, error)
            raise
        assert isinstance(answer, Response)
        return answer

    def refused(self, request: Request, error: GatewayError) -> None:
        """Handle an `error` with which the backend responded to `request`."""
        if error.status is Status.NOT_FOUND:
            self.signatures.drop(request.model)
        elif error.status is Status.INVALID_ARGUMENT or error.reason is Reason.INVALID_OUTPUT:
            self.signatures.doubt(request.model)

    async def metadata(self, request: Request) -> Signature:
        """Return a model's current metadata from the backend, or the signature that the protocol declares.

        Raises:
            GatewayError: the backend's error.
        """
        declared = self.traits.models.signature
        if declared is not None:
            return declared
        answer = await self.handler(request)
        assert isinstance(answer, Signature)
        self.signatures.reported(request, answer)
        return answer


def refusing_own_parameters(backend: BackendSide, client: Protocol) -> BackendSide:
    """Wrap `backend` for clients of the protocol `client`.

    A request or response fails if it contains a parameter that represents a protocol-specific part of a message
    (`Wire.own_parameters`), such as a brpc attachment, and the other protocol has no such part. If both protocols are
    the same, messages are not checked."""
    of_client, of_backend = client.traits.wire.own_parameters, backend.traits.wire.own_parameters
    if sent := of_client - of_backend:
        stream = backend.responses and _checked_stream(backend.responses, sent, backend)
        backend = replace(backend, handler=_checked_requests(backend.handler, sent, backend), responses=stream)
    if received := of_backend - of_client:
        backend = replace(backend, handler=_checked_answers(backend.handler, received, backend, client))
    return backend


def _checked_requests(handler: Handler, sent: frozenset[str], backend: BackendSide) -> Handler:
    async def checked(request: Request) -> Answer:
        _refuse_sent(request, sent, backend.protocol)
        return await handler(request)

    return checked


def _checked_stream(responses: StreamHandler, sent: frozenset[str], backend: BackendSide) -> StreamHandler:
    async def checked(request: Request) -> AsyncGenerator[Response, None]:
        _refuse_sent(request, sent, backend.protocol)
        async with aclosing(responses(request)) as found:
            async for each in found:
                yield each

    return checked


def _refuse_sent(request: Request, own: frozenset[str], protocol: str) -> None:
    """Raise GatewayError (INVALID_ARGUMENT) if the request contains one of the parameters `own`. The other protocol,
    `protocol`, does not have these parameters."""
    for found in _found(request.parameters, request.inputs, own, "the request", "input"):
        raise invalid_input(f"{found}, which {protocol} cannot carry")


def _checked_answers(handler: Handler, received: frozenset[str], backend: BackendSide, client: Protocol) -> Handler:
    """Wrap `handler` to check its requests and responses.

    A client's parameter that has the same name by chance does not represent a part of the message. Protocols with these
    parameters have no streams."""

    async def checked(request: Request) -> Answer:
        _refuse_sent(request, received, client.name)
        answer = await handler(request)
        if isinstance(answer, Response):
            for found in _found(answer.parameters, answer.outputs, received, "the reply", "output"):
                raise invalid_output(f"backend {backend.name!r}: {found}, which {client.name} cannot carry")
        return answer

    return checked


def _found(
    parameters: Parameters, tensors: Sequence[Tensor], own: frozenset[str], what: str, role: str
) -> Iterator[str]:
    """For each parameter that is in `own`, yield a phrase for the error message."""
    for name in own & parameters.keys() if parameters else ():
        size = f" of {len(str(parameters[name]))} bytes" if name == ATTACHMENT else ""
        yield f"{what} has a {name}{size}"
    for at, tensor in enumerate(tensors):
        for name in own & tensor.parameters.keys() if tensor.parameters else ():
            yield f"{role} {tensor.name or at!r} has a {name}, {tensor.parameters[name]}"
