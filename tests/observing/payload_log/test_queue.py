"""The queue: bounded by bytes, whatever its sink does; what is lost is counted and told once."""

import logging

import pytest

from gateway.observing.payload_log.events import Entry
from gateway.observing.payload_log.queue import MOST_AT_ONCE, EntryQueue, PayloadLogCounts
from tests.observing.payload_log.logged import REPLY, REQUEST, FakeSink

PAIR: list[Entry] = [REQUEST, REPLY]
SIZE = REQUEST.held + REPLY.held


def queue(sink: FakeSink, pairs: float = 10) -> EntryQueue:
    return EntryQueue(sink, int(pairs * SIZE), PayloadLogCounts())


def offer(into: EntryQueue) -> bool:
    """As PayloadLog does."""
    if not into.reserve(SIZE):
        into.drop(2)
        return False
    into.add(PAIR)
    return True


async def test_entries_are_sent_in_order_and_their_room_is_free_again() -> None:
    sink = FakeSink()
    entries = queue(sink)
    offer(entries)
    offer(entries)
    await entries.flush()
    assert [list(each) for each in sink.batches] == [[*PAIR, *PAIR]]
    assert (entries.counts.sent, entries.counts.dropped, entries.held) == (4, 0, 0)


async def test_a_sink_that_hangs_costs_entries_and_no_more_bytes(caplog: pytest.LogCaptureFixture) -> None:
    sink = FakeSink()
    sink.goes_on.clear()
    entries = queue(sink, pairs=3.5)
    entries.start()
    assert offer(entries)
    await sink.began.wait()
    assert [offer(entries) for _ in range(100)] == [True, True, *[False] * 98]
    assert entries.held == 3 * SIZE  # those being sent included
    assert entries.counts.dropped == 196
    assert caplog.text.count("dropping requests and replies") == 1
    await entries.stop(0.01)
    assert entries.counts.dropped == 196 + 6
    assert sink.closed == 1
    assert "the receiver did not take the last requests and replies within 0.01 s" in caplog.text


async def test_entries_that_the_sink_does_not_take_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    sink = FakeSink()
    sink.lost = 1
    entries = queue(sink)
    for _ in range(3):
        offer(entries)
        await entries.flush()
    assert (entries.counts.sent, entries.counts.dropped, entries.held) == (3, 3, 0)
    assert caplog.text.count("payload log: lost 1 requests and replies: it says no") == 1


async def test_a_fault_in_a_sink_loses_a_batch_and_not_the_log(caplog: pytest.LogCaptureFixture) -> None:
    sink = FakeSink()
    sink.error = ZeroDivisionError("fault")
    entries = queue(sink)
    entries.start()
    offer(entries)
    await entries.flush()
    sink.error = None
    offer(entries)
    await entries.flush()
    await entries.stop(1)
    assert (entries.counts.sent, entries.counts.dropped, entries.held) == (2, 2, 0)
    assert [each.levelno for each in caplog.records if "failed" in each.message] == [logging.ERROR]


async def test_a_batch_is_bounded_by_bytes() -> None:
    sink = FakeSink()
    number = MOST_AT_ONCE // SIZE + 10
    entries = queue(sink, pairs=2 * number)
    for _ in range(number):
        offer(entries)
    await entries.flush()
    assert [sum(each.held for each in batch) <= MOST_AT_ONCE for batch in sink.batches] == [True, True]


async def test_what_waits_at_the_end_is_sent() -> None:
    sink = FakeSink()
    entries = queue(sink)
    entries.start()
    offer(entries)
    await entries.stop(5)
    assert entries.counts.sent == 2
    assert sink.closed == 1
    await entries.stop(5)  # the first call was cancelled, say
    assert (entries.counts.sent, sink.closed) == (2, 1)
