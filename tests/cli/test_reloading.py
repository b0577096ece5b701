"""`gateway serve` reads its configuration again: on SIGHUP, when a file has changed, and by `POST /reload`."""

import json
import signal
import socket
import subprocess
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.admin.state import GatewayState
from gateway.cli.options import catalog
from gateway.cli.reloading import Reloader
from gateway.config import Config, loads
from gateway.config.watching import look_at_all
from gateway.runtime.app.replacing import ReloadError
from tests.cli.commands import said, served, written
from tests.limits import GENEROUS
from tests.tls.certificates import Authority

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest], prefix: {v2-rest: "/PREFIX"}}]
admin: {bind: "127.0.0.1:0"}
reload: RELOAD
"""
OFTEN = "{interval: 0.1}"
Process = subprocess.Popen[str]


def text(prefix: str, reload: str = "{watch: false}") -> str:
    return CONFIG.replace("PREFIX", prefix).replace("RELOAD", reload)


def call(port: int, method: str, path: str) -> tuple[int, bytes]:
    client = HTTPConnection("127.0.0.1", port, timeout=GENEROUS)
    try:
        client.request(method, path, headers={"Host": "localhost"})
        reply = client.getresponse()
        return reply.status, reply.read()
    finally:
        client.close()


def serves(port: int, prefix: str) -> bool:
    return call(port, "GET", f"/{prefix}/v2/health/live")[0] == 200


def status_of(ports: dict[str, int]) -> dict[str, object]:
    found: dict[str, object] = json.loads(call(ports["admin"], "GET", "/status")[1])["configuration"]
    return found


def test_sighup_reloads_and_what_changed_is_logged(tmp_path: Path) -> None:
    with served(written(tmp_path, text("one"))) as (process, ports):
        assert serves(ports["http"], "one")
        written(tmp_path, text("two"))
        process.send_signal(signal.SIGHUP)
        lines = said(process, "configuration reloaded")
        assert lines[-1].endswith(
            "INFO gateway.cli.reloading: configuration reloaded: listener 'http': prefix changed\n"
        )
        assert any(line.endswith("gateway.yaml again: SIGHUP\n") for line in lines)
        assert serves(ports["http"], "two")
        assert not serves(ports["http"], "one")
        process.send_signal(signal.SIGHUP)
        assert said(process, "configuration reloaded")[-1].endswith(": nothing changed\n")


def test_a_call_reloads_and_answers_with_the_changes_or_with_every_error(tmp_path: Path) -> None:
    with served(written(tmp_path, text("one"))) as (process, ports):
        written(tmp_path, text("two"))
        assert call(ports["admin"], "POST", "/reload") == (200, b'{"changes":["listener \'http\': prefix changed"]}')
        assert serves(ports["http"], "two")
        assert (status_of(ports)["reloads"], status_of(ports)["last_error"]) == (1, None)
        said(process, "configuration reloaded")

        file = tmp_path / "gateway.yaml"
        file.write_text(text("three") + "drain: {timeout: soon}\nbackend: {}\n")
        status, body = call(ports["admin"], "POST", "/reload")
        errors = json.loads(body)["errors"]
        assert status == 422
        places = [(each["file"], each["line"], each["column"]) for each in errors]
        assert places == [(str(file), 5, 18), (str(file), 6, 1)]
        lines = said(process, "reload failed")
        for each in errors:
            place = f"{each['file']}:{each['line']}:{each['column']}: {each['text']}"
            assert any(line.endswith(f" ERROR gateway.cli.reloading: {place}\n") for line in lines)
        assert lines[-1].endswith("so the gateway keeps the previous configuration; errors: 2\n")
        assert serves(ports["http"], "two")
        last = status_of(ports)["last_error"]
        assert isinstance(last, dict)
        assert last["text"].count("\n") == 1

        file.write_text(text("two"))
        assert call(ports["admin"], "POST", "/reload") == (200, b'{"changes":[]}')
        assert status_of(ports)["last_error"] is None


@pytest.mark.long
def test_an_address_that_is_taken_is_an_error_of_the_call(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, served(written(tmp_path, text("one"))) as (_, ports):
        port = taken.getsockname()[1]
        written(tmp_path, text("two").replace("127.0.0.1:0", f"127.0.0.1:{port}", 1))
        status, body = call(ports["admin"], "POST", "/reload")
        assert status == 422
        [error] = json.loads(body)["errors"]
        assert error.pop("text") == f"listener 'http': cannot bind 127.0.0.1:{port}: Address already in use"
        assert error == {"file": None, "line": None, "column": None, "location": []}
        assert serves(ports["http"], "one")


@pytest.mark.long
def test_the_call_that_moves_its_own_port_is_answered(tmp_path: Path) -> None:
    with served(written(tmp_path, text("one"))) as (process, ports):
        written(tmp_path, text("one").replace('admin: {bind: "127.0.0.1', 'admin: {bind: "[::1]'))
        assert call(ports["admin"], "POST", "/reload") == (200, b'{"changes":["admin changed"]}')
        said(process, "configuration reloaded: admin changed")


def test_a_file_that_changes_is_reloaded_and_a_broken_one_is_told_once(tmp_path: Path) -> None:
    with served(written(tmp_path, text("one", OFTEN))) as (process, ports):
        file = tmp_path / "gateway.yaml"
        file.write_text(text("two", OFTEN))
        assert "a file has changed" in "".join(said(process, "configuration reloaded"))
        assert serves(ports["http"], "two")
        file.write_text("listeners: [")
        told = said(process, "reload failed")
        assert sum(" ERROR " in line for line in told) == 2
        file.write_text(text("three", OFTEN))
        lines = said(process, "configuration reloaded")
        assert not any(" ERROR " in line for line in lines)
        assert serves(ports["http"], "three")


@pytest.mark.long
def test_a_config_map_and_a_secret_that_change_are_read_again(tmp_path: Path) -> None:
    """Kubernetes replaces the link `..data`; the files that the configuration is read from stay links into it."""
    mount, secret = tmp_path / "mount", tmp_path / "secret"
    mount.mkdir()
    secret.write_text("one\n")

    def put(number: int, content: str) -> None:
        (mount / f"..{number}").mkdir()
        (mount / f"..{number}" / "gateway.yaml").write_text(content)
        (mount / "..new").symlink_to(f"..{number}")
        (mount / "..new").replace(mount / "..data")

    put(1, text(f"${{file:{secret}}}", OFTEN))
    (mount / "gateway.yaml").symlink_to("..data/gateway.yaml")
    with served(str(mount / "gateway.yaml")) as (process, ports):
        assert serves(ports["http"], "one")
        put(2, text(f"new${{file:{secret}}}", OFTEN))
        said(process, "configuration reloaded: listener 'http': prefix changed")
        assert serves(ports["http"], "newone")
        secret.write_text("two\n")
        lines = said(process, "configuration reloaded: listener 'http': prefix changed")
        assert serves(ports["http"], "newtwo")
        assert "two" not in "".join(lines)


@pytest.mark.long
def test_a_reload_that_fails_on_another_file_is_tried_again_when_that_file_changes(tmp_path: Path) -> None:
    """A certificate that is not there yet, one whose key is still that of the certificate before, and a file of API
    keys."""
    authority = Authority()
    files, newer = authority.issue(tmp_path, "localhost"), authority.issue(tmp_path, "localhost", stem="newer")
    secured = text("two", OFTEN).replace(" prefix:", f" tls: {files.server}, prefix:")
    keyed = f"{text('three', OFTEN)}auth: {{keys: {{file: {tmp_path}/keys.yaml}}}}\n"
    config = tmp_path / "gateway.yaml"

    def fails(process: Process, text: str) -> None:
        config.write_text(text)
        told = said(process, "reload failed")
        assert sum(" ERROR " in line for line in told) == 2  # one line for the file that it fails on, told once

    def is_loaded(process: Process) -> None:
        assert "".join(said(process, "configuration reloaded")).count("a file has changed") == 1

    certificate = files.certificate.read_bytes()
    files.certificate.unlink()
    with served(written(tmp_path, text("one", OFTEN))) as (process, ports):
        fails(process, secured)
        files.certificate.write_bytes(certificate)
        is_loaded(process)

        config.write_text(text("two", OFTEN))
        is_loaded(process)
        files.key.write_bytes(newer.key.read_bytes())
        fails(process, secured)
        files.certificate.write_bytes(newer.certificate.read_bytes())
        is_loaded(process)

        fails(process, keyed)
        (tmp_path / "keys.yaml").write_text("keys: []\n")
        is_loaded(process)
        assert serves(ports["http"], "three")


@pytest.mark.long
def test_the_time_to_stop_is_that_of_the_current_configuration(tmp_path: Path) -> None:
    with served(written(tmp_path, text("one"))) as (process, ports):
        written(tmp_path, text("one") + "drain: {timeout: 12}\n")
        assert call(ports["admin"], "POST", "/reload")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(GENEROUS) == 0
        assert "requests in flight have 12 s" in "".join(said(process, "ended"))


class Unwilling:
    """A gateway that takes no configuration: the log of this process stays as it is."""

    def __init__(self, config: Config, error: Exception = ReloadError("it was read without errors")) -> None:  # noqa: B008
        self.state = cast(GatewayState, SimpleNamespace(config=config, last_reload_error=None))
        self.asked = 0
        self._error = error

    def reopen_logs(self) -> None:
        """There are none."""

    async def reload(self, config: Config) -> tuple[str, ...]:
        self.asked += 1
        raise self._error


async def test_certificates_that_may_have_changed_before_they_were_watched_are_tried_once_more(tmp_path: Path) -> None:
    files = Authority().issue(tmp_path, "localhost")
    path = Path(written(tmp_path, text("one").replace(" prefix:", f" tls: {files.server}, prefix:")))
    reloader = Reloader(path, look_at_all(path))
    gateway = reloader.gateway = Unwilling(loads(text("one"), "g.yaml", catalog()))
    await reloader.on_call()
    assert gateway.asked == 2
    await reloader.on_call()  # they are watched now
    assert gateway.asked == 3


async def test_an_unexpected_error_keeps_the_configuration_and_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(written(tmp_path, text("two")))
    reloader = Reloader(path, look_at_all(path))
    gateway = reloader.gateway = Unwilling(loads(text("one"), "g.yaml", catalog()), KeyError("a part"))
    answer = (await reloader.on_call()).model_dump(exclude_none=True)
    why = "the gateway failed to change to this configuration; see its log for the reason"
    assert [each["text"] for each in answer["errors"]] == [why]
    assert gateway.state.last_reload_error is not None
    assert gateway.state.last_reload_error.text == why
    assert "KeyError: 'a part'" in caplog.text


async def test_a_package_that_was_installed_since_the_start_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jwt = "{issuer: 'https://login.example', audience: [models]}"
    path = Path(written(tmp_path, f"{text('one')}auth: {{jwt: {jwt}}}\n"))
    with monkeypatch.context() as without:
        without.setattr("gateway.cli.options.find_spec", lambda name: None)
        reloader = Reloader(path, look_at_all(path))
        reloader.gateway = Unwilling(loads(text("one"), "g.yaml", catalog()))
        refused = await reloader.on_call()
        assert "needs PyJWT, which is not installed" in refused.model_dump_json()
    assert "it was read without errors" in (await reloader.on_call()).model_dump_json()
