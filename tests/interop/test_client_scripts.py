"""The scripts of real clients: each call is a process of its own, forked from one that has imported the script."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.client_scripts import run_client
from tests.interop.processes import ProcessError
from tests.interop.real_clients import umbridge
from tests.peers import build


def test_a_client_that_fails_is_told_with_its_output(umbridge_server: str) -> None:
    with pytest.raises(ProcessError, match=r"(?s)status 1.*TypeError: main.. missing 2 required positional arguments"):
        run_client("umbridge", "umbridge_client")
    assert umbridge(umbridge_server, {"op": "models"})


def test_a_client_that_does_not_end_in_time_is_ended(umbridge_server: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ProcessError, match="did not end"):
            run_client("umbridge", "umbridge_client", url, [{"op": "models"}], timeout=0.1)
    assert umbridge(umbridge_server, {"op": "models"})


def test_a_script_that_cannot_be_imported_is_told_with_the_reason() -> None:
    with pytest.raises(ProcessError, match="No module named 'no_such_client'"):
        run_client("umbridge", "no_such_client")


def test_calls_at_the_same_time(umbridge_server: str) -> None:
    with ThreadPoolExecutor(3) as threads:
        told = list(threads.map(lambda _: umbridge(umbridge_server, {"op": "models"}), range(3)))
    assert told == [told[0]] * 3


def test_an_absent_peer_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PEERS", tmp_path)

    with pytest.raises(build.BuildError, match="run `make peers`"):
        run_client("umbridge", "umbridge_client")
