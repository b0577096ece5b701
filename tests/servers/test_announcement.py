"""What the files of a job announce."""

import os
from pathlib import Path

import pytest

from gateway.servers.locating import announced


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://node7:4242\n", "node7:4242"),
        ("http://node7.cluster:4242/\n", "node7.cluster:4242"),
        ("127.0.0.1:4242\n", "127.0.0.1:4242"),
        ("http://[::1]:4242\r\n", "[::1]:4242"),
    ],
)
def test_an_address_is_read(tmp_path: Path, text: str, address: str) -> None:
    (tmp_path / "url-12.txt").write_bytes(text.encode())
    assert announced(tmp_path).address == address


@pytest.mark.parametrize("text", ["", "http:/", "http://node7:42"])
def test_a_file_that_is_still_written_announces_nothing_yet(tmp_path: Path, text: str) -> None:
    (tmp_path / "url-12.txt").write_text(text)
    found = announced(tmp_path)
    assert (found.address, found.fault) == ("", "")


@pytest.mark.parametrize(
    "text",
    [
        "https://node7:4242\n",
        "http://user:secret@node7:4242\n",
        "http://node7:4242/../../admin\n",
        "http://node7:0\n",
        "http://node7:70000\n",
        "file:///etc/passwd\n",
        "http://no de:1\n",
        "http://node7:1\nhttp://node8:1\n",
        "\x00\x01\x02\x03\x04\x05\x06\x07\x08\n",
        "x" * 5000,
    ],
)
def test_nothing_else_is_believed_and_the_fault_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "url-12.txt").write_text(text)
    found = announced(tmp_path)
    assert not found.address
    assert found.fault.startswith("url-12.txt has ")


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "url-1.txt")
    (tmp_path / "url-2.txt").write_text("node7:1\n")
    assert announced(tmp_path).address == "node7:1"
