import asyncio
from typing import Any

import pytest

from gateway.core.errors import Status
from gateway.core.messages import Headers, Message
from gateway.core.protocol import Limits, Protocol
from gateway.transports.grpc.server import calls
from tests.skipping_loop import ON_ASYNCIO, skip
from tests.transports.grpc.toy import ECHO, SMALL, Held, channel, client, code, failed, failure, listening


class Seen:
    """An exchange that keeps what it was asked."""

    def __init__(self, reply: Message | None = None) -> None:
        self.messages: list[tuple[Message, Protocol]] = []
        self.reply = reply or Message()

    def __call__(self, message: Message, protocol: Protocol) -> Message:
        self.messages.append((message, protocol))
        return self.reply

    @property
    def message(self) -> Message:
        ((message, _),) = self.messages
        return message


async def test_a_call_is_a_message_of_its_method() -> None:
    seen = Seen()
    async with listening(seen) as listener, channel(listener.address) as made:
        before = asyncio.get_running_loop().time()
        await made.unary_unary(ECHO)(b"body")
        message = seen.message
        assert (message.method, message.path, message.pattern, message.captures) == (ECHO, ECHO, ECHO, {})
        assert message.parts == (b"body",)
        assert before <= message.received <= asyncio.get_running_loop().time()
        assert message.deadline is None
        host, _, port = message.peer.rpartition(":")
        assert host == "127.0.0.1"
        assert 0 < int(port) < 65536
        assert message.peer != listener.address


async def test_each_method_goes_to_its_own_protocol() -> None:
    seen = Seen()
    async with client(seen) as made:
        for method in (ECHO, "/other.Other/Echo", "/other.Other/More"):
            await made.unary_unary(method)(b"")
    served = {message.path: protocol.name for message, protocol in seen.messages}
    assert served == {ECHO: "toy", "/other.Other/Echo": "other", "/other.Other/More": "other"}


async def test_metadata_are_headers() -> None:
    seen = Seen()
    async with client(seen) as made:
        sent = (("some", "text"), ("many", "1"), ("many", "2"), ("some-bin", b"\x00\xff"))
        await made.unary_unary(ECHO)(b"", metadata=sent)
    headers = seen.message.headers
    assert headers.get("some") == "text"
    assert headers.all("many") == ["1", "2"]
    assert (b"some-bin", b"\x00\xff") in headers.raw
    assert headers.get("absent", "default") == "default"


async def test_a_deadline_is_on_the_loops_clock() -> None:
    seen = Seen()
    async with client(seen) as made:
        await made.unary_unary(ECHO)(b"", timeout=1000)
    assert seen.message.deadline is not None
    # gRPC rounds what it sends up, to a unit of its choice
    assert 900 < seen.message.deadline - seen.message.received < 1100


@pytest.mark.parametrize(
    ("parts", "body"),
    [
        ((), b""),
        ((b"one",), b"one"),
        ((memoryview(b"one"),), b"one"),
        ((b"one", bytearray(b"two"), memoryview(b"three")), b"onetwothree"),
    ],
)
async def test_a_reply_is_its_parts_in_one(parts: tuple[Any, ...], body: bytes) -> None:
    async with client(Seen(Message(parts=parts))) as made:
        assert await made.unary_unary(ECHO)(b"") == body


async def test_a_reply_may_take_its_time() -> None:
    held = Held()
    async with client(held) as made:
        call = made.unary_unary(ECHO)(b"body")
        await held.asked.get()
        held.go.set()
        assert await call == b"body"


async def test_headers_of_a_reply_are_trailing_metadata() -> None:
    reply = Message(headers=Headers(((b"Some", b"text"), (b"some-bin", b"\x00\xff"))))
    async with client(Seen(reply)) as made:
        call = made.unary_unary(ECHO)(b"")
        await call
        assert tuple(await call.trailing_metadata()) == (("some", "text"), ("some-bin", b"\x00\xff"))


async def test_a_status_ends_the_call_with_its_text_and_headers() -> None:
    reply = failure(Status.NOT_FOUND, "unknown model 'é'", (b"gateway-reason", b"model-not-found"))
    async with client(Seen(reply)) as made:
        error = await failed(made.unary_unary(ECHO)(b""))
    assert (code(error), error.details()) == (Status.NOT_FOUND, "unknown model 'é'")
    assert tuple(error.trailing_metadata()) == (("gateway-reason", "model-not-found"),)


@pytest.mark.parametrize("given", [*filter(None, Status), 99])
async def test_a_status_is_grpcs_own_or_unknown(given: int) -> None:
    async with client(Seen(failure(given, "why"))) as made:
        assert code(await failed(made.unary_unary(ECHO)(b""))) == (Status.UNKNOWN if given == 99 else given)


async def test_headers_that_grpc_cannot_carry_do_not_break_the_reply() -> None:
    illegal = ((b"grpc-status", b"0"), (b"two words", b"x"), (b"line", b"a\nb"), (b"latin", b"\xe9"), (b"te", b"x"))
    reply = failure(Status.ABORTED, "why", *illegal, (b"legal", b"x"))
    async with client(Seen(reply)) as made:
        error = await failed(made.unary_unary(ECHO)(b""))
    assert code(error) is Status.ABORTED
    assert tuple(error.trailing_metadata()) == (("legal", "x"),)


@pytest.mark.parametrize("method", ["/toy.Toy/Nothing", "/no.Such/Echo", "/", "/toy.Toy/Echo/"])
async def test_an_unknown_method_is_named(method: str) -> None:
    async with client() as made:
        error = await failed(made.unary_unary(method)(b"x" * 10))
    assert code(error) is Status.UNIMPLEMENTED
    assert error.details() == f"no method {method} here; this listener speaks toy, other"


async def test_what_fails_unexpectedly_is_refused_in_the_protocols_form_without_a_word_of_it() -> None:
    def broken(message: Message, protocol: Protocol) -> Message:
        raise RuntimeError("secret")

    async with client(broken) as made:
        error = await failed(made.unary_unary("/other.Other/Echo")(b""))
    assert code(error) is Status.INTERNAL
    assert error.details() == "other: the gateway failed on this request; its log says why"


async def test_a_client_that_cancels_cancels_the_exchange() -> None:
    held = Held()
    async with client(held) as made:
        call = made.unary_unary(ECHO)(b"")
        await held.asked.get()
        call.cancel()
        await held.cancelled.wait()


@ON_ASYNCIO
async def test_a_deadline_that_passes_cancels_the_exchange() -> None:
    held = Held()
    async with client(held) as made:
        call = made.unary_unary(ECHO)(b"", timeout=30)
        await held.asked.get()
        await skip(60)
        assert code(await failed(call)) is Status.DEADLINE_EXCEEDED
        await held.cancelled.wait()


@ON_ASYNCIO
async def test_an_exchange_has_some_time_after_its_deadline_also_in_a_loop_that_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time begins when the loop finds that the deadline has passed."""
    monkeypatch.setattr(calls, "_GRACE", 100.0)
    held = Held()
    async with client(held) as made:
        call = made.unary_unary(ECHO)(b"late", timeout=30)
        await held.asked.get()
        await skip(180)
        await skip(1)  # longer than the connection waits to look again
        held.go.set()
        assert await call == b"late"


async def test_calls_of_one_connection_run_at_once() -> None:
    held = Held()
    async with client(held) as made:
        calls = [made.unary_unary(ECHO)(b"%d" % number) for number in range(50)]
        asked = [await held.asked.get() for _ in calls]
        assert sorted(bytes(message.body) for message in asked) == sorted(b"%d" % number for number in range(50))
        held.go.set()
        assert [await call for call in calls] == [b"%d" % number for number in range(50)]


async def test_the_largest_message_is_the_limit() -> None:
    async with client(limits=Limits(message=5000)) as made:
        assert await made.unary_unary(ECHO)(bytes(5000)) == bytes(5000)
        error = await failed(made.unary_unary(ECHO)(bytes(5001)))
    assert code(error) is Status.RESOURCE_EXHAUSTED
    text = "the message of 5001 bytes is larger than limits.message, 5000 bytes; send less, or raise the limit"
    assert error.details() == text


async def test_a_reply_may_be_larger_than_what_is_received() -> None:
    async with client(Seen(Message(parts=(bytes(20_000_000),))), limits=Limits(message=5000)) as made:
        assert len(await made.unary_unary(ECHO)(b"")) == 20_000_000


async def test_metadata_beyond_the_limit_are_refused() -> None:
    async with client(limits=SMALL) as made:
        error = await failed(made.unary_unary(ECHO)(b"", metadata=(("some", "x" * SMALL.headers),)))
        assert code(error) is Status.RESOURCE_EXHAUSTED
        assert await made.unary_unary(ECHO)(b"", metadata=(("some", "x" * 9000),)) == b""
