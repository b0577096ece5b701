"""Standard streams that cannot be written: the gateway serves all the same, and never prints a traceback."""

import contextlib
import http.client
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRON, ROOT
from tests.interop.processes import eventually, free_port
from tests.limits import GENEROUS

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:PORT", protocols: [v2-rest]}]
workers: WORKERS
reference: [{protocol: v2-rest, bind: "127.0.0.1:0", models: [double]}]
backends: {lab: {protocol: v2-rest, endpoints: ["127.0.0.1:1"]}}
routes: [{match: {model: "*"}, backend: lab}]
"""
SERVE = ("serve", "--config", "gateway.yaml")
REFERENCE = ("reference", "--protocol", "v2-rest", "--bind", "127.0.0.1:PORT", "--model", "double")
LOST = "its text is lost"


def served(folder: Path, command: tuple[str, ...], redirected: str, workers: int = 1) -> str:
    """Start this command, end it once it is live, and return what it wrote to standard error."""
    port = free_port()
    text = CONFIG.replace("PORT", str(port)).replace("WORKERS", str(workers))
    (folder / "gateway.yaml").write_text(text)
    words = [each.replace("PORT", str(port)) for each in command]
    shell = ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", "gateway", *words]
    with subprocess.Popen(shell, cwd=folder, env=ENVIRON, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert eventually(lambda: process.poll() is not None or is_live(port), GENEROUS)
            assert process.poll() is None, "it ended"
            process.send_signal(signal.SIGTERM)
            _, told = process.communicate(timeout=GENEROUS)
        finally:
            process.kill()
    assert process.returncode == 0
    return told


def is_live(port: int) -> bool:
    """Whether the gateway has started, and answers."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=GENEROUS)
    with contextlib.closing(client):
        try:
            client.request("GET", "/v2/health/live")
        except ConnectionRefusedError:
            return False
        return client.getresponse().status == 200


@pytest.mark.long
@pytest.mark.parametrize("command", [SERVE, REFERENCE], ids=["serve", "reference"])
@pytest.mark.parametrize(("redirected", "why"), [("> /dev/full", "No space left on device"), (">&-", "it is closed")])
def test_without_standard_output_it_serves(tmp_path: Path, command: tuple[str, ...], redirected: str, why: str) -> None:
    told = served(tmp_path, command, redirected)
    assert f"writing to standard output failed ({why}): {LOST}" in told
    assert "Traceback" not in told


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("redirected", ["> /dev/full 2>&1", ">&- 2>&- <&-"])
def test_without_any_it_serves(tmp_path: Path, workers: int, redirected: str) -> None:
    assert served(tmp_path, SERVE, redirected, workers) == ""


def test_numbers_of_closed_streams_are_not_used_for_anything_else() -> None:
    start = "import os; from gateway.runtime import starting"
    code = f"{start}; starting.fill_standard_streams(); os._exit(os.dup(0))"
    shell = ["sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh", sys.executable, "-c", code]
    assert subprocess.run(shell, cwd=ROOT, env=ENVIRON, check=False).returncode == 3


def test_the_banner_and_the_log_are_on_their_own_streams(tmp_path: Path) -> None:
    """Standard output ends with `ready`; all lines of the log are on standard error."""
    (tmp_path / "gateway.yaml").write_text(CONFIG.replace("PORT", "0").replace("WORKERS", "1"))
    command = [sys.executable, "-m", "gateway", *SERVE]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            printed = []
            for line in process.stdout:
                printed.append(line)
                if line == "ready\n":
                    process.send_signal(signal.SIGTERM)
            _, told = process.communicate(timeout=GENEROUS)
        finally:
            process.kill()
    assert printed[-1] == "ready\n"
    assert not any(" INFO " in line for line in printed)
    assert told.count(" INFO gateway.") > 5
