"""Calls in the payload log, whatever fails while they are logged."""

import asyncio
from collections.abc import AsyncGenerator

import numpy as np
import pytest

from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.record import Record
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import tensor
from gateway.core.transport import Destination
from gateway.observing.payload_log.calls import PayloadLog, TensorNames
from gateway.observing.payload_log.copies import CopyBounds, KnownTensors
from gateway.observing.payload_log.events import Entry, LoggedReply, LoggedRequest
from gateway.observing.payload_log.queue import EntryQueue, PayloadLogCounts
from tests.observing.payload_log.logged import FakeSink

X = tensor("", np.array([1.0]))
Y = tensor("y", np.array([2.0]))


class Log(PayloadLog):
    """A log, and what its sink has."""

    def __init__(self, room: int = 100_000, hide: tuple[str, ...] = ()) -> None:
        self.sink = FakeSink()
        super().__init__(EntryQueue(self.sink, room, PayloadLogCounts()), 1, CopyBounds(1000, hide))

    async def call(self, names: TensorNames) -> None:
        """Log one call whose input has no name."""
        request = Request(Operation.INFER, "m", inputs=(X,), record=Record("in"))
        destination = self.logged(request, Destination(answered), names)
        assert destination.handler is not None
        await destination.handler(request)
        request.record.end(200, 1)

    @property
    def entries(self) -> list[Entry]:
        return [entry for batch in self.sink.batches for entry in batch]

    def names(self) -> list[str]:
        """The names of all tensors, in order."""
        return [each.name for entry in self.entries if entry.message is not None for each in entry.message.tensors]


async def answered(request: Request) -> Answer:
    return Response((Y,))


async def found(request: Request) -> KnownTensors:
    return KnownTensors(positions=("theta",))


async def fails(request: Request) -> KnownTensors:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (TensorNames(find=found), ["theta", "y"]),
        (TensorNames(find=fails), ["input0", "y"]),
        (TensorNames(), ["input0", "y"]),
    ],
    ids=["known", "a server that does not tell", "nobody to ask"],
)
async def test_an_input_without_a_name_has_that_of_the_model_or_its_number(names: TensorNames, told: list[str]) -> None:
    log = Log()
    await log.call(names)
    await log.stop(5)
    assert log.names() == told


async def test_the_end_waits_for_names_that_are_being_found() -> None:
    asked, known = asyncio.Event(), asyncio.Event()

    async def find(request: Request) -> KnownTensors:
        asked.set()
        await known.wait()
        return await found(request)

    log = Log()
    await log.call(TensorNames(find=find))
    await asked.wait()
    stopping = asyncio.ensure_future(log.stop(60))
    asyncio.get_running_loop().call_soon(known.set)
    await stopping
    assert log.names() == ["theta", "y"]


async def test_a_fault_in_the_names_costs_the_entries_and_not_their_room() -> None:
    async def wrong(request: Request) -> KnownTensors:
        return None  # type: ignore[return-value]

    log = Log()
    await log.call(TensorNames(find=wrong))
    await log.stop(5)
    assert (log.entries, log.queue.counts.dropped, log.queue.held) == ([], 2, 0)


async def three(request: Request) -> AsyncGenerator[Response, None]:
    for _ in range(3):
        yield Response((Y,))


async def streamed(log: Log, names: TensorNames = TensorNames()) -> int:  # noqa: B008 - it is frozen
    """Log one stream. Return the number of responses that the client gets."""
    request = Request(Operation.STREAM, "m", inputs=(replace(X, name="x"),), record=Record("in"))
    destination = log.logged(request, Destination(stream=three), names)
    assert destination.stream is not None
    count = len([each async for each in destination.stream(request)])
    request.record.end(200, 1)
    await log.stop(5)
    return count


async def test_a_fault_in_the_log_does_not_end_a_stream() -> None:
    def fault(name: str) -> str:
        raise ZeroDivisionError

    log = Log(hide=("z",))
    assert await streamed(log, TensorNames(outputs=fault)) == 3
    assert [type(each) for each in log.entries] == [LoggedRequest]


@pytest.mark.parametrize(("room", "kinds"), [(100_000, [LoggedRequest, *[LoggedReply] * 3]), (10, [])])
async def test_replies_of_a_stream_whose_request_had_no_room_are_left_out(room: int, kinds: list[type]) -> None:
    log = Log(room)
    assert await streamed(log) == 3
    assert [type(each) for each in log.entries] == kinds
    assert log.queue.counts.dropped == (0 if kinds else 2)
