"""A toy protocol whose messages hold a word, and a connector that answers when the test lets it."""

import asyncio
from collections.abc import AsyncGenerator

from gateway.core.errors import DecodeError, Reason, Status, TransportError, invalid_input
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.protocol import GrpcBinding, ListenerSettings, Protocol, Servers, Target, Traits
from gateway.core.requests import Answer, Request, Response, Translate


def _decode_request(message: Message, listener: ListenerSettings) -> Request:
    if message.body == b"junk":
        raise DecodeError("junk is no request")
    operation = Operation(bytes(message.body).decode() or "infer")
    return Request(operation, "m")


def _encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    return Message(status=200, parts=(repr(answer).encode(),))


def _encode_error(error: object, request: Request | None, message: Message) -> Message:
    return Message(status=400, parts=(f"{error.__dict__['reason'].value}: {error}".encode(),))


def _encode_request(request: Request, target: Target) -> Message:
    if request.model == "unspeakable":
        raise invalid_input("no word for it")
    return Message("ASK", f"{target.address}/{request.model}", Headers([(b"x", b"1")]))


def _decode_response(message: Message, request: Request, target: Target) -> Answer:
    if message.status == 200:
        return Response(id=bytes(message.body).decode()) if request.operation is Operation.INFER else Signature()
    if message.status == 400:
        raise invalid_input(bytes(message.body).decode())
    raise DecodeError(f"status {message.status}")


TOY = Protocol(
    "toy", GrpcBinding(), (), _decode_request, _encode_response, _encode_error, _encode_request, _decode_response
)  # fmt: skip
TO_THE_END = replace(TOY, traits=Traits(servers=Servers(runs_to_the_end=True)))


class Wire:
    """A Connector that keeps what it was sent, and answers when told to."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.open: list[asyncio.Future[Message]] = []
        self.refuses = False
        self.answers_at_once = False

    async def exchange(self, message: Message) -> Message:
        if self.refuses:
            raise TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "connection refused", sent=False)
        self.sent.append(message)
        if self.answers_at_once:
            return Message(status=200)
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.open.append(reply)
        return await reply

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """One reply, then the end."""
        yield await self.exchange(message)

    async def close(self) -> None:
        """Nothing is open."""

    def answer(self, text: bytes = b"", status: int = 200) -> None:
        """Answer the oldest open exchange."""
        self._oldest().set_result(Message(status=status, parts=(text,)))

    def answer_all(self) -> bool:
        """Answer all open exchanges, if there are any."""
        waiting, self.open = [reply for reply in self.open if not reply.cancelled()], []
        for reply in waiting:
            reply.set_result(Message(status=200))
        return bool(waiting)

    def break_off(self, *, sent: bool, answered: bool = False) -> None:
        """Fail the oldest open exchange."""
        error = TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "reset", sent=sent, answered=answered)
        self._oldest().set_exception(error)

    def _oldest(self) -> "asyncio.Future[Message]":
        self.open = [reply for reply in self.open if not reply.cancelled()]
        return self.open.pop(0)
