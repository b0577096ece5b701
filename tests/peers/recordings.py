"""Replies of real servers to commands of curl, in `recorded`, and requests as these commands send them.

The files have no headers that differ from call to call, such as dates and ids of requests. Tracebacks and `logs` are
cut.
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

from tests.limits import GENEROUS

RECORDED = Path(__file__).with_name("recorded")
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


def recorded(name: str) -> dict[str, Reply]:
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
