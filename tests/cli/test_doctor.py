"""`gateway doctor`: a page for a report."""

import ctypes
import socket
from pathlib import Path

import pytest

from gateway.tools import doctor
from tests.cli.commands import gateway, written

CONFIG = """
listeners: [{{name: http, bind: "127.0.0.1:{port}", protocols: [v2-rest]}}]
backends: {{b: {{protocol: v2-rest, endpoints: ["models.example:8000"]}}}}
routes: [{{match: {{model: "*"}}, backend: b}}]
"""


def test_it_tells_versions_limits_and_the_clock() -> None:
    result = gateway("doctor")
    assert result.exit_code == 0
    for word in ("gateway  ", "python  ", "numpy  ", "open files", "memory", "processors", "clock", "redis"):
        assert word in result.stdout


def test_an_extra_without_its_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requires", lambda name: ["no-such-package>=2 ; extra == 'redis'", "numpy>=1"])
    told = gateway("doctor").stdout
    assert "redis  not installed (no-such-package)\n" in told
    assert "pytest" not in told


@pytest.mark.parametrize(
    ("text", "told"), [("150000 100000\n", ", limited to 1.50 (cgroup)\n"), ("max 100000\n", "\n"), (None, "\n")]
)
def test_the_processors_of_a_container_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, told: str
) -> None:
    if text is not None:
        (tmp_path / "cpu.max").write_text(text)
    monkeypatch.setattr(doctor, "_CPU_MAX", tmp_path / "cpu.max")
    [line] = [each for each in gateway("doctor").stdout.splitlines(keepends=True) if "usable: " in each]
    assert line.partition("usable: ")[2].lstrip("0123456789") == told


class Library:
    """The library of C, whose adjtimex returns `state`, or None for a library without that function."""

    def __init__(self, state: int | None) -> None:
        if state is not None:
            self.adjtimex = lambda buffer: state


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (0, "synchronized"),
        (5, "not synchronized, according to the kernel, so checks of tokens and certificates can be wrong"),
        (-1, "synchronization unknown"),
        (None, "synchronization unknown"),
    ],
)
def test_the_state_of_the_clock_is_told(monkeypatch: pytest.MonkeyPatch, state: int | None, told: str) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library(state))
    [line] = [each for each in gateway("doctor").stdout.splitlines() if "clock" in each]
    assert line.endswith(f", {told}")


def test_with_a_configuration_it_tells_a_port_that_is_taken_and_ends_with_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = gateway("doctor", "--config", written(tmp_path, CONFIG.format(port=port)))
    assert result.exit_code == 1
    why = "Address already in use; possibly by this gateway, if it runs"
    told = f"listener http  taken or not allowed: port {port}: {why}"
    assert told in result.stdout


def test_a_unix_socket_is_told(tmp_path: Path) -> None:
    text = CONFIG.replace("127.0.0.1:{port}", "unix://{folder}/s").replace("[v2-rest]}}]", "[mip], model: m}}]")
    result = gateway("doctor", "--config", written(tmp_path, text.format(folder=tmp_path)))
    assert "listener http  a unix socket\n" in result.stdout


def test_it_tells_nothing_of_the_backends(tmp_path: Path) -> None:
    result = gateway("doctor", "--config", written(tmp_path, CONFIG.format(port=0)))
    assert result.exit_code == 0
    assert "models.example" not in result.output


def test_errors_of_the_configuration_are_told_with_their_place(tmp_path: Path) -> None:
    path = written(tmp_path, "listeners: []\nroute: []\n")
    result = gateway("doctor", "--config", path)
    assert result.exit_code == 1
    assert f"error  {path}:2:1: " in result.stdout
