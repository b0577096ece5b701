"""`gateway doctor`: a page for a report."""

import socket
from pathlib import Path

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


def test_with_a_configuration_it_tells_a_port_that_is_taken_and_ends_with_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = gateway("doctor", "--config", written(tmp_path, CONFIG.format(port=port)))
    assert result.exit_code == 1
    why = "Address already in use; possibly by this gateway, if it runs"
    told = f"listener http  taken or not allowed: port {port}: {why}"
    assert told in result.stdout


def test_it_tells_nothing_of_the_backends(tmp_path: Path) -> None:
    result = gateway("doctor", "--config", written(tmp_path, CONFIG.format(port=0)))
    assert result.exit_code == 0
    assert "models.example" not in result.output


def test_errors_of_the_configuration_are_told_with_their_place(tmp_path: Path) -> None:
    path = written(tmp_path, "listeners: []\nroute: []\n")
    result = gateway("doctor", "--config", path)
    assert result.exit_code == 1
    assert f"error  {path}:2:1: " in result.stdout
