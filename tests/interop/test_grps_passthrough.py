"""Clients of customized HTTP -> gateway -> grps servers, whose replies are the models' own with status and headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest

from tests.in_thread import in_thread
from tests.interop.exchanges import gateway
from tests.interop.processes import free_port
from tests.limits import GENEROUS
from tests.peers import grps_cpp, grps_python
from tests.peers.grps_http import Reply, Server

PATH = "/v1/chat/completions"
OWN = (("X-Own", "1"),)
REPLIES = {
    "/empty": Reply(200, b"", "text/plain", OWN),
    "/empty-stream": Reply(200, iter(()), "text/event-stream", OWN),
    "/large": Reply(200, b"x" * 200_000, "text/plain", OWN),
    "/none": Reply(204, b"", None, OWN),
    "/same": Reply(304, b"", None, (*OWN, ("ETag", '"1"'))),
    "/bad": Reply(418, b"why", "text/plain", OWN),
}


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The address of a listener in front of each server."""
    own = Server(lambda call: REPLIES[call.path], close_each=False)
    with (
        in_thread(own),
        grps_python.serve(grpc_port=None, customized_path=PATH, customized_body=True) as python,
        grps_cpp.serve(grpc_port=None, brpc_port=None, customized_path=PATH, customized_body=True) as cpp,
    ):
        backends = {"python": python.http.address, "cpp": cpp.http.address, "own": own.address}
        fronts = {back: f"127.0.0.1:{free_port()}" for back in backends}
        config = {
            "listeners": [{"name": back, "bind": bind, "protocols": ["grps-rest"]} for back, bind in fronts.items()],
            "backends": {back: {"protocol": "grps-rest", "endpoints": [address]} for back, address in backends.items()},
            "routes": [
                {"match": {"listener": back, "path": path}, "backend": back, "passthrough": True}
                for back in backends
                for path in ([PATH] if back != "own" else REPLIES)
            ],
        }
        with gateway(json.dumps(config), tmp_path_factory.mktemp("gateway")):
            yield fronts


def asked(address: str, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    with closing(HTTPConnection(address, timeout=GENEROUS)) as connection:
        connection.request(method, path, b"a\nb" if method == "POST" else None, {"Content-Type": "text/plain"})
        with connection.getresponse() as reply:
            return reply.status, {name.lower(): text for name, text in reply.getheaders()}, reply.read()


@pytest.mark.parametrize("back", ["python", "cpp"])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", (200, "text/plain", b"a\nb")),
        ("?model=fail", (200, None, b"")),
        ("?model=crash", (500, "text/plain", b"the model broke")),
        ("?streaming=true", (200, "text/event-stream", b"data: a\n\ndata: b\n\n")),
    ],
)
def test_replies_are_the_models_own(
    fronts: dict[str, str], back: str, query: str, expected: tuple[int, str | None, bytes]
) -> None:
    status, headers, body = asked(fronts[back], "POST", PATH + query)
    assert (status, headers.get("content-type"), body) == expected


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("path", REPLIES)
def test_whatever_has_no_body_has_its_head(fronts: dict[str, str], method: str, path: str) -> None:
    own = REPLIES[path]
    status, headers, body = asked(fronts["own"], method, path)
    whole = own.body if isinstance(own.body, bytes) else b""
    assert (status, headers.get("content-type"), headers["x-own"]) == (own.status, own.kind, "1")
    assert body == (b"" if method == "HEAD" else whole)
    assert headers.get("etag") == ('"1"' if path == "/same" else None)
    if isinstance(own.body, bytes) and own.status not in (204, 304):
        assert headers["content-length"] == str(len(whole))
