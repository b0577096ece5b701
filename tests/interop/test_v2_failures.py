"""A V2 server that is down, breaks off, or answers what none should: the client is told which backend it was."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.interop.exchanges import Addresses, Listen
from tests.interop.literal_server import literal_server
from tests.interop.rawhttp import Answer, post
from tests.interop.real_clients import infer, packed, raw_of, tensor, tritonclient
from tests.limits import GENEROUS

CONFIG = """
listeners:
  - {{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest]}}
backends:
  stage:
    protocol: v2-rest
    endpoints: ["127.0.0.1:{stage}"]
    flavor: binary
    limits: {{message: 4096, headers: 4096}}
check: full
routes:
  - match: {{model: signed}}
    backend: stage
    signature:
      inputs: [{{name: x, datatype: INT32, shape: [-1]}}]
      outputs: [{{name: y, datatype: INT32, shape: [2]}}]
  - {{match: {{model: "*"}}, backend: stage}}
"""


class Stage:
    """A server that sends these bytes for whatever it is asked. It can leave its address and come back to it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.reply: bytes | None = b""
        self._running = ExitStack()

    def open(self) -> None:
        self.closed = self._running.enter_context(literal_server(self.address, lambda target: self.reply))

    def close(self) -> None:
        self._running.close()


@dataclass(frozen=True)
class Rig:
    gateway: str
    stage: Stage

    @property
    def backend(self) -> str:
        return f"backend 'stage' at {self.stage.address}"

    def ask(self, model: str = "m") -> Answer:
        body = b'{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[1]}]}'
        return post(self.gateway, f"/v2/models/{model}/infer", body)


@pytest.fixture(scope="module")
def addresses(listen: Listen) -> Addresses:
    return listen(CONFIG)


@pytest.fixture
def rig(addresses: Addresses) -> Iterator[Rig]:
    stage = Stage(addresses["stage"])
    stage.open()
    yield Rig(addresses["http"], stage)
    stage.close()


def reply(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def output(members: str, *headers: str, tail: bytes = b"") -> bytes:
    """One output with these members; behind it what should be its binary tensor."""
    document = f'{{"model_name":"m","outputs":[{{"name":"y",{members}}}]}}'.encode()
    told = [f"Inference-Header-Content-Length: {len(document)}"] if tail else []
    return reply(document + tail, *told, *headers)


GOOD = output('"datatype":"INT32","shape":[2],"data":[1,2]')
SIZE = '"parameters":{"binary_data_size":%d}'


BROKEN = {
    "closes without a word": (b"", 503, "closed the connection before it answered"),
    "resets": (None, 503, "the connection before it answered"),
    "closes within the headers": (GOOD[:20], 503, "in the middle of its reply's headers"),
    "closes within the body": (GOOD[:-5], 503, "in the middle of its reply, after"),
    "is no HTTP server": (b"220 mail.example ESMTP\r\n\r\n", 502, "not HTTP/1.1"),
    "promises too much": (reply(b"", length=5000), 502, "limits.message"),
    "sends too many headers": (reply(b"{}", f"X: {'x' * 5000}"), 502, "limits.headers"),
    "sends no gzip": (reply(b"{}", "Content-Encoding: gzip"), 502, "not gzip data"),
    "sends a bomb": (reply(gzip.compress(b" " * 5000), "Content-Encoding: gzip"), 502, "limits.message"),
    "sends brotli": (reply(b"{}", "Content-Encoding: br"), 502, "Content-Encoding 'br'"),
    "redirects": (reply(b"", "Location: /", status="307 Temporary Redirect"), 502, "status 307, expected 200"),
    "has nothing to say": (b"HTTP/1.1 204 No Content\r\n\r\n", 502, "status 204, expected 200"),
}

WRONG = {
    "empty": (reply(b""), "empty body"),
    "HTML": (reply(b"<html>"), "not JSON"),
    "an array": (reply(b"[]"), "expected a JSON object"),
    "no outputs": (reply(b'{"model_name":"m"}'), "outputs are missing"),
    "outputs twice": (reply(b'{"outputs":[],"outputs":[]}'), "occurs twice"),
    "nested deeply": (reply(b'{"outputs":' + b"[" * 1000), "nested deeper than 64"),
    "too few elements": (output('"datatype":"INT32","shape":[3],"data":[1,2]'), "2 elements, but shape [3] takes 3"),
    "a negative shape": (output('"datatype":"INT32","shape":[-1],"data":[1]'), "not -1"),
    "a huge shape": (output('"datatype":"INT32","shape":[4611686018427387904],"data":[]'), "output 'y'"),
    "out of range": (output('"datatype":"INT8","shape":[1],"data":[300]'), "out of the range of INT8"),
    "null": (output('"datatype":"FP32","shape":[1],"data":[null]'), "null is not a number"),
    "an unknown datatype": (output('"datatype":"INT128","shape":[1],"data":[1]'), "datatype must be one of"),
    "no data": (output('"datatype":"INT32","shape":[1]'), "neither data nor binary_data_size"),
    "too few bytes": (
        output(f'"datatype":"INT32","shape":[1],{SIZE % 4}', tail=b"\0\0\0"),
        "binary_data_size is 4, but 3 bytes are left",
    ),
    "trailing bytes": (output(f'"datatype":"INT8","shape":[1],{SIZE % 1}', tail=b"\0\0"), "1 bytes follow"),
    "BYTES cut short": (
        output(f'"datatype":"BYTES","shape":[1],{SIZE % 5}', tail=b"\5\0\0\0a"),
        "reaches past the end",
    ),
    "BOOL 2": (output(f'"datatype":"BOOL","shape":[1],{SIZE % 1}', tail=b"\2"), "the byte 2"),
    "a header length beyond": (reply(b"{}", "Inference-Header-Content-Length: 9"), "is 9, but the body has 2 bytes"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_backend_that(rig: Rig, case: str) -> None:
    rig.stage.reply, status, text = BROKEN[case]
    answer = rig.ask()

    assert answer.status == status, answer
    assert answer.error.startswith(f"{rig.backend}: ")
    assert text in answer.error
    assert_used_again(rig)


@pytest.mark.parametrize("case", WRONG)
def test_a_reply_that_is_wrong(rig: Rig, case: str) -> None:
    rig.stage.reply, text = WRONG[case]
    answer = rig.ask()

    assert answer.status == 502, answer
    assert answer.error.startswith(f"{rig.backend}: ")
    assert text in answer.error
    assert_used_again(rig)


def assert_used_again(rig: Rig) -> None:
    assert rig.stage.closed.wait(GENEROUS)  # before that the gateway cannot know that it needs another connection
    rig.stage.reply = GOOD
    answer = rig.ask()
    assert (answer.status, json.loads(answer.body)["outputs"][0]["data"]) == (200, [1, 2]), answer


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ('"datatype":"INT32","shape":[3],"data":[1,2,3]', "output 'y' has shape [3], expected [2]"),
        ('"datatype":"INT32","shape":[1,2],"data":[1,2]', "output 'y' has shape [1, 2], expected [2]"),
        ('"datatype":"INT64","shape":[2],"data":[1,2]', "output 'y' is INT64, expected INT32"),
    ],
)
def test_a_reply_that_is_not_what_the_route_declares(rig: Rig, members: str, text: str) -> None:
    rig.stage.reply = output(members)
    answer = rig.ask("signed")

    assert (answer.status, "backend 'stage'" in answer.error, text in answer.error) == (502, True, True), answer


@pytest.mark.parametrize(
    ("sent", "status", "text"),
    [
        (reply(b'{"error":"no such thing"}', status="404 Not Found"), 404, "no such thing"),
        (reply(b'{"error":"later"}', status="503 Service Unavailable"), 503, "later"),
        (reply(b"Internal Server Error", status="500 Internal Server Error"), 500, "Internal Server Error"),
        (
            reply(b'{"detail":[{"loc":["body","inputs"],"msg":"Field required"}]}', status="422 Unprocessable Entity"),
            400,
            "body.inputs: Field required",
        ),
        (
            reply(
                b'{"error":"it failed\\nTraceback (most recent call last):\\n'
                b'  File \\"/models/m/1/model.py\\", line 7, in execute\\nValueError: too cold"}',
                status="500 Internal Server Error",
            ),
            500,
            "it failed ValueError: too cold",
        ),
        (reply(b"", status="500 Internal Server Error"), 500, "BACKEND: status 500 without a body"),
    ],
)
def test_errors_that_a_backend_tells_are_passed_on(rig: Rig, sent: bytes, status: int, text: str) -> None:
    """In V2's form, whatever their own; without paths of the server."""
    rig.stage.reply = sent
    answer = rig.ask()

    assert (answer.status, answer.error) == (status, text.replace("BACKEND", rig.backend))


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_a_backend_that_is_down_and_comes_back(rig: Rig, kind: str) -> None:
    step = infer("m", tensor("x", "INT32", [1], packed("i", 1)))
    questions = [{"op": "live"}, {"op": "ready"}, {"op": "index"}, {"op": "server_metadata"}]
    rig.stage.close()
    down, ready, *server = tritonclient(rig.gateway, kind, step, {"op": "model_ready", "model": "m"}, *questions)
    rig.stage.reply = GOOD
    rig.stage.open()
    (back,) = tritonclient(rig.gateway, kind, step)

    assert down["error"] == {
        "type": "InferenceServerException",
        "status": "503",
        "message": f"{rig.backend}: connection refused",
    }
    assert ready is False
    assert server[:2] == [True, False]  # the gateway lives, and its only backend is not ready
    assert server[2] == [{"name": "signed"}]
    assert server[3]["name"] == "modelglot"
    assert raw_of(back) == packed("i", 1, 2)
