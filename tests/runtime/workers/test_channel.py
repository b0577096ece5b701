"""Messages between the supervisor and a worker, over a real pair of sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.core.errors import GatewayError, Reason, Status, TransportError, refusal
from gateway.runtime.workers.channel import Channel, ChannelClosedError
from tests.limits import until

GENEROUS = 20


@asynccontextmanager
async def joined(handlers: dict[str, Callable[..., Any]]) -> AsyncIterator[Channel]:
    """One end of a channel whose other end has these handlers."""
    loop = asyncio.get_running_loop()
    ends = socket.socketpair()
    channels = Channel({}, lambda: None), Channel(handlers, lambda: None)
    for end, channel in zip(ends, channels, strict=True):
        end.setblocking(False)
        await loop.create_unix_connection(lambda channel=channel: channel, sock=end)  # type: ignore[misc]
    try:
        async with asyncio.timeout(GENEROUS):
            yield channels[0]
    finally:
        for channel in channels:
            channel.close()


async def test_a_wait_that_is_cancelled_before_it_has_begun_is_answered() -> None:
    """Both messages arrive in one read."""
    begun = []

    async def wait() -> None:
        begun.append("wait")
        await asyncio.Event().wait()

    async with joined({"wait": wait, "ping": lambda: "pong"}) as channel:
        for _ in range(3):
            channel.ask("wait").cancel()
        assert await channel.ask("ping") == "pong"
        await until(lambda: not channel.unanswered, 0)
        assert begun == []


async def test_a_wait_that_is_cancelled_later_ends_and_is_answered() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with joined({"wait": wait}) as channel:
        asked = channel.ask("wait")
        await begun.wait()
        asked.cancel()
        await ended.wait()
        await until(lambda: not channel.unanswered, 0)


async def test_messages_behind_one_that_cannot_be_handled_are_read(caplog: pytest.LogCaptureFixture) -> None:
    """What is done with an answer that nobody claims fails."""

    async def late() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return ""

    def fail(answer: str) -> None:
        raise ValueError(f"the fault: {answer}")

    async with joined({"late": late, "ping": lambda: "pong"}) as channel:
        asked = channel.ask("late", unclaimed=fail)
        assert await channel.ask("ping") == "pong"  # `late` has begun
        asked.cancel()
        await until(lambda: not channel.unanswered, 0)
        assert await channel.ask("ping") == "pong"
    assert "the fault: late" in caplog.text


async def test_a_message_that_arrives_in_parts_is_read_whole() -> None:
    async with joined({"size": len}) as channel:
        assert await channel.ask("size", bytes(3_000_000)) == 3_000_000


FAILURES: list[tuple[Exception, GatewayError]] = [
    (unreachable := TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "gone", sent=True), unreachable),
    (refused := refusal(Reason.OVERLOADED, "full", retry_after=2.0), refused),
    (ValueError("secret"), GatewayError(Status.INTERNAL, Reason.INTERNAL, "the gateway failed; its log says why")),
]


@pytest.mark.parametrize("is_later", [False, True])
@pytest.mark.parametrize(("error", "told"), FAILURES, ids=["unreachable", "refused", "unexpected"])
async def test_an_error_reaches_the_other_end_and_an_unexpected_one_only_the_log(
    error: Exception, told: GatewayError, is_later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    async def fail_later() -> None:
        fail()

    async with joined({"fail": fail_later if is_later else fail, "ping": lambda: "pong"}) as channel:
        channel.tell("fail")  # nobody waits for its end
        with pytest.raises(type(told)) as caught:
            await channel.ask("fail")
        assert await channel.ask("ping") == "pong"
    assert vars(caught.value) == vars(told)
    assert caplog.text.count("ValueError: secret") == (2 if told is not error else 0)


async def test_an_answer_to_a_call_that_has_left_is_dropped_if_nobody_claims_it() -> None:
    async with joined({"ping": lambda: "pong", "last": lambda: "last"}) as channel:
        channel.ask("ping").cancel()
        assert await channel.ask("last") == "last"
        assert not channel.unanswered


async def test_before_the_ends_are_connected_every_message_fails() -> None:
    channel = Channel({}, lambda: None)
    channel.tell("ping")
    with pytest.raises(ChannelClosedError):
        await channel.ask("ping")
    channel.close()
    assert not channel.unanswered
