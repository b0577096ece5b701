"""The test servers for containers say what the real servers said to the same requests.

A file in `recorded` has the replies of a real server to commands of curl, without what differs from call to call: dates
and ids of requests. `logs` and tracebacks are cut.
"""

from __future__ import annotations

import http.client
import json
import re
import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.limits import GENEROUS
from tests.peers.json_containers import BUSY, CONTAINERS, serve

RECORDED = Path(__file__).with_name("recorded")
SERVERS = {
    "torchserve": "torchserve",
    "sagemaker": "sagemaker",
    "vertex": "vertex",
    "seldon": "seldon",
    "ray": "ray_applications",
    "cog-0.9": "cog_0_9",
    "cog-0.16": "cog_0_16",
    "cog-0.23": "cog",
    "infinity": "infinity",
}
"""For each file of `recorded` the container that says the same."""
WEB_FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Reply:
    """A reply: its status line, the headers that say how it is to be read, and its body as text."""

    status: str
    headers: tuple[tuple[str, str], ...]
    body: str

    @property
    def comparable(self) -> tuple[object, ...]:
        """The parts that do not differ from call to call."""
        try:
            body: object = _steady(json.loads(self.body))
        except ValueError:
            body = self.body.partition("Traceback")[0].strip()
        indented = "\n  " in self.body.partition("Traceback")[0]
        return self.status, self.headers, body, indented


CHANGING = frozenset(
    {"id", "started_at", "completed_at", "predict_time", "cog_version", "setup", "logs", "created", "version"}
)


def _steady(found: Any) -> Any:
    if isinstance(found, dict):
        ids = {"id": str(found["id"]).partition("-")[0].partition("_")[0]} if found.get("id") else {}
        kept = {name: _steady(each) for name, each in found.items() if name not in CHANGING and "_url" not in name}
        return {**kept, **ids}
    return [_steady(each) for each in found] if isinstance(found, list) else found


def _recorded(name: str) -> dict[str, Reply]:
    """The replies in a file by the commands that they answer."""
    found = {}
    for block in re.split(r"(?m)^=== ", (RECORDED / f"{name}.txt").read_text())[1:]:
        command, _, rest = block.partition("\n")
        lines, _, body = rest.partition("\n\n")
        status, *headers = lines.splitlines()
        pairs = (line.partition(": ") for line in headers)
        found[command] = Reply(status.strip(), _told({key.lower(): value for key, _, value in pairs}), body.strip())
    return found


def _told(headers: dict[str, str]) -> tuple[tuple[str, str], ...]:
    wanted = ("content-type", "connection", "transfer-encoding", "location")
    found = [(name, headers[name]) for name in wanted if headers.get(name, "keep-alive") != "keep-alive"]
    return tuple(each for each in found if each[0] != "location")


def asked(url: str, command: str) -> Reply:
    """The reply of the server at `url` to a command of curl, which is sent as curl would."""
    method, path, headers, body = _sent(command)
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=GENEROUS)
    try:
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        text = reply.read().decode()
        status = f"HTTP/1.1 {reply.status} {reply.reason}".strip()
        return Reply(status, _told({key.lower(): value for key, value in reply.getheaders()}), text.strip())
    finally:
        connection.close()


def _sent(command: str) -> tuple[str, str, dict[str, str], bytes | None]:
    path, *options = shlex.split(command.replace("$'", "'").replace("\\n", "\n"))[2:]
    headers, method, body, is_query = {"Accept": "*/*"}, "", None, "-G" in options
    for option, value in pairwise(options):
        if option == "-H":
            name, _, text = value.partition(":")
            headers[name] = text.strip()
        elif option == "-X":
            method = value
        elif option in ("-d", "--data-binary", "--data-urlencode"):
            name, _, text = value.partition("=")
            body = f"{name}={quote(text)}" if option == "--data-urlencode" else value
            headers.setdefault("Content-Type", WEB_FORM)
    if is_query:
        path, body = f"{path}?{body}", None
        headers.pop("Content-Type", None)
    given = {name: text for name, text in headers.items() if text}
    return method or ("GET" if body is None else "POST"), path, given, None if body is None else body.encode()


EVERY = [(name, command, reply) for name in SERVERS for command, reply in _recorded(name).items()]


def test_each_file_has_a_container() -> None:
    assert {each.stem for each in RECORDED.iterdir()} == SERVERS.keys()


@pytest.mark.parametrize(
    ("name", "command", "reply"), EVERY, ids=[f"{name}: {command[9:]}" for name, command, _ in EVERY]
)
def test_a_container_says_what_the_real_server_said(name: str, command: str, reply: Reply) -> None:
    with serve(CONTAINERS[SERVERS[name]]) as server:
        assert asked(server.url, command).comparable == reply.comparable


def test_a_container_counts_the_requests() -> None:
    with serve(CONTAINERS["ray"]) as server:
        assert asked(server.url, "curl -si / -H 'Content-Type: application/json' -d '[1,[2]]'").body == "[2,[4]]"
        assert server.requests == ["POST /"]


@pytest.mark.parametrize("name", ["cog", "cog_0_16", "cog_0_9"])
def test_a_cog_is_busy_while_a_test_wants_it(name: str) -> None:
    command = "curl -si /predictions -H 'Content-Type: application/json' -d '{\"input\": {\"x\": [1]}}'"
    with serve(CONTAINERS[name]) as server:
        BUSY.set()
        try:
            assert asked(server.url, command).status == "HTTP/1.1 409 Conflict"
        finally:
            BUSY.clear()
        assert asked(server.url, command).status == "HTTP/1.1 200 OK"


def test_embeddings_are_numbers_or_base64() -> None:
    with serve(CONTAINERS["embeddings"]) as server:
        for more, expected in (("", [5.0, 2.5]), (',"encoding_format":"base64"', "AACgQAAAIEA=")):
            body = f'{{"model":"m","input":"hello"{more}}}'
            found = asked(server.url, f"curl -si /v1/embeddings -H 'Content-Type: application/json' -d '{body}'")
            assert json.loads(found.body)["data"][0]["embedding"] == expected
