"""`gateway top` at a real gateway with traffic: in a terminal, once as a table, and as JSON."""

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from http.server import HTTPServer
from threading import Event, Thread
from urllib.error import HTTPError

import pytest

from tests.cli.commands import gateway, started, written
from tests.cli.terminal import terminal
from tests.in_thread import QuietHandler, in_thread
from tests.interop.processes import free_port

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:HTTP", protocols: [umbridge]}]
admin: {bind: "127.0.0.1:ADMIN"}
reference: [{protocol: umbridge, bind: "127.0.0.1:MODEL", models: [double]}]
backends:
  lab: {protocol: umbridge, endpoints: ["127.0.0.1:MODEL"]}
  gone: {protocol: umbridge, endpoints: ["127.0.0.1:NOBODY"]}
routes:
  - {match: {model: double}, backend: lab}
  - {match: {model: lost}, backend: gone}
"""


@dataclass
class Place:
    """Where a gateway runs, and its configuration."""

    config: str
    http: int
    admin: int
    model: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.admin}"

    def ask(self, model: str) -> None:
        body = json.dumps({"name": model, "input": [[1, 2, 3]], "config": {}}).encode()
        with suppress(HTTPError, OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{self.http}/Evaluate", body).read()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    ports = {name: free_port() for name in ("HTTP", "ADMIN", "MODEL", "NOBODY")}
    text = CONFIG
    for name, port in ports.items():
        text = text.replace(name, str(port))
    return Place(written(tmp_path_factory.mktemp("top"), text), ports["HTTP"], ports["ADMIN"], ports["MODEL"])


@pytest.fixture(scope="module")
def traffic(place: Place) -> Iterator[None]:
    """Requests without a pause, whether a gateway is there or not: two for `double`, then one that fails."""
    ends = Event()

    def send() -> None:
        while not ends.wait(0.01):
            for model in ("double", "double", "lost"):
                place.ask(model)

    thread = Thread(target=send)
    thread.start()
    yield
    ends.set()
    thread.join()


def serving(place: Place) -> AbstractContextManager[tuple["subprocess.Popen[str]", list[str]]]:
    return started("serve", place.config, stderr=subprocess.DEVNULL)


def drain(place: Place, **more: object) -> None:
    body = json.dumps({"backend": "lab", "endpoint": f"127.0.0.1:{place.model}", **more}).encode()
    headers = {"content-type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{place.url}/drain", body, headers)).read()


@pytest.mark.long
@pytest.mark.usefixtures("traffic")
def test_a_terminal_shows_what_the_gateway_does_and_that_it_restarts(place: Place) -> None:
    """At 80 columns and 24 lines."""
    endpoint = f"127.0.0.1:{place.model}"
    with serving(place) as (process, _), terminal("top", "--admin", place.url, "--interval", "0.2") as shown:
        lines = (
            r"LISTENERS\n http .* [1-9]\S*% .*\n"
            r"ROUTES\n double +\S+/s +0% .*\n lost +\S+/s +100% .*\n"
            r"BACKENDS\n lab .* 1/1 up\n gone .* 100% .* 0/1 up\n"
            rf"ENDPOINTS\n {endpoint} lab +[1-9]\S*/s +0% "
        )
        text = shown.until(lambda text: re.search(lines, text) is not None)
        assert (len(text.split("\n")), max(map(len, text.split("\n"))) <= 80) == (24, True)
        assert text.startswith(f"modelglot 0.1.0  {place.url}  ")
        assert shown.colours("0/1 up") == {"red"}
        assert not shown.shows_what_is_typed()

        shown.type("\t\t\t\t")
        shown.until(lambda text: "tab: endpoint" in text and "LISTENERS" not in text)
        drain(place)
        shown.until(lambda text: re.search(rf"{endpoint} .* (draining|drained)", text) is not None)
        drain(place, undo=True)
        shown.resize(120, 10)
        shown.until(lambda text: re.search(rf"^ {endpoint} lab {{30,}}", text, re.M) is not None)
        shown.type("ssss")
        shown.until(lambda text: "sort: slowest" in text)

        process.kill()
        process.wait()
        shown.until(
            lambda text: "no response, showing data from " in text and "trying again: Connection refused" in text
        )
        with serving(place):
            text = shown.until(lambda text: "the gateway has restarted" in text)
            assert "no answer" not in text
            shown.until(lambda text: re.search(rf"{endpoint} .* [1-9]\S*/s .* up", text) is not None)
            shown.type("q")
            assert shown.ended() == 0
        assert shown.shows_what_is_typed()
        assert b"\x1b[?1049l" in shown.written[-40:]  # what was on the screen before is there again


@pytest.mark.usefixtures("traffic")
def test_signals_end_it_and_elsewhere_than_on_a_terminal_it_prints_once(place: Place) -> None:
    with serving(place):
        for number, code in ((signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)):
            with terminal("top", "--admin", place.url) as shown:
                shown.until(lambda text: "q quit" in text)
                shown.process.send_signal(number)
                assert (shown.ended(), shown.shows_what_is_typed()) == (code, True)
                assert b"\x1b[?1049l" in shown.written[-40:]
        printed = gateway("top", "--admin", place.url, "--interval", "0.5", "--sort", "failed").stdout
        assert printed.startswith("ready: rate ")
        rows = [line.split() for line in printed.splitlines() if line.startswith("route ")]
        assert [(row[1], row[3]) for row in rows] == [("lost", "100%"), ("double", "0%")]
        found = json.loads(gateway("top", "--admin", place.url, "--interval", "0.5", "--json").stdout)
        double, lost = found["routes"]
        assert double["requests_per_second"] > lost["requests_per_second"] == lost["errors_per_second"] > 0
        assert [(each["backend"], each["state"]) for each in found["endpoints"]] == [("lab", "up"), ("gone", "down")]


@contextmanager
def other_server() -> Iterator[str]:
    """A server that answers with JSON of its own."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send_json({"paths": []})

    with in_thread(HTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield f"http://{address}"


def test_what_is_no_admin_port_is_told(place: Place) -> None:
    result = gateway("top", "--admin", place.url)
    assert (result.exit_code, result.stderr) == (3, f"{place.url}/api/traffic: Connection refused\n")
    with other_server() as url:
        result = gateway("top", "--admin", url)
    assert result.exit_code == 1
    assert (
        result.stderr == f"{url}/api/traffic: the response is not as expected; is this the admin port of a gateway?\n"
    )
    assert gateway("top", "--admin", "127.0.0.1:9090").exit_code == 2
    result = gateway("top", "--sort", "size")
    assert (result.exit_code, "--sort: expected rate, failed" in result.stderr) == (2, True)
