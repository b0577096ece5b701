"""The plumbing of the interop tests: what fails says why, and nothing is left behind."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.interop import processes
from tests.interop.processes import Process, ProcessError, free_port


def python(code: str, folder: Path) -> Process:
    return Process([sys.executable, "-c", code], folder)


def test_a_process_that_ends_early_is_told_with_its_output(tmp_path: Path) -> None:
    process = python("raise SystemExit('no such port')", tmp_path)

    with pytest.raises(ProcessError, match=r"(?s)ended with status 1 before it was ready.*no such port"):
        process.wait_until(lambda: False, seconds=10)


def test_a_process_that_is_never_ready_is_stopped(tmp_path: Path) -> None:
    process = python("import time; time.sleep(60)", tmp_path)

    with pytest.raises(ProcessError, match="was not ready within"):
        process.wait_until(lambda: False, seconds=0.1)
    assert process.returncode == -signal.SIGTERM


def test_stopping_ends_what_the_process_started(tmp_path: Path) -> None:
    """The child is deaf to SIGTERM, and so is the one it started: both are killed."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True);"
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '''{deaf} time.sleep(60)''']);"
    process = python(f"{deaf} {start} time.sleep(60)", tmp_path)
    process.wait_until(lambda: process.stdout().count("deaf") == 2, seconds=10)

    assert len(processes.members(process.pid)) == 2
    assert process.stop(seconds=0.1) == -signal.SIGKILL
    assert processes.members(process.pid) == []


def test_a_server_ends_when_told(tmp_path: Path) -> None:
    with processes.start_umbridge(tmp_path) as server:
        assert server.stop() == 0
        assert server.stop() == 0
    assert processes.members(server.process.pid) == []
    assert not processes.answers(f"{server.url}/Info")


def fake_gateway(folder: Path, code: str) -> Path:
    package = folder / "gateway"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(code)
    return folder


def test_a_gateway_is_started_once_it_says_that_it_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, time; print('not ready'); print('ready', sys.argv[1:3]); time.sleep(60)"
    monkeypatch.setattr(processes, "ROOT", fake_gateway(tmp_path, code))
    with processes.start_gateway("listeners: []", tmp_path / "running") as gateway:
        assert gateway.output() == "not ready\nready ['serve', '--config']\n"
        assert gateway.config.read_text() == "listeners: []"
        assert gateway.stop() == -signal.SIGTERM


def test_a_gateway_that_refuses_its_configuration_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ROOT", fake_gateway(tmp_path, "raise SystemExit('gateway.yaml:1:1: no')"))

    with pytest.raises(ProcessError, match=r"(?s)ended with status 1 .*gateway\.yaml:1:1: no"):
        processes.start_gateway("listeners: []", tmp_path / "running")


def test_ports_are_never_given_twice() -> None:
    ports = [free_port() for _ in range(50)]

    assert len(set(ports)) == 50


def test_everything_here_is_marked(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("real")
