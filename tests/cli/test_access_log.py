"""The access log of `gateway serve`, in a process of its own."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRON, gateway, started
from tests.cli.test_reloading import call
from tests.cli.test_stopping import said
from tests.limits import GENEROUS
from tests.paused_server import port_of

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
reload: {watch: false}
"""
Process = subprocess.Popen[str]


@contextmanager
def serving(folder: Path, log: str) -> Iterator[tuple[Process, int]]:
    path = folder / "gateway.yaml"
    path.write_text(CONFIG + log)
    with started("serve", "--config", str(path), stderr=subprocess.PIPE) as (process, printed):
        yield process, port_of(printed[0].split()[2])


def ask(port: int, *paths: str) -> None:
    for path in paths:
        call(port, "GET", path)


def end(process: Process) -> str:
    """What it still prints on standard output until it has ended."""
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=GENEROUS)
    return rest


def test_text_that_no_terminal_shows_has_no_access_log(tmp_path: Path) -> None:
    with serving(tmp_path, "") as (process, port):
        ask(port, "/v2", "/nothing")
        assert end(process) == ""


def test_it_can_be_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path, "log: {access: {when: always}}") as (process, port):
        ask(port, "/v2", "/nothing")
        first, second = end(process).splitlines()
    assert " access OK 200 operation=server-metadata listener=http in=v2-rest " in first
    assert " access NOT_FOUND 404 reason=path-not-found listener=http in=v2-rest " in second
    assert "\x1b" not in first


def test_json_on_standard_output_is_json_alone(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(CONFIG + "log: {format: json}")
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(path)]
    with subprocess.Popen(command, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = [json.loads(line) for line in said(process, '"ready"')]
            [address] = [each["message"].split()[-1] for each in lines if each["message"].startswith("listener")]
            ask(port_of(address), "/v2", "/nothing")
            told = [json.loads(line) for line in end(process).splitlines()]
        finally:
            process.kill()
    assert [(each["log"], each["code"], each["reason"]) for each in told] == [
        ("access", 200, ""),
        ("access", 404, "path-not-found"),
    ]


@pytest.mark.long
def test_a_rotated_file_is_opened_again_on_sighup_even_if_the_configuration_is_broken(tmp_path: Path) -> None:
    access, before = tmp_path / "access.log", tmp_path / "access.log.1"
    with serving(tmp_path, f"log: {{access: {{path: {access}}}}}") as (process, port):
        ask(port, "/one")
        access.rename(before)
        (tmp_path / "gateway.yaml").write_text("broken: 1")
        process.send_signal(signal.SIGHUP)
        said(process, "reload failed")
        ask(port, "/two", "/three")
        end(process)
    assert before.read_text().count("\n") + access.read_text().count("\n") == 3
    assert access.read_text().count("\n") >= 2


@pytest.mark.long
def test_a_reload_turns_it_on_and_off(tmp_path: Path) -> None:
    access, path = tmp_path / "access.log", tmp_path / "gateway.yaml"
    on = f"log: {{access: {{path: {access}}}}}"
    with serving(tmp_path, "") as (process, port):
        for log, asked in ((on, "/on"), ("", "/off"), (on, "/on")):
            path.write_text(CONFIG + log)
            process.send_signal(signal.SIGHUP)
            said(process, "configuration reloaded: log changed")
            ask(port, asked)
        end(process)
    assert access.read_text().count("path-not-found") == 2


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(CONFIG + f"log: {{access: {{path: {tmp_path}/no/such.log}}}}")
    ended = gateway("serve", "--config", str(path))
    assert ended.exit_code == 1
    assert f"cannot open log.access.path '{tmp_path}/no/such.log': No such file or directory" in ended.output


@pytest.mark.long
def test_a_reload_to_a_file_that_cannot_be_opened_changes_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, "") as (process, port):
        (tmp_path / "gateway.yaml").write_text(CONFIG + f"log: {{access: {{path: {tmp_path}/no/such.log}}}}")
        process.send_signal(signal.SIGHUP)
        lines = said(process, "reload failed")
        assert any("cannot open" in line and "such.log'" in line for line in lines)
        assert call(port, "GET", "/v2")[0] == 200


@pytest.mark.parametrize("path", ["access.log", "./access.log", "stdoutt"])
def test_a_path_that_is_not_absolute_is_an_error(tmp_path: Path, path: str) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(CONFIG + f"log:\n  access:\n    path: {path}")
    ended = gateway("check", "--config", str(config))
    assert ended.exit_code == 1
    assert f"6:11: expected stdout, stderr or the absolute path of a file, got '{path}'" in ended.output
