"""The deadlines of the calls of one connection."""

import asyncio
from typing import Any, cast

import pytest

from gateway.core.http2.connection import Stream
from gateway.transports.grpc.server.call_deadlines import CallDeadlines

LOOPS = {"asyncio": asyncio.new_event_loop}
"""One: its line stands in the log once a minute."""


class DueCall:
    """A call that is due, and is not any more once it was rung."""

    def __init__(self, error: Exception | None = None) -> None:
        self.due: float | None = asyncio.get_running_loop().time()
        self.rung = asyncio.Event()
        self._error = error

    def ring(self) -> None:
        self.due = None
        self.rung.set()
        if self._error is not None:
            raise self._error


class HeldCall:
    """What the deadlines see of a stream."""

    def __init__(self, call: DueCall) -> None:
        self.handler: Any = call


async def test_a_call_that_fails_when_it_is_rung_does_not_keep_others_from_being_rung(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = [DueCall(ValueError("the fault")), DueCall()]
    streams = {number: cast(Stream, HeldCall(call)) for number, call in enumerate(calls)}
    deadlines = CallDeadlines(asyncio.get_running_loop(), streams)
    deadlines.ring_at(asyncio.get_running_loop().time())
    await calls[1].rung.wait()
    assert calls[0].rung.is_set()
    assert "unexpected error in telling a gRPC call that it is due; everything else continues" in caplog.text
    later = DueCall()
    streams[2] = cast(Stream, HeldCall(later))
    deadlines.ring_at(asyncio.get_running_loop().time())
    await later.rung.wait()
    deadlines.stop()
