"""The access log of `gateway serve`, in a process of its own."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRON, gateway, said, served, written
from tests.cli.test_reloading import call
from tests.limits import GENEROUS
from tests.paused_server import port_of

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
reload: {watch: false}
"""


def ask(port: int, *paths: str) -> None:
    for path in paths:
        call(port, "GET", path)


def end(process: "subprocess.Popen[str]") -> str:
    """What it still prints on standard output until it has ended."""
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=GENEROUS)
    return rest


def test_text_that_no_terminal_shows_has_no_access_log(tmp_path: Path) -> None:
    with served(written(tmp_path, CONFIG)) as (process, ports):
        ask(ports["http"], "/v2", "/nothing")
        assert end(process) == ""


def test_it_can_be_asked_for(tmp_path: Path) -> None:
    with served(written(tmp_path, CONFIG + "log: {access: {when: always}}")) as (process, ports):
        ask(ports["http"], "/v2", "/nothing")
        first, second = end(process).splitlines()
    assert " access OK 200 operation=server-metadata listener=http in=v2-rest " in first
    assert " access NOT_FOUND 404 reason=path-not-found listener=http in=v2-rest " in second
    assert "\x1b" not in first


def test_json_on_standard_output_is_json_alone(tmp_path: Path) -> None:
    path = written(tmp_path, CONFIG + "log: {format: json}")
    command = [sys.executable, "-m", "gateway", "serve", "--config", path]
    with subprocess.Popen(command, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            begun = [json.loads(line)["message"] for line in said(process, '"ready"')]
            [address] = [each.split()[-1] for each in begun if each.startswith("listener")]
            ask(port_of(address), "/v2", "/nothing")
            told = [json.loads(line) for line in end(process).splitlines()]
        finally:
            process.kill()
    lines = [(each["log"], each["code"], each["reason"]) for each in told]
    assert lines == [("access", 200, ""), ("access", 404, "path-not-found")]


@pytest.mark.long
def test_a_rotated_file_is_opened_again_on_sighup_even_if_the_configuration_is_broken(tmp_path: Path) -> None:
    access, before = tmp_path / "access.log", tmp_path / "access.log.1"
    with served(written(tmp_path, CONFIG + f"log: {{access: {{path: {access}}}}}")) as (process, ports):
        ask(ports["http"], "/one")
        access.rename(before)
        written(tmp_path, "broken: 1")
        process.send_signal(signal.SIGHUP)
        said(process, "reload failed")
        ask(ports["http"], "/two", "/three")
        end(process)
    assert before.read_text().count("\n") + access.read_text().count("\n") == 3
    assert access.read_text().count("\n") >= 2


@pytest.mark.long
def test_a_reload_turns_it_on_and_off(tmp_path: Path) -> None:
    access = tmp_path / "access.log"
    on = f"log: {{access: {{path: {access}}}}}"
    with served(written(tmp_path, CONFIG)) as (process, ports):
        for log, asked in ((on, "/on"), ("", "/off"), (on, "/on")):
            written(tmp_path, CONFIG + log)
            process.send_signal(signal.SIGHUP)
            said(process, "configuration reloaded: log changed")
            ask(ports["http"], asked)
        end(process)
    assert access.read_text().count("path-not-found") == 2


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    ended = gateway("serve", written(tmp_path, CONFIG + f"log: {{access: {{path: {tmp_path}/no/such.log}}}}"))
    assert ended.exit_code == 1
    assert f"cannot open log.access.path '{tmp_path}/no/such.log': No such file or directory" in ended.output


@pytest.mark.long
def test_a_reload_to_a_file_that_cannot_be_opened_changes_nothing(tmp_path: Path) -> None:
    with served(written(tmp_path, CONFIG)) as (process, ports):
        written(tmp_path, CONFIG + f"log: {{access: {{path: {tmp_path}/no/such.log}}}}")
        process.send_signal(signal.SIGHUP)
        lines = said(process, "reload failed")
        assert any("cannot open" in line and "such.log'" in line for line in lines)
        assert call(ports["http"], "GET", "/v2")[0] == 200


@pytest.mark.parametrize("path", ["access.log", "./access.log", "stdoutt"])
def test_a_path_that_is_not_absolute_is_an_error(tmp_path: Path, path: str) -> None:
    ended = gateway("check", written(tmp_path, CONFIG + f"log:\n  access:\n    path: {path}"))
    assert ended.exit_code == 1
    assert f"6:11: expected stdout, stderr or the absolute path of a file, got '{path}'" in ended.output
