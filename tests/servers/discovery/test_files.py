"""Addresses in files that others write, rewrite, and remove."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from gateway.servers.discovery import files
from gateway.servers.discovery.files import (
    MAX_BYTES,
    MAX_TOTAL,
    MOST_BAD_LINES,
    MOST_FILES,
    AddressFiles,
    FilesRead,
    fixed_directory,
)
from gateway.servers.discovery.source import MOST_ADDRESSES, LookupFailedError
from gateway.transports.http.address import parse_address


def watched(folder: Path, pattern: str = "url-*.txt") -> AddressFiles:
    return AddressFiles("lab", str(folder / pattern), 5, parse_address)


async def addresses(source: AddressFiles) -> list[str]:
    return sorted(each.address for each in await source.look())


async def test_files_come_change_and_go(tmp_path: Path) -> None:
    source = watched(tmp_path)
    assert await addresses(source) == []
    one, two = tmp_path / "url-1.txt", tmp_path / "url-2.txt"
    one.write_text("http://10.0.0.1:4242\n")
    (tmp_path / "other-3.txt").write_text("http://10.0.0.3:1\n")
    assert await addresses(source) == ["http://10.0.0.1:4242"]
    two.write_text("# of node 2\n\n  http://10.0.0.2:1  \r\nhttp://10.0.0.2:2\nhttp://10.0.0.2:1\n")
    assert await addresses(source) == ["http://10.0.0.1:4242", "http://10.0.0.2:1", "http://10.0.0.2:2"]
    one.unlink()
    assert await addresses(source) == ["http://10.0.0.2:1", "http://10.0.0.2:2"]


async def test_a_change_that_leaves_size_and_time_alone_is_seen(tmp_path: Path) -> None:
    source, file = watched(tmp_path), tmp_path / "url-1.txt"
    for port in (1, 2):
        file.write_text(f"http://10.0.0.1:{port}\n")
        os.utime(file, (0, 0))
        assert await addresses(source) == [f"http://10.0.0.1:{port}"]


async def test_a_line_without_a_newline_counts_once_it_is_the_same_twice(tmp_path: Path) -> None:
    source, file = watched(tmp_path), tmp_path / "url-1.txt"
    file.write_text("http://10.0.0.1:80")
    assert await addresses(source) == []
    file.write_text("http://10.0.0.1:8080")
    assert await addresses(source) == []
    assert await addresses(source) == ["http://10.0.0.1:8080"]
    file.write_text("http://10.0.0.1:8080\n")
    assert await addresses(source) == ["http://10.0.0.1:8080"]


async def test_an_emptied_file_keeps_its_addresses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A program that writes it anew empties it first, and a full disk keeps it so."""
    source, file = watched(tmp_path), tmp_path / "url-1.txt"
    file.write_text("http://10.0.0.1:1\n")
    await source.look()
    file.write_text("")
    for _ in range(3):
        assert await addresses(source) == ["http://10.0.0.1:1"]
    assert [each.getMessage() for each in caplog.records] == [f"backend 'lab': {file} is skipped: {files.EMPTIED}"]
    file.write_text("# none\n")
    assert await addresses(source) == []
    file.write_text("")
    assert await addresses(source) == []


async def test_a_file_that_got_shorter_counts_once_it_is_the_same_twice(tmp_path: Path) -> None:
    source, file = watched(tmp_path), tmp_path / "url-1.txt"
    lines = [f"http://10.0.0.1:{port}\n" for port in (1, 2, 3)]
    file.write_text("".join(lines))
    await source.look()
    for count in (1, 2, 3):  # it is being written again
        file.write_text("".join(lines[:count]))
        assert len(await addresses(source)) == 3
    file.write_text(lines[0])
    assert len(await addresses(source)) == 3
    assert await addresses(source) == ["http://10.0.0.1:1"]
    file.write_text(lines[1])
    assert await addresses(source) == ["http://10.0.0.1:2"]


async def test_bad_lines_are_logged_once_with_their_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source, file = watched(tmp_path), tmp_path / "url-1.txt"
    file.write_bytes(b"http://10.0.0.1:1\nnowhere\n\xff\n")
    for _ in range(3):
        assert await addresses(source) == ["http://10.0.0.1:1"]
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert messages[0].startswith(f"backend 'lab': {file}:2 is skipped: bad address 'nowhere': it has no port; ")
    assert messages[1].startswith(f"backend 'lab': {file}:3 is skipped: bad address ")


async def test_what_cannot_be_read_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = watched(tmp_path)
    os.mkfifo(tmp_path / "url-1.txt")
    (tmp_path / "url-2.txt").mkdir()
    (tmp_path / "url-3.txt").write_bytes(b"#" * MAX_BYTES + b"\n")
    (tmp_path / "url-4.txt").symlink_to(tmp_path / "gone")
    (tmp_path / "url-5.txt").write_text("http://10.0.0.1:1\n")
    for _ in range(2):
        assert await addresses(source) == ["http://10.0.0.1:1"]
    assert [record.getMessage().rpartition("url-")[2] for record in caplog.records] == [
        "1.txt is skipped: not a regular file",
        "2.txt is skipped: Is a directory",
        f"3.txt is skipped: larger than {MAX_BYTES} bytes",
    ]


async def test_lines_are_checked_once_for_each_change_and_no_more_of_them_than_a_backend_gets(tmp_path: Path) -> None:
    checked: list[str] = []
    source = AddressFiles("lab", str(tmp_path / "*"), 5, checked.append)
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text("".join(f"10.0.0.1:{port}\n" for port in range(1, 301)))
    (tmp_path / "later.txt").write_text("".join(f"10.0.0.2:{port}\n" for port in range(1, 4001)))
    (tmp_path / "latest.txt").write_text("10.0.0.3:1\n")  # is beyond what a backend gets
    for _ in range(2):
        assert len(await source.look()) == MOST_ADDRESSES + 1
    first = len(checked)
    await source.look()
    await source.look()
    assert len(checked) == first
    (tmp_path / "7.txt").write_text("10.0.0.3:1\n")
    for _ in range(3):
        await source.look()
    assert checked[first:] == ["10.0.0.3:1"] * 2  # again when it is the same in two looks


async def test_the_rest_of_a_file_with_many_bad_lines_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, file = watched(tmp_path), tmp_path / "url-1.txt"
    file.write_text("http://10.0.0.1:1\n" + "nowhere\n" * 5000)
    for _ in range(2):
        assert await addresses(source) == ["http://10.0.0.1:1"]
    assert len(source._told) == MOST_BAD_LINES + 1


async def test_files_beyond_a_number_and_a_size_are_left_out_which_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    many, large = tmp_path / "many", tmp_path / "large"
    many.mkdir()
    large.mkdir()
    for number in range(MOST_FILES + 5):
        (many / f"url-{number:04}.txt").write_text("http://10.0.0.1:1\n")
    (many / f"url-{MOST_FILES:04}.txt").write_text("http://10.0.0.2:1\n")
    fit = MAX_TOTAL // MAX_BYTES
    for number in range(fit + 5):
        (large / f"url-{number:04}.txt").write_bytes(b"#" * (MAX_BYTES - 30) + b"\nhttp://10.0.0.1:%d\n" % (number + 1))
    of_many, of_large = watched(many), watched(large)
    for _ in range(2):
        assert await addresses(of_many) == ["http://10.0.0.1:1"]
        assert len(await addresses(of_large)) == fit
    assert [each.getMessage() for each in caplog.records] == [
        f"backend 'lab': {many}/url-*.txt is skipped: more than {MOST_FILES} files, {many}/url-{MOST_FILES:04}.txt and"
        " later ones",
        f"backend 'lab': {large}/url-*.txt is skipped: more than {MAX_TOTAL} bytes in all files,"
        f" {large}/url-{fit:04}.txt and later ones",
    ]


async def test_a_file_that_cannot_be_read_any_more_keeps_its_addresses(tmp_path: Path) -> None:
    source, file = watched(tmp_path), tmp_path / "url-1.txt"
    file.write_text("http://10.0.0.1:1\n")
    assert await addresses(source) == ["http://10.0.0.1:1"]
    file.write_bytes(b"#" * (MAX_BYTES + 1))
    assert await addresses(source) == ["http://10.0.0.1:1"]


async def test_without_its_folder_nothing_is_known(tmp_path: Path) -> None:
    """An unmounted file system does not mean that all servers have gone."""
    with pytest.raises(LookupFailedError, match=f"{tmp_path}/absent: No such file or directory"):
        await watched(tmp_path / "absent").look()


@pytest.mark.parametrize(
    ("pattern", "directory"),
    [("/run/m/url-*.txt", "/run/m"), ("/run/*/url.txt", "/run"), ("/run/url.txt", "/run"), ("/*", "/")],
)
def test_the_folder_that_must_be_there(pattern: str, directory: str) -> None:
    assert fixed_directory(pattern) == Path(directory)


async def test_a_file_system_that_hangs_holds_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, reads = threading.Event(), []

    def hang(pattern: str) -> FilesRead:
        reads.append(pattern)
        goes_on.wait()
        return FilesRead({"/x": "http://10.0.0.1:1\n"}, {})

    monkeypatch.setattr(files, "read_files", hang)
    source = watched(tmp_path)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await source.look()
    goes_on.set()
    assert await addresses(source) == ["http://10.0.0.1:1"]
    assert len(reads) == 1
