"""The access log: its lines, and when they are written."""

import asyncio
import json
import os
import resource
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.core.errors import not_found
from gateway.core.record import Record
from gateway.observing import access_log, line_file
from gateway.observing.access_log import MOST_PROBES, AccessLog, coloured_lines, json_lines, text_lines, times
from gateway.observing.batches import Batch
from gateway.observing.line_file import LineWriter
from tests import records

TIME = "2026-01-02T03:04:05.678Z"
ENDED = 100.3125
SINCE = datetime.fromisoformat(TIME).timestamp() - ENDED
"""The Unix time at which the clock of the records was 0."""


def record(model: str = "m", *, fails: bool = False) -> Record:
    told = records.made((), "id-1", "http", "v2-rest", "10.0.0.1:5", 100.0, 200)
    records.route(told, "route-0", "b", "h:1", "mip")
    told.operation, told.model, told.principal = "infer", model, "team"
    told.tries, told.queued, told.upstream = 2, 0.0015, 0.25
    if fails:
        told.failed(not_found("no such model"))
    told.end(404 if fails else 200, 300)
    told.received, told.ended = ENDED - 0.3, ENDED
    return told


def test_a_json_line_has_every_field() -> None:
    line = json_lines(records.batch(record()), SINCE)
    assert line.endswith(b"}\n")
    assert json.loads(line) == {
        "time": TIME, "log": "access", "id": "id-1", "client": "10.0.0.1:5", "principal": "team", "listener": "http",
        "in_protocol": "v2-rest", "out_protocol": "mip", "operation": "infer", "model": "m", "route": "route-0",
        "backend": "b", "endpoint": "h:1", "tries": 2, "status": "OK", "reason": "", "code": 200, "bytes_in": 200,
        "bytes_out": 300, "queue_ms": 1.5, "upstream_ms": 250.0, "total_ms": 300.0,
    }  # fmt: skip


def test_a_text_line_is_read_from_left_to_right() -> None:
    assert text_lines(records.batch(record()), SINCE).decode() == (
        f"{TIME} access OK 200 operation=infer model=m listener=http in=v2-rest route=route-0 backend=b out=mip "
        "endpoint=h:1 principal=team client=10.0.0.1:5 queue=1.5ms tries=2 upstream=250.0ms total=300.0ms "
        "bytes=200/300 id=id-1\n"
    )


def test_a_line_has_what_a_cache_did_where_one_was_asked() -> None:
    hit, miss, other = record(), record(), record()
    hit.cache, miss.cache = "hit", "miss"
    lines = json_lines(records.batch(hit, miss, other), SINCE).splitlines()
    assert [json.loads(each).get("cache", "no member") for each in lines] == ["hit", "miss", "no member"]
    texts = text_lines(records.batch(hit, miss, other), SINCE).splitlines()
    assert [b" cache=hit " in texts[0], b" cache=miss " in texts[1], b"cache" in texts[2]] == [True, True, False]


def test_a_text_line_leaves_out_what_is_not_known() -> None:
    told = records.made((), "id-1", "http", "v2-rest", "", 100.0, 0)
    told.failed(not_found("no such path"))
    told.end(404, 10)
    told.received = told.ended = ENDED
    assert text_lines(records.batch(told), SINCE).decode() == (
        f"{TIME} access NOT_FOUND 404 reason=model-not-found listener=http in=v2-rest client= total=0.0ms bytes=0/10 "
        "id=id-1\n"
    )


def test_colours_tell_success_from_failure() -> None:
    assert b"\x1b[32mOK\x1b[0m" in coloured_lines(records.batch(record()), SINCE)
    assert b"\x1b[31mNOT_FOUND\x1b[0m" in coloured_lines(records.batch(record(fails=True)), SINCE)


def test_a_model_that_a_client_named_cannot_forge_a_line_or_a_field() -> None:
    for name in ("a\nb", "a status=OK", '"', "\x1b[2J", "é", "\ud800", "x" * 5000):
        text = text_lines(records.batch(record(name)), SINCE)
        members = json.loads(json_lines(records.batch(record(name)), SINCE))
        assert text.count(b"\n") == 1
        assert text.count(b" ") == text_lines(records.batch(record()), SINCE).count(b" ") + name.count(" ")
        assert b"\x1b" not in text
        assert len(text) < 700
        assert members["code"] == 200
        assert len(members["model"]) <= 256
    assert b"model='a status=OK'" in text_lines(records.batch(record("a status=OK")), SINCE)


def test_times_are_rfc_3339_with_milliseconds() -> None:
    ends = (0.25, 0.9994, 1.0, 1_700_000_000.25, 1_700_000_000.75, 1_700_000_001.0, 1_700_000_000.5)
    told = [record() for _ in ends]
    for each, seconds in zip(told, ends, strict=True):
        each.ended = seconds
    for text, seconds in zip(times(records.batch(*told), 0.0), ends, strict=True):
        read = datetime.fromisoformat(text)
        assert read.tzinfo is not None
        assert 0 <= (datetime.fromtimestamp(seconds, UTC) - read).total_seconds() < 0.001


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


def logged(path: Path, *batches: Batch, sample: float = 1.0) -> list[object]:
    """The ids of the requests that have lines."""
    log = AccessLog(LineWriter(str(path)), json_lines, sample)
    for each in batches:
        log.write(each)
    log.close()
    return [each["id"] for each in lines(path)]


async def test_every_request_has_a_line_when_the_log_is_closed(path: Path) -> None:
    batches = records.batch(ended(id="n0"), ended(id="n1")), records.batch(ended(id="n2"))
    assert logged(path, *batches) == ["n0", "n1", "n2"]


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
    assert logged(path, records.batch(ended(), ended(fails=True, id="failed"), ended()), sample=0.0) == ["failed"]


def probe(id: str, code: int = 200, reason: str = "", client: str = "10.0.0.1:1", route: str = "") -> Batch:
    told = records.route(records.made((), id, "http", "v2-rest", client, 0.0, 0), route)
    told.operation, told.reason = "ready", reason
    told.end(code, 0)
    return records.batch(told)


@pytest.mark.parametrize("sample", [1.0, 0.0])
async def test_probes_have_a_line_when_their_outcome_changes(path: Path, sample: float) -> None:
    outcomes = [("first", 200, ""), ("same", 200, ""), ("away", 503, ""), ("still away", 503, ""), ("again", 200, ""),
                ("not ready", 200, "not-ready")]  # fmt: skip
    probes = [probe(*outcome, client=f"10.0.0.1:{at}") for at, outcome in enumerate(outcomes)]
    found = logged(path, *probes, probe("another client", client="10.0.0.2:1"), sample=sample)
    assert found == ["first", "away", "again", "not ready", "another client"]


async def test_probes_of_many_clients_are_forgotten_and_told_once_more(path: Path) -> None:
    clients = [f"client-{number}:1" for number in range(MOST_PROBES)]
    probes = [probe(client, client=client) for client in [*clients, clients[0], "one more:1", clients[0]]]
    assert logged(path, *probes) == [*clients, "one more:1", clients[0]]


async def test_models_that_are_called_as_probes_are_not_left_out(path: Path) -> None:
    assert logged(path, *(probe("x", route="route-0") for _ in range(2))) == ["x", "x"]


async def test_half_of_the_successes_are_about_half(path: Path) -> None:
    assert 800 < len(logged(path, records.batch(*[ended() for _ in range(2000)]), sample=0.5)) < 1200


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
    monkeypatch.setattr(line_file, "MOST_WAITING", 10)
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


def test_a_pipe_that_another_process_made_non_blocking_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write, bytes(4096))
    waited = []

    def wait(*files: Any) -> object:
        waited.append(files)
        os.read(read, 2**20)
        return select.select(*files)

    monkeypatch.setattr(line_file, "select", SimpleNamespace(select=wait))
    assert line_file._write(write, b"line\n") == 5
    assert waited == [((), (write,), ())]
    os.close(read)
    os.close(write)


def test_a_line_behind_which_another_process_wrote_is_not_cut_off(path: Path) -> None:
    own, other = (os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for _ in range(2))
    os.write(own, b"one\ntw")
    os.write(other, b"theirs\n")
    assert not line_file._is_cut_off(own, 2)
    assert path.read_bytes() == b"one\ntwtheirs\n"
    os.write(own, b"three")
    assert line_file._is_cut_off(own, 5)
    assert path.read_bytes() == b"one\ntwtheirs\n"
    os.close(own)
    os.close(other)


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
