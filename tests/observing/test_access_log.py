"""The access log: what is sampled, when lines are written, and what happens when they cannot be."""

import asyncio
import json
import os
import resource
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.core.errors import not_found
from gateway.core.record import Record
from gateway.observing import access_log, writer
from gateway.observing.access_lines import json_lines
from gateway.observing.access_log import AccessLog
from gateway.observing.writer import LineWriter
from tests import records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


def ended(*, fails: bool = False, id: str = "x") -> Record:
    told = records.made((), id, "http", "v2-rest", "h:1", 0.0, 0)
    if fails:
        told.failed(not_found("no such model"))
    told.end(404 if fails else 200, 0)
    return told


def lines(path: Path) -> Iterator[dict[str, object]]:
    yield from map(json.loads, path.read_text().splitlines())


async def test_every_request_has_a_line_when_the_log_is_closed(path: Path) -> None:
    log = AccessLog(LineWriter(str(path)), json_lines)
    log.write(records.batch(ended(id="n0"), ended(id="n1")))
    log.write(records.batch(ended(id="n2")))
    log.close()
    assert [each["id"] for each in lines(path)] == ["n0", "n1", "n2"]


async def test_lines_are_written_soon_without_further_requests(path: Path) -> None:
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    log = AccessLog(LineWriter(str(path)), json_lines)
    log.write(records.batch(ended(id="one")))
    log.write(records.batch(ended(id="two")))
    read = await asyncio.to_thread(os.read, reader, 4096)
    assert [json.loads(line)["id"] for line in read.splitlines()] == ["one", "two"]
    log.close()
    os.close(reader)


async def test_many_lines_do_not_wait(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "MOST_COLLECTED", 500)
    log = AccessLog(LineWriter(str(path)), json_lines)
    log.write(records.batch(ended(id="one"), ended(id="two")))
    log.writer.close()  # writes what was handed over
    assert [each["id"] for each in lines(path)] == ["one", "two"]


async def test_sampling_leaves_out_successes_only(path: Path) -> None:
    log = AccessLog(LineWriter(str(path)), json_lines, sample=0.0)
    log.write(records.batch(ended(), ended(fails=True, id="failed"), ended()))
    log.close()
    assert [each["id"] for each in lines(path)] == ["failed"]


def probed(log: AccessLog, id: str, code: int = 200, reason: str = "", client: str = "10.0.0.1:1") -> None:
    told = records.made((), id, "http", "v2-rest", client, 0.0, 0)
    told.operation, told.reason = "ready", reason
    told.end(code, 0)
    log.write(records.batch(told))


@pytest.mark.parametrize("sample", [1.0, 0.0])
async def test_probes_have_a_line_when_their_outcome_changes(path: Path, sample: float) -> None:
    log = AccessLog(LineWriter(str(path)), json_lines, sample)
    outcomes = [("first", 200, ""), ("same", 200, ""), ("away", 503, ""), ("still away", 503, ""), ("again", 200, ""),
                ("not ready", 200, "not-ready")]  # fmt: skip
    for at, outcome in enumerate(outcomes):
        probed(log, *outcome, client=f"10.0.0.1:{at}")
    probed(log, "another client", client="10.0.0.2:1")
    log.close()
    assert [each["id"] for each in lines(path)] == ["first", "away", "again", "not ready", "another client"]


async def test_models_that_are_called_as_probes_are_not_left_out(path: Path) -> None:
    log = AccessLog(LineWriter(str(path)), json_lines)
    for _ in range(2):
        told = records.made((), "x", "http", "v2-rest", "10.0.0.1:1", 0.0, 0)
        records.route(told, "route-0").operation = "ready"
        told.end(200, 0)
        log.write(records.batch(told))
    log.close()
    assert len(list(lines(path))) == 2


async def test_half_of_the_successes_are_about_half(path: Path) -> None:
    log = AccessLog(LineWriter(str(path)), json_lines, sample=0.5)
    log.write(records.batch(*[ended() for _ in range(2000)]))
    log.close()
    assert 800 < len(list(lines(path))) < 1200


def test_a_file_that_was_renamed_is_opened_again(path: Path) -> None:
    lines = LineWriter(str(path))
    lines.write(b"one\n", 1)
    path_before = path.with_suffix(".1")
    while not path.read_bytes():
        pass
    path.rename(path_before)
    lines.reopen()
    lines.write(b"two\n", 1)
    lines.close()
    assert (path_before.read_bytes(), path.read_bytes()) == (b"one\n", b"two\n")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_reader_that_stands_still_costs_lines_and_no_time(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "MOST_WAITING", 10)
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    lines = LineWriter(str(path))
    full = b"x" * 2**20 + b"\n"
    for _ in range(20):  # the first one fills the pipe, and is never read
        lines.write(full, 1)
    assert lines.dropped == 10
    os.close(reader)
    lines.close()
    assert lines.dropped == 20  # nobody reads any more
    assert "lines of the access log dropped: 10; writing is too slow" in caplog.text


def test_a_disk_that_is_full_costs_lines(caplog: pytest.LogCaptureFixture) -> None:
    lines = LineWriter("/dev/full")
    lines.write(b"one\n", 1)
    lines.close()
    assert lines.dropped == 1
    assert "lines of the access log dropped: 1; No space left on device" in caplog.text


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk that is full behind so many bytes: a write takes what fits, and the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up_leaves_whole_lines(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = LineWriter(str(path))
    lines.write(b"one\n", 1)
    while not path.read_bytes():
        pass
    with files_of_at_most(10):
        lines.write(b"two\nthree\nfour\n", 3)
        while not lines.dropped:
            pass
    lines.write(b"five\n", 1)
    lines.close()
    assert path.read_bytes() == b"one\ntwo\nfive\n"
    assert lines.dropped == 2
    assert "lines of the access log dropped: 2; File too large" in caplog.text


def test_a_line_that_cannot_be_cut_off_is_ended(path: Path) -> None:
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    lines = LineWriter(str(path))
    lines.write(b"x" * 2**20 + b"\n", 1)
    while not select.select((reader,), (), ())[0]:
        pass
    os.close(reader)
    while not lines.dropped:
        pass
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as again:
        os.set_blocking(again.fileno(), True)
        lines.write(b"two\n", 1)
        lines.close()
        assert again.read().endswith(b"x\ntwo\n")
