"""Requests that have ended reach all who read their Records: soon, in order, and once."""

import asyncio

import pytest

from gateway.core.record import Record
from gateway.observing.batches import Batch
from gateway.observing.finished import BATCH, FinishedRecords
from tests import records


def ended(finished: FinishedRecords, id: str = "x") -> Record:
    record = records.made([finished.add], id, "http", "v2-rest", "h:1", 0.0, 0)
    record.end(200, 0)
    return record


async def test_a_batch_is_handed_over_when_it_is_full() -> None:
    finished, read = FinishedRecords(), list[Record]()
    finished.readers.append(lambda batch: read.extend(batch.records))
    records = [ended(finished, f"n{number}") for number in range(BATCH + 3)]
    await asyncio.sleep(0)
    assert read == records[:BATCH]
    finished.flush()
    assert read == records
    finished.flush()
    assert read == records


async def test_a_record_is_handed_over_soon_without_further_requests() -> None:
    finished, read = FinishedRecords(), asyncio.get_running_loop().create_future()
    finished.readers.append(read.set_result)
    record = ended(finished)
    async with asyncio.timeout(20):
        assert (await read).records == [record]


async def test_what_comes_after_a_full_batch_does_not_wait_longer() -> None:
    finished, read = FinishedRecords(), asyncio.Queue[Batch]()
    finished.readers.append(read.put_nowait)
    for _ in range(2):
        records = [ended(finished) for _ in range(BATCH + 1)]
        async with asyncio.timeout(20):
            assert [(await read.get()).records, (await read.get()).records] == [records[:BATCH], records[BATCH:]]


async def test_readers_of_a_full_batch_read_in_different_turns_of_the_loop() -> None:
    finished, read = FinishedRecords(), list[str]()
    finished.readers += [lambda batch: read.append("first"), lambda batch: read.append("second")]
    for _ in range(BATCH):
        ended(finished)
    turns = []
    for _ in range(3):
        await asyncio.sleep(0)
        turns.append(list(read))
    assert turns == [["first"], ["first", "second"], ["first", "second"]]


async def test_one_reader_reads_in_a_turn_of_the_loop_however_many_batches_were_full_before() -> None:
    finished, read = FinishedRecords(), list[str]()
    finished.readers += [lambda batch: read.append("first"), lambda batch: read.append("second")]
    for _ in range(3 * BATCH):
        ended(finished)
    assert read == ["first", "second"] * 2  # the last batch is left
    turns = []
    for _ in range(2):
        await asyncio.sleep(0)
        turns.append(read[4:])
    assert turns == [["first"], ["first", "second"]]


async def test_records_that_end_while_a_full_batch_is_read_are_in_later_batches() -> None:
    finished, read = FinishedRecords(), list[int]()
    later = iter(range(BATCH + 7))

    def reader(batch: Batch) -> None:
        read.append(len(batch))
        for _ in later:
            ended(finished)

    finished.readers.append(reader)
    for _ in range(2 * BATCH):
        ended(finished)
    finished.flush()
    assert read == [BATCH, BATCH, BATCH, 7]


async def test_an_error_in_making_a_batch_is_logged_and_reaches_no_request(caplog: pytest.LogCaptureFixture) -> None:
    finished, read = FinishedRecords(), list[Record]()
    finished.readers.append(lambda batch: read.extend(batch.records))
    ended(finished).retries = "several"  # type: ignore[assignment]
    for _ in range(BATCH - 1):
        ended(finished)
    assert f"{BATCH} requests that have ended are not counted and not logged" in caplog.text
    record = ended(finished)
    finished.flush()
    assert read == [record]


async def test_what_was_not_read_yet_is_read_before_what_comes_after_it() -> None:
    finished, first, second = FinishedRecords(), list[Record](), list[Record]()
    finished.readers += [lambda batch: first.extend(batch.records), lambda batch: second.extend(batch.records)]
    records = [ended(finished) for _ in range(2 * BATCH)]  # in one turn of the loop
    assert first == second == records[:BATCH]
    await asyncio.sleep(0)
    records.append(ended(finished))
    finished.flush()
    assert first == second == records


async def test_a_reader_that_fails_spoils_nothing_for_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def fail(batch: Batch) -> None:
        raise ZeroDivisionError

    finished, read = FinishedRecords(), list[Record]()
    finished.readers += [fail, lambda batch: read.extend(batch.records)]
    record = ended(finished)
    finished.flush()
    assert read == [record]
    assert "a reader of requests that have ended failed" in caplog.text
