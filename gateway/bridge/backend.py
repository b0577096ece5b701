"""A backend as a Bridge sees it: how to call it, and its known properties. `assembly.backends` creates it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from gateway.bridge.signature_cache import SignatureCache
from gateway.core.errors import GatewayError, Reason, Status, unsupported
from gateway.core.frozen import frozen, replace
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS, Limits, Traits
from gateway.core.requests import Request, Response
from gateway.core.transport import Handler, StreamHandler

ROWS_AT_ONCE = 16
"""Maximum number of rows of one batch in flight for a backend without `max_in_flight`."""


@frozen
class BackendSide:
    """A backend as a Bridge sees it."""

    name: str
    protocol: str
    """The name of the backend's protocol."""
    traits: Traits
    """The protocol's traits, adapted to this backend's `batch`, endpoints and `trust_metadata`."""
    handler: Handler
    """Sends a request through the backend's policies."""
    signatures: SignatureCache
    window: int | Callable[[], int]
    """Maximum number of rows of one batch in flight, or a function that returns it if the backend's endpoints can
    change."""
    responses: StreamHandler | None = None
    """Sends a request that gets a stream of responses; None if the protocol has no streams."""
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
        """Return the backend's response. If an error might mean that the model has changed, the next request queries
        the signature again.

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
        """Return the backend's current metadata for a model, or the signature that the protocol declares.

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
