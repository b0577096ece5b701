"""The access log: what is sampled, when lines are written, and what happens when they cannot be."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.core.errors import not_found
from gateway.core.record import Record
from gateway.observing import writer
from gateway.observing.access_lines import json_lines
from gateway.observing.access_log import AccessLog
from gateway.observing.writer import LineWriter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


def ended(*, fails: bool = False, id: str = "x") -> Record:
    told = Record((), id, "http", "v2-rest", "h:1", 0.0, 0)
    if fails:
        told.failed(not_found("no such model"))
    told.end(404 if fails else 200, 0)
    return told


def lines(path: Path) -> Iterator[dict[str, object]]:
    yield from map(json.loads, path.read_text().splitlines())


def test_every_request_has_a_line_when_the_log_is_closed(path: Path) -> None:
    log = AccessLog(LineWriter(str(path)), json_lines)
    log.write([ended(id="n0"), ended(id="n1")])
    log.write([ended(id="n2")])
    log.close()
    assert [each["id"] for each in lines(path)] == ["n0", "n1", "n2"]


def test_sampling_leaves_out_successes_only(path: Path) -> None:
    log = AccessLog(LineWriter(str(path)), json_lines, sample=0.0)
    log.write([ended(), ended(fails=True, id="failed"), ended()])
    log.close()
    assert [each["id"] for each in lines(path)] == ["failed"]


def test_half_of_the_successes_are_about_half(path: Path) -> None:
    log = AccessLog(LineWriter(str(path)), json_lines, sample=0.5)
    log.write([ended() for _ in range(2000)])
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
    assert "lines of the access log dropped: 10; it is written too slowly" in caplog.text


def test_a_disk_that_is_full_costs_lines(caplog: pytest.LogCaptureFixture) -> None:
    lines = LineWriter("/dev/full")
    lines.write(b"one\n", 1)
    lines.close()
    assert lines.dropped == 1
    assert "lines of the access log dropped: 1; No space left on device" in caplog.text
