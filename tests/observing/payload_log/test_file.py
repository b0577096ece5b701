"""The payload log as a file."""

import json
from pathlib import Path

import pytest

from gateway.observing.payload_log.file import PayloadFile
from tests.observing.payload_log.logged import FAILED, FORM, REPLY, REQUEST


async def test_each_event_is_a_line_of_json(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = PayloadFile(str(path), FORM)
    assert await file.send([REQUEST, REPLY, FAILED]) == (0, "")
    await file.close()
    documents = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [each["type"].rpartition(".")[2] for each in documents] == ["request", "response", "response"]
    assert documents[0]["data"]["inputs"][0]["data"] == [1.0]
    assert path.stat().st_mode & 0o777 == 0o640


async def test_a_file_that_was_renamed_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = PayloadFile(str(path), FORM)
    await file.send([REQUEST])
    path.rename(tmp_path / "log.1")
    await file.send([REQUEST])
    file.reopen()
    await file.send([REPLY])
    await file.close()
    assert [(tmp_path / name).read_bytes().count(b"\n") for name in ("log.1", "log")] == [2, 1]


async def test_a_disk_that_is_full_loses_entries() -> None:
    file = PayloadFile("/dev/full", FORM)
    assert await file.send([REQUEST, REPLY]) == (2, "/dev/full: No space left on device")
    await file.close()


async def test_a_file_that_cannot_be_opened_again_loses_entries_until_it_can_be(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = PayloadFile(str(folder / "log"), FORM)
    folder.rename(tmp_path / "gone")
    file.reopen()
    assert await file.send([REQUEST]) == (1, f"{folder}/log: No such file or directory")
    folder.mkdir()
    file.reopen()
    assert await file.send([REPLY]) == (0, "")
    await file.close()
    assert (folder / "log").read_bytes().count(b"\n") == 1


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PayloadFile(str(tmp_path / "none" / "log"), FORM)
