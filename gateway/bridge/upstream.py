"""The backend as the bridge sees it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from gateway.bridge.signatures import Signatures
from gateway.core.errors import GatewayError, Status, unsupported
from gateway.core.frozen import frozen, replace
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS, Limits, Traits
from gateway.core.transport import Handler, StreamHandler
from gateway.core.types import Request, Response, Signature

ROWS_AT_ONCE = 16
"""Rows of one batch on their way at once, towards a backend that says no limit."""


@frozen
class Upstream:
    """A backend's name, the name and the traits of its protocol, its Handler (within its policies), and what is known
    of its models. `window`: how many rows of one batch may be on their way at once."""

    name: str
    protocol: str
    traits: Traits
    handler: Handler
    signatures: Signatures
    window: int
    responses: StreamHandler | None = None
    """The backend's stream of responses to one request, where its protocol has streams."""
    limits: Limits = DEFAULT_LIMITS

    async def stream(self, asked: Request) -> AsyncGenerator[Response, None]:
        """The backend's responses; its one where its protocol, the server (KServe's) or its form of streams has no
        words for the request."""
        obstacle = ""
        if self.responses is not None:
            begun = False
            try:
                async with aclosing(self.responses(replace(asked, operation=Operation.STREAM))) as responses:
                    async for response in responses:
                        begun = True
                        yield response
                return
            except GatewayError as error:
                if begun or error.status is not Status.UNIMPLEMENTED:
                    raise
                obstacle = error.message
        yield await self._one(replace(asked, operation=Operation.INFER), obstacle)

    async def _one(self, asked: Request, obstacle: str) -> Response:
        try:
            return await self.infer(asked)
        except GatewayError as error:
            if not obstacle or error.status is not Status.UNIMPLEMENTED:
                raise
            # a model that can only stream, and a stream that cannot be: both together tell what to do
            raise unsupported(f"{error.message}; and no stream: {obstacle}") from error

    async def infer(self, asked: Request) -> Response:
        """The backend's answer. What is known of the model is forgotten if the backend does not know it, or takes
        something else."""
        try:
            answer = await self.handler(asked)
        except GatewayError as error:
            if error.status in (Status.NOT_FOUND, Status.INVALID_ARGUMENT):
                self.signatures.drop(asked.model)
            raise
        assert isinstance(answer, Response)
        return answer

    async def metadata(self, asked: Request) -> Signature:
        """What the backend tells of a model now."""
        answer = await self.handler(asked)
        assert isinstance(answer, Signature)
        return answer
