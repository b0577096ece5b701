"""Streams: requests in order, the responses of each in order, and everything closed when the consumer stops."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Reason, Status, TransportError, not_found
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.offload import LARGE
from gateway.core.operations import Operation
from gateway.core.protocol import HttpBinding, ListenerSettings, Protocol, Target
from gateway.core.queue_wait import note_wait, queue_wait
from gateway.core.record import Record
from gateway.core.requests import Request, Response
from gateway.core.streaming import answer_message, answer_stream, ask_stream
from gateway.core.tensors import Tensor
from gateway.core.transport import Destination
from tests.routing.fakes import TOY

HTTP_TOY = replace(TOY, binding=HttpBinding(wants_stream=lambda message: True))
"""A call of gRPC's ends at its deadline by itself, a request of HTTP's does not."""
LISTENER = ListenerSettings("grpc")
TARGET = Target("lab", "lab:1")


async def sent(*bodies: bytes) -> AsyncIterator[Message]:
    for body in bodies:
        yield Message(parts=(body,))


def to(stream: Callable[[Request], AsyncGenerator[Response, None]] | None) -> Callable[[Request], Destination]:
    return lambda request: Destination(stream=stream)


async def two(request: Request) -> AsyncGenerator[Response, None]:
    yield Response(id="1")
    yield Response(id="2")


async def replies(messages: AsyncIterator[Message], stream: object, protocol: Protocol = TOY) -> list[str]:
    found = answer_stream(messages, protocol, LISTENER, to(stream))  # type: ignore[arg-type]
    return [bytes(reply.body).decode() async for reply in found]


async def test_requests_are_answered_in_order_with_all_their_responses() -> None:
    ids = [text.split("id='")[1][0] for text in await replies(sent(b"stream", b"stream"), two)]
    assert ids == ["1", "2", "1", "2"]


async def test_an_error_ends_its_own_request_only() -> None:
    async def fails_after_one(request: Request) -> AsyncGenerator[Response, None]:
        yield Response(id="1")
        raise not_found("gone")

    found = await replies(sent(b"stream", b"junk", b"stream"), fails_after_one)
    assert [text if ":" in text else "response" for text in found] == [
        "response",
        "model-not-found: gone",
        "invalid-input: junk is no request",
        "response",
        "model-not-found: gone",
    ]


async def test_the_unexpected_is_told_without_its_text() -> None:
    async def breaks(request: Request) -> AsyncGenerator[Response, None]:
        yield Response(id=request.headers.raw[0][0].decode())  # IndexError: there is no header

    assert await replies(sent(b"stream"), breaks) == ["internal: the gateway failed on this request; its log says why"]


async def test_what_has_no_stream_is_unsupported() -> None:
    assert await replies(sent(b"stream"), None) == ["unsupported: stream is not supported here"]


async def test_the_end_is_told_where_the_wire_has_a_word_for_it() -> None:
    ending = replace(TOY, encode_end=lambda request: Message(parts=(b"end",)))
    assert (await replies(sent(b"stream"), two, ending))[-1] == "end"


async def test_a_consumer_that_stops_closes_the_backends_stream() -> None:
    closed: list[bool] = []

    async def endless(request: Request) -> AsyncGenerator[Response, None]:
        try:
            while True:
                yield Response()
        finally:
            closed.append(True)

    async with aclosing(answer_stream(sent(b"stream"), TOY, LISTENER, to(endless))) as found:
        await anext(found)
        assert not closed
    assert closed


@pytest.mark.parametrize(("read", "status"), [(1, "CANCELLED"), (2, "OK")])
async def test_a_client_that_leaves_before_the_end_is_noted(read: int, status: str) -> None:
    record = Record("in")
    message = Message(parts=(b"stream",), record=record)
    async with aclosing(answer_message(message, TOY, LISTENER, to(two))) as found:
        for _ in range(read):
            await anext(found)
        if read == 2:
            assert [each async for each in found] == []
    assert (record.status, record.bytes_out > 0, record.ended > 0) == (status, True, True)


@pytest.mark.parametrize("more", [0, 1])
async def test_only_large_responses_are_written_in_a_thread(more: int) -> None:
    threads: list[bool] = []
    size = 4 * LARGE + more

    async def one(request: Request) -> AsyncGenerator[Response, None]:
        yield Response((Tensor("y", Datatype.INT8, (size,), bytes(size)),))

    def encode(*given: object) -> Message:
        threads.append(threading.current_thread() is not threading.main_thread())
        return Message(status=200)

    await replies(sent(b"stream"), one, replace(TOY, encode_response=encode))
    assert threads == [bool(more)]


def due(seconds: float, *bodies: bytes) -> AsyncIterator[Message]:
    deadline = asyncio.get_running_loop().time() + seconds

    async def messages() -> AsyncIterator[Message]:
        for body in bodies:
            yield Message(parts=(body,), deadline=deadline)

    return messages()


async def test_responses_in_time_are_those_of_a_request_without_a_deadline() -> None:
    assert len(await replies(due(1000, b"stream"), two, HTTP_TOY)) == 2


async def test_the_deadline_ends_the_wait_for_the_next_response_and_closes_the_backends_stream() -> None:
    told: list[str] = []

    async def stuck_after_one(request: Request) -> AsyncGenerator[Response, None]:
        try:
            yield Response(id="1")
            await asyncio.Event().wait()
        finally:
            told.append("closed")

    found = await replies(due(0.1, b"stream"), stuck_after_one, HTTP_TOY)
    assert found[-1] == "timeout: the deadline that the client set has passed"
    assert told == ["closed"]


async def test_the_deadline_of_a_call_of_grpc_is_told_by_its_status_alone() -> None:
    assert len(await replies(due(0, b"stream"), two)) == 2


async def test_a_requests_own_deadline_is_told_in_the_stream() -> None:
    sooner = replace(TOY, decode_request=lambda *given: replace(TOY.decode_request(*given), deadline=0.0))
    [told] = await replies(due(1000, b"stream"), two, sooner)
    assert told.startswith("timeout: ")


async def test_a_deadline_that_has_passed_ends_also_a_stream_that_never_waits() -> None:
    async def endless(request: Request) -> AsyncGenerator[Response, None]:
        while True:
            yield Response()

    assert (await replies(due(0, b"stream"), endless, HTTP_TOY))[-1].startswith("timeout: ")


async def test_a_slow_consumer_is_told_of_the_deadline_and_not_cancelled() -> None:
    found = []
    async with aclosing(answer_stream(due(0.1, b"stream"), HTTP_TOY, LISTENER, to(two))) as answers:
        async for reply in answers:
            found.append(bytes(reply.body).decode())
            await asyncio.sleep(0.11)
    assert found[-1:] == ["timeout: the deadline that the client set has passed"]


async def test_a_timeout_of_the_streams_own_is_not_the_deadline() -> None:
    async def times_out(request: Request) -> AsyncGenerator[Response, None]:
        yield Response()
        raise TimeoutError

    assert (await replies(due(1000, b"stream"), times_out, HTTP_TOY))[-1].startswith("internal: ")


class Wire:
    """A Connector whose streams are given."""

    def __init__(self, *given: Message | Exception) -> None:
        self.given = given
        self.pulled = 0
        self.closed = False

    async def exchange(self, message: Message) -> Message:
        raise NotImplementedError

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        try:
            for each in self.given:
                if isinstance(each, Exception):
                    raise each
                self.pulled += 1
                yield each
        finally:
            self.closed = True

    async def close(self) -> None:
        """Nothing is open."""


GOOD = Message(status=200, parts=(b"1",))
RESET = TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "reset", sent=True)


async def test_responses_are_pulled_one_by_one_and_the_stream_is_closed_with_its_consumer() -> None:
    wire = Wire(GOOD, GOOD, GOOD)
    async with aclosing(ask_stream(Request(Operation.INFER), TOY, wire, TARGET)) as responses:
        assert (await anext(responses)).id == "1"
        assert wire.pulled == 1
    assert wire.closed


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        (RESET, Status.UNAVAILABLE, "backend 'lab' at lab:1: reset"),
        (Message(status=7), Status.INTERNAL, "backend 'lab' at lab:1: status 7"),
        (Message(status=302), Status.INTERNAL, "backend 'lab' at lab:1: status 302, expected 200"),
        (
            Message(status=400, parts=(b"<html><title>No</title> /x.py",)),
            Status.INVALID_ARGUMENT,
            "backend 'lab' at lab:1: status 400 with a web page (text/html), 'No'",
        ),
        (Message(status=400, parts=(b'no: File "/x.py"',)), Status.INVALID_ARGUMENT, "no:"),
    ],
    ids=["transport", "malformed", "redirect", "page", "told"],
)
async def test_an_error_in_the_middle_names_the_backend(given: Message | Exception, status: Status, text: str) -> None:
    responses = ask_stream(Request(Operation.INFER), TOY, Wire(GOOD, given), TARGET)
    assert (await anext(responses)).id == "1"
    with pytest.raises(GatewayError) as failed:
        await anext(responses)
    assert failed.value.status is status
    assert failed.value.message.startswith(text)
    assert "/x.py" not in failed.value.message


TOLD = Message(status=400, parts=(b"no",))


async def test_a_stream_that_told_an_error_ends_by_itself_and_is_not_cancelled() -> None:
    wire = Wire(TOLD, GOOD, GOOD)
    with pytest.raises(GatewayError, match="no"):
        await anext(ask_stream(Request(Operation.INFER), TOY, wire, TARGET))
    assert (wire.pulled, wire.closed) == (3, True)


async def test_what_comes_behind_the_error_does_not_take_its_place() -> None:
    with pytest.raises(GatewayError, match="no"):
        await anext(ask_stream(Request(Operation.INFER), TOY, Wire(TOLD, RESET), TARGET))


async def test_over_http_the_first_message_after_a_wait_tells_of_it() -> None:
    async def waits(request: Request) -> AsyncGenerator[Response, None]:
        note_wait(2, 0.5)
        yield Response(id="1")
        yield Response(id="2")

    async def places(protocol: Protocol) -> list[str]:
        found = answer_stream(sent(b"stream", b"stream"), protocol, LISTENER, to(waits))
        return [reply.headers.get("gateway-queue-place") async for reply in found]

    assert await places(HTTP_TOY) == ["2", "", "2", ""]
    assert await places(TOY) == [""] * 4
    assert queue_wait.get() is None
