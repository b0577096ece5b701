"""Requests that have ended reach all who are told of them: soon, in order, and once."""

import asyncio

import pytest

from gateway.core.errors import not_found
from gateway.core.record import Record
from gateway.observing.batches import UPSTREAM, Batch
from gateway.observing.finished import BATCH, FinishedRecords
from tests import records
from tests.limits import GENEROUS


def ended(finished: FinishedRecords, id: str = "x", *, fails: bool = False) -> Record:
    record = records.made([finished.add], id, "http", "v2-rest", "h:1", 0.0, 0)
    if fails:
        record.failed(not_found("no such model"))
    record.end(200, 0)
    return record


def with_reader() -> tuple[FinishedRecords, list[str]]:
    """Those whose ids are read into a list, and the list."""
    finished, read = FinishedRecords(), list[str]()
    finished.readers.append(lambda batch: read.extend(batch.ids))
    return finished, read


async def test_a_batch_is_handed_over_when_it_is_full() -> None:
    finished, read = with_reader()
    ids = [ended(finished, f"n{number}", fails=number % 3 == 0).id for number in range(BATCH + 3)]
    await asyncio.sleep(0)
    assert read == ids[:BATCH]
    finished.flush()
    assert read == ids
    finished.flush()
    assert read == ids


async def test_a_record_is_handed_over_soon_without_further_requests() -> None:
    finished, read = FinishedRecords(), asyncio.get_running_loop().create_future()
    finished.readers.append(read.set_result)
    ended(finished, "n0")
    async with asyncio.timeout(GENEROUS):
        assert list((await read).ids) == ["n0"]


async def test_what_comes_after_a_full_batch_does_not_wait_longer() -> None:
    finished, read = FinishedRecords(), asyncio.Queue[Batch]()
    finished.readers.append(read.put_nowait)
    for turn in range(2):
        ids = [ended(finished, f"{turn}-{number}").id for number in range(BATCH + 1)]
        async with asyncio.timeout(GENEROUS):
            assert [list((await read.get()).ids), list((await read.get()).ids)] == [ids[:BATCH], ids[BATCH:]]


async def test_the_time_at_the_server_that_is_noted_after_a_client_has_left_is_told() -> None:
    finished, read = FinishedRecords(), list[float]()
    finished.readers.append(lambda batch: read.extend(batch.numbers[UPSTREAM]))
    record = records.made([finished.add], "x", "http", "v2-rest", "h:1", 0.0, 0)
    record.give_up(499)
    record.upstream = 0.25
    finished.flush()
    assert read == [0.25]


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
    finished, read = with_reader()
    wrong = records.made([finished.add])
    wrong.retries = "several"  # type: ignore[assignment]
    wrong.end(200, 0)
    for _ in range(BATCH - 1):
        ended(finished)
    assert f"metrics and logs lack {BATCH} finished requests" in caplog.text
    ended(finished, "next")
    finished.flush()
    assert read == ["next"]


async def test_what_was_not_read_yet_is_read_before_what_comes_after_it() -> None:
    finished, first, second = FinishedRecords(), list[str](), list[str]()
    finished.readers += [lambda batch: first.extend(batch.ids), lambda batch: second.extend(batch.ids)]
    ids = [ended(finished, str(number)).id for number in range(2 * BATCH)]  # in one turn of the loop
    assert first == second == ids[:BATCH]
    await asyncio.sleep(0)
    ids.append(ended(finished, "last").id)
    finished.flush()
    assert first == second == ids


async def test_a_reader_that_fails_spoils_nothing_for_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def fail(batch: Batch) -> None:
        raise ZeroDivisionError

    finished, read = with_reader()
    finished.readers.insert(0, fail)
    ended(finished, "next")
    finished.flush()
    assert read == ["next"]
    assert "a reader of finished requests failed" in caplog.text
