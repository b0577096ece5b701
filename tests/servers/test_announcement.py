"""What the files of a job announce, and which of it is believed."""

import os
import socket
from pathlib import Path

import pytest

from gateway.servers.engine import JobReport, JobState
from gateway.servers.locating import Located, announced, locate, refuses
from gateway.servers.started_server import StartedServer
from tests.servers.test_jobs import Backend


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


@pytest.mark.parametrize(
    ("host", "address", "why"),
    [
        ("127.0.0.1", "node7:4242", "the job runs on this machine, which has another name"),
        ("127.0.0.1", "localhost:4242", ""),
        ("127.0.0.1", f"{socket.gethostname()}:4242", ""),
        ("::1", "127.0.0.2:4242", ""),
        ("node7", "node8:4242", ""),
        ("node7", "node7:4241", "it is the address of job lab-1"),
    ],
)
async def test_an_address_of_another_server_or_machine_is_not_believed(
    tmp_path: Path, host: str, address: str, why: str
) -> None:
    first, second = (StartedServer(f"lab-{number}", tmp_path, 1, 0.0) for number in (1, 2))
    first.address, second.id, second.report = "node7:4241", "2", JobReport(JobState.RUNNING, host=host)
    (tmp_path / "url-2.txt").write_text(f"http://{address}\n")
    found = await locate(second, [first, second], Backend())
    assert found == (Located(fault=f"{address} cannot be used: {why}") if why else Located(address))


async def test_only_an_address_that_answers_with_a_refusal_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert not await refuses(address)
    assert await refuses(address)
    assert not await refuses("255.255.255.255:9")  # no way leads there
