"""Bytes to answers: `answer` faces clients, `ask` faces backends."""

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from gateway.assembly.registry import protocols
from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Reason, Status, TransportError, not_found, refusal
from gateway.core.exchange import answer, ask, decoded
from gateway.core.frozen import replace
from gateway.core.messages import NO_HEADERS, Headers, Message, ReplyMessage
from gateway.core.offload import LARGE
from gateway.core.operations import Operation
from gateway.core.protocol import GrpcBinding, HttpBinding, ListenerSettings, Servers, Target, Traits, TransportBinding
from gateway.core.queue_wait import LATER, note_wait
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import Tensor
from gateway.core.transport import Destination
from tests.limits import settle
from tests.routing.fakes import TOY, Wire

MIP = protocols()["mip"]
LISTENER = ListenerSettings("http")


def message(body: bytes = b"infer", deadline: float | None = None) -> Message:
    return Message(parts=(body,), deadline=deadline)


def to(handler: Callable[[Request], Any]) -> Callable[[Request], Destination]:
    return lambda request: Destination(handler)


async def told(handler: Callable[[Request], Any], sent: Message) -> bytes:
    reply = answer(sent, TOY, LISTENER, to(handler))
    assert inspect.isawaitable(reply)
    return bytes((await reply).body)


async def fine(request: Request) -> Answer:
    return True


def raising(error: Exception) -> Callable[[Request], Any]:
    async def handler(request: Request) -> Answer:
        raise error

    return handler


def no_route(request: Request) -> Destination:
    raise not_found("no route")


@pytest.mark.parametrize(
    ("body", "select", "expected"),
    [
        (b"live", lambda request: Destination(local=lambda request: True), (200, b"True")),
        (b"junk", to(fine), (400, b"invalid-input: junk is no request")),
        (b"infer", no_route, (400, b"model-not-found: no route")),
    ],
    ids=["a local answer", "what the client got wrong", "no route"],
)
def test_what_needs_no_loop_is_told_at_once(body: bytes, select: Any, expected: tuple[int, bytes]) -> None:
    reply = answer(message(body), TOY, LISTENER, select)
    assert isinstance(reply, Message)
    assert (reply.status, reply.body) == expected


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (lambda request: Destination(local=lambda request: request.id == "read"), (200, b"True")),
        (no_route, (400, b"model-not-found: no route")),
        (to(fine), (200, b"True")),
    ],
    ids=["a local answer", "no route", "a handler"],
)
async def test_a_large_message_is_told_the_same(select: Any, expected: tuple[int, bytes]) -> None:
    toy = replace(TOY, decode_request=lambda *given: Request(Operation.INFER, "m", id="read"))
    reply = answer(message(bytes(LARGE + 1)), toy, LISTENER, select)
    assert inspect.isawaitable(reply)
    found = await reply
    assert (found.status, found.body) == expected


async def test_a_handlers_answer_is_encoded() -> None:
    assert await told(fine, message()) == b"True"


@pytest.mark.parametrize("where", ["decode", "select", "local", "handler"])
async def test_an_unexpected_error_is_logged_once_and_not_told(where: str, caplog: pytest.LogCaptureFixture) -> None:
    secret = KeyError("secret")

    def fail(*_: object) -> Any:
        raise secret

    select = {
        "decode": to(fine), "select": fail, "local": lambda request: Destination(local=fail),
        "handler": to(raising(secret)),
    }[where]  # fmt: skip
    reply = answer(message(b"no-such-operation" if where == "decode" else b"infer"), TOY, LISTENER, select)
    body = (reply if isinstance(reply, Message) else await reply).body
    assert body == b"internal: the gateway failed on this request; its log says why"
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError if where == "decode" else KeyError)


async def test_a_gateway_error_is_told_as_it_is_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert await told(raising(refusal(Reason.OVERLOADED, "later")), message()) == b"overloaded: later"
    assert caplog.records == []


async def test_a_deadline_that_passes_stops_the_handler() -> None:
    stopped = []

    async def slow(request: Request) -> Answer:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            stopped.append(True)
            raise
        return True

    passed = asyncio.get_running_loop().time()
    assert await told(slow, message(deadline=passed)) == b"timeout: the deadline that the client set has passed"
    assert stopped == [True]


async def test_within_its_deadline_a_handler_answers() -> None:
    later = asyncio.get_running_loop().time() + 60
    assert await told(fine, message(deadline=later)) == b"True"


async def test_a_timeout_of_the_handlers_own_is_not_the_clients_deadline(caplog: pytest.LogCaptureFixture) -> None:
    later = asyncio.get_running_loop().time() + 60
    assert (await told(raising(TimeoutError()), message(deadline=later))).startswith(b"internal: ")
    assert len(caplog.records) == 1


# Facing backends

TARGET = Target("lab", "host:1")


async def asked(reply: bytes = b"", status: int = 200, told: Headers = NO_HEADERS) -> tuple[Answer, Message]:
    """The answer of a server that replies so, and the message that it got."""
    wire = Wire()
    task = asyncio.ensure_future(ask(Request(Operation.INFER, "m"), TOY, wire, TARGET))
    await settle()
    wire.open[0].set_result(Message(status=status, headers=told, parts=(reply,)))
    return await task, wire.sent[0]


@pytest.mark.parametrize("more", [0, 1])
async def test_only_large_messages_are_read_and_written_in_a_thread(more: int) -> None:
    size = LARGE + more
    threads: dict[str, bool] = {}

    def noted(step: str, result: object) -> Callable[..., Any]:
        def work(*_arguments: object) -> object:
            threads[step] = threading.current_thread() is not threading.main_thread()
            return result

        return work

    # As much as all numbers of a message may have, and a byte more.
    numbers = (Tensor("x", Datatype.INT8, (4 * LARGE + more,), bytes(4 * LARGE + more)),)
    request, response = Request(Operation.INFER, "m", inputs=numbers), Response(numbers)
    toy = replace(
        TOY,
        decode_request=noted("request read", request),
        encode_request=noted("request written", Message()),
        decode_response=noted("reply read", response),
        encode_response=noted("reply written", Message(status=200)),
    )

    class Prompt(Wire):
        async def exchange(self, message: Message) -> Message:
            return Message(parts=(bytes(size),), status=200)

    async def handler(request: Request) -> Answer:
        return await ask(request, toy, Prompt(), TARGET)

    reply = answer(message(bytes(size)), toy, LISTENER, to(handler))
    assert inspect.isawaitable(reply)
    await reply
    assert threads == dict.fromkeys(("request read", "request written", "reply read", "reply written"), bool(more))


async def test_a_backends_answer_is_decoded() -> None:
    found, sent = await asked(b"seven")
    assert found == Response(id="seven")
    assert sent.path == "host:1/m"


async def test_a_backend_that_cannot_be_reached_is_named_with_its_address() -> None:
    wire = Wire()
    wire.refuses = True
    with pytest.raises(TransportError) as failed:
        await ask(Request(Operation.INFER, "m"), TOY, wire, TARGET)
    assert failed.value.message == "backend 'lab' at host:1: connection refused"
    assert (failed.value.status, failed.value.sent) == (Status.UNAVAILABLE, False)


async def test_a_reply_that_is_not_the_protocol_is_the_backends_fault() -> None:
    with pytest.raises(GatewayError) as failed:
        await asked(status=201)
    assert failed.value.reason is Reason.INVALID_OUTPUT
    assert failed.value.message == "backend 'lab' at host:1: status 201"


async def test_a_web_page_in_place_of_a_reply_is_called_so() -> None:
    with pytest.raises(GatewayError, match="at host:1: status 201; the reply is a web page"):
        await asked(status=201, told=Headers([(b"content-type", b"text/html; charset=utf-8")]))


async def test_a_backends_error_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(GatewayError) as failed:
        await asked(b"x must be positive", 400)
    assert (failed.value.reason, failed.value.message) == (Reason.INVALID_INPUT, "x must be positive")
    assert caplog.records == []


async def test_a_backends_endless_error_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(GatewayError) as failed:
        await asked(b"x" * 8193, 400)
    assert failed.value.message == "x" * 8192 + "... (8193 characters)"
    assert "x" * 8193 in caplog.text


async def test_a_backends_traceback_goes_to_the_log_and_not_to_the_client(caplog: pytest.LogCaptureFixture) -> None:
    text = 'failed: Traceback (most recent call last):\n  File "/srv/model.py", line 3, in f\nValueError: too steep\n'
    with pytest.raises(GatewayError) as failed:
        await asked(text.encode(), 400)
    assert failed.value.message == "failed: ValueError: too steep"
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, f"backend 'lab' at host:1: {text!r}")


async def test_an_error_that_is_nothing_but_a_traceback_still_says_something() -> None:
    with pytest.raises(GatewayError, match="the backend's error was only a traceback"):
        await asked(b'Traceback:\n  File "/a.py", line 1', 400)


@pytest.mark.parametrize(
    ("of_message", "of_codec", "expected"),
    [(None, None, None), (5.0, None, 5.0), (None, 7.0, 7.0), (5.0, 7.0, 5.0), (7.0, 5.0, 5.0)],
)
def test_a_request_tells_how_it_came(of_message: float | None, of_codec: float | None, expected: float | None) -> None:
    headers = Headers([(b"x-tenant", b"t")])
    sent = Message(parts=(b"infer",), headers=headers, peer="192.0.2.1:4242", deadline=of_message)
    reads_deadline = replace(TOY, decode_request=lambda *given: replace(TOY.decode_request(*given), deadline=of_codec))
    request = decoded(sent, reads_deadline, LISTENER)
    assert (request.listener, request.protocol) == ("http", "toy")
    assert (request.headers, request.peer, request.deadline) == (headers, "192.0.2.1:4242", expected)


@pytest.mark.parametrize(("status", "closed"), [(500, True), (200, False)])
async def test_a_connection_that_its_server_will_close_is_not_used_again(status: int, closed: bool) -> None:
    found: list[bool] = []

    class Closing(Wire):
        async def exchange(self, message: Message) -> Message:
            return ReplyMessage(status=status, parts=(b"True",), close=lambda: found.append(True))

    form = replace(TOY, traits=Traits(servers=Servers(unannounced_ends=frozenset({500}))))
    with suppress(GatewayError):
        await ask(Request(Operation.LIVE), form, Closing(), TARGET)
    assert bool(found) is closed


@pytest.mark.parametrize(("form", "sent"), [(HttpBinding(), b"a"), (GrpcBinding(), b"a"), (MIP.binding, None)])
async def test_headers_are_forwarded_where_the_wire_has_them(form: TransportBinding, sent: bytes | None) -> None:
    wire = Wire()
    wire.answers_at_once = True
    request = Request(Operation.INFER, "m", headers=Headers([(b"x-team", b"a")]))
    await ask(request, replace(TOY, binding=form), wire, replace(TARGET, forward_headers=("x-team",)))
    assert dict(wire.sent[0].headers.raw).get(b"x-team") == sent


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(b"7", 7.0), (b"", None), (b"-1", None), (b"Fri, 31 Dec 1999 23:59:59 GMT", None), (b"9" * 10, None)],
)
async def test_when_a_backend_says_to_try_again_is_passed_on(written: bytes, seconds: float | None) -> None:
    with pytest.raises(GatewayError) as failed:
        await asked(b"full", 400, Headers([(b"retry-after", written)] if written else []))
    assert failed.value.retry_after == seconds


async def test_a_deadline_of_the_transports_own_tells_how_long_the_call_waited() -> None:
    """It was not sent, so the client may try again."""

    async def waits(request: Request) -> Answer:
        note_wait(2, 0.5)
        raise TransportError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, "no connection within 1 s", sent=False)

    errors: list[GatewayError] = []

    def encode_error(error: GatewayError, *more: object) -> Message:
        errors.append(error)
        return Message(status=504)

    toy = replace(TOY, encode_error=encode_error)
    reply = answer(message(), toy, LISTENER, to(waits))
    assert inspect.isawaitable(reply)
    await reply
    [error] = errors
    assert str(error) == error.message == "no connection within 1 s, after 0.50 s of waiting for a free slot"
    assert error.retry_after == LATER


async def test_only_the_reply_to_a_call_that_waited_tells_of_it() -> None:
    async def waited(request: Request) -> Answer:
        note_wait(3, 1.5)
        note_wait(1, 0.25)  # another try, in another queue
        return Response(id="late")

    async def fails(request: Request) -> Answer:
        note_wait(2, 0.5)
        raise refusal(Reason.OVERLOADED, "full")

    async def at_once(request: Request) -> Answer:
        return Response(id="soon")

    told = []
    for handler in (waited, at_once, fails, at_once):  # all in one task
        reply = answer(message(), TOY, LISTENER, to(handler))
        assert not isinstance(reply, Message)
        told.append([(name, text) for name, text in (await reply).headers if "queue" in name])
    assert told == [
        [("gateway-queue-place", "3"), ("gateway-queue-seconds", "1.750")],
        [],
        [("gateway-queue-place", "2"), ("gateway-queue-seconds", "0.500")],
        [],
    ]
