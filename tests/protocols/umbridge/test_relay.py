"""Calls that pass unread between two sides of UM-Bridge, and those that are read instead."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import unread
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings, Target
from gateway.core.requests import Request
from gateway.protocols.umbridge.relay import RELAY
from tests.protocols.umbridge.wire import (
    LISTENER,
    NAMES,
    TARGET,
    UMBRIDGE,
    call,
    recorded_reply,
    recorded_request,
    reply,
)
from tests.wires import Wires, replying


def passing(message: Message) -> Request:
    request = unread(message, UMBRIDGE, LISTENER)
    assert request is not None
    return request


M = passing(call("/Evaluate", b'{"name":"m","input":[[1]],"config":{}}'))


def asks(message: Message, limits: Limits | None = None) -> tuple[Operation, str] | None:
    """The operation and the model of a message that passes unread; None if it is read."""
    request = RELAY.head(message, LISTENER if limits is None else ListenerSettings("in", limits))
    return None if request is None else (request.operation, request.model)


# --- requests ---

PASSING = {
    "Python's client": ("/Evaluate", b'{"name": "m", "input": [[1.0, -2.5e-3], [3]], "config": {}}', "m"),
    "C++'s client": ("/Evaluate", b'{"config":{},"input":[[1.0]],"name":"m"}', "m"),
    "blanks": ("/Evaluate", b' {\n"name" :\t"m" ,\r\n"input" : [ [ 1 ] , [ ] ] , "config" : { } } \n', "m"),
    "no vectors": ("/Evaluate", b'{"name":"m","input":[],"config":{}}', "m"),
    "an empty vector": ("/Evaluate", b'{"name":"m","input":[[]],"config":{}}', "m"),
    "config": (
        "/Evaluate",
        b'{"config": {"name": "other", "level": 1.5, "a": null}, "name": "m", "input": [[1]]}',
        "m",
    ),
    "a config of four levels": (
        "/Evaluate",
        b'{"name": "m", "config": {"name": ["]}", {"b": [1, "{"]}], "c": {}}, "input": [[1]]}',
        "m",
    ),
    "a name in UTF-8": ("/Evaluate", '{"name":"größe {1}","input":[[1]],"config":{}}'.encode(), "größe {1}"),
    "numbers that nobody reads": ("/Evaluate", b'{"name":"m","input":[[NaN,1e999,00,true]],"config":{}}', "m"),
    "64 vectors": ("/Evaluate", b'{"name":"m","input":[[1]%b],"config":{}}' % (b",[1]" * 63), "m"),
    "Gradient": ("/Gradient", b'{"name":"m","outWrt":-1,"inWrt":12,"input":[[1]],"sens":[1],"config":{}}', "m"),
    "ApplyJacobian": ("/ApplyJacobian", b'{"name":"m","outWrt":0,"inWrt":0,"input":[[1]],"vec":[],"config":{}}', "m"),
    "ApplyHessian": (
        "/ApplyHessian",
        b'{"name":"m","outWrt":0,"inWrt1":0,"inWrt2":1,"input":[[1]],"sens":[1],"vec":[2],"config":{}}',
        "m",
    ),
}
OPERATIONS = {
    "/Evaluate": Operation.INFER,
    "/Gradient": Operation.GRADIENT,
    "/ApplyJacobian": Operation.APPLY_JACOBIAN,
    "/ApplyHessian": Operation.APPLY_HESSIAN,
}


@pytest.mark.parametrize(("path", "body", "model"), PASSING.values(), ids=PASSING)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_passes_goes_to_the_server_byte_for_byte(path: str, body: bytes, model: str, kind: Any) -> None:
    message = Message("POST", path, Headers([(b"x", b"y")]), (kind(body),), pattern=f"POST {path}", query="a=b")
    request = passing(message)
    assert (request.operation, request.model, request.version) == (OPERATIONS[path], model, "")
    sent = RELAY.request(message, request, TARGET)
    assert sent is not None
    assert (sent.method, sent.path, sent.query, sent.parts) == ("POST", path, "", message.parts)
    assert sent.headers.raw == ((b"content-type", b"application/json"),)


READ = {
    "not a call": ("/InputSizes", b'{"name":"m","config":{}}'),
    "shared memory": ("/EvaluateShMem", b'{"name":"m","input":[],"config":{}}'),
    "empty": ("/Evaluate", b""),
    "no object": ("/Evaluate", b'["name"]'),
    "not closed": ("/Evaluate", b'{"name":"m","input":[[1]],"config":{}'),
    "more behind it": ("/Evaluate", b'{"name":"m","input":[[1]],"config":{}}{}'),
    "a byte order mark": ("/Evaluate", b'\xef\xbb\xbf{"name":"m","input":[[1]],"config":{}}'),
    "UTF-16": ("/Evaluate", '{"name":"m","input":[[1]],"config":{}}'.encode("utf-16")),
    "two names": ("/Evaluate", b'{"name":"m","name":"n","input":[[1]],"config":{}}'),
    "an escape in a name": ("/Evaluate", b'{"name":"m\\u0061","input":[[1]],"config":{}}'),
    "a second name behind an escape": ("/Evaluate", b'{"name":"m","n\\u0061me":"n","input":[[1]],"config":{}}'),
    "no name": ("/Evaluate", b'{"input":[[1]],"config":{"name":"m"}}'),
    "an empty name": ("/Evaluate", b'{"name":"","input":[[1]],"config":{}}'),
    "a name that is no text": ("/Evaluate", b'{"name":1,"input":[[1]],"config":{}}'),
    "a name that is not UTF-8": ("/Evaluate", b'{"name":"\xff","input":[[1]],"config":{}}'),
    "a line break in a name": ("/Evaluate", b'{"name":"m\n","input":[[1]],"config":{}}'),
    "an unknown member": ("/Evaluate", b'{"name":"m","input":[[1]],"config":{},"tid":1}'),
    "a member of another call": ("/Evaluate", b'{"name":"m","input":[[1]],"sens":[1],"config":{}}'),
    # The gateway writes these as every server reads them.
    "no config": ("/Evaluate", b'{"name":"m","input":[[1]]}'),
    "config is null": ("/Evaluate", b'{"name":"m","input":[[1]],"config":null}'),
    "config is R's empty list": ("/Evaluate", b'{"name":"m","input":[[1]],"config":[]}'),
    "no input": ("/Evaluate", b'{"name":"m","config":{}}'),
    "a number for a vector of one": ("/Evaluate", b'{"name":"m","input":[1],"config":{}}'),
    "the same behind a vector": ("/Evaluate", b'{"name":"m","input":[[1,2],3],"config":{}}'),
    "the same before one": ("/Evaluate", b'{"name":"m","input":[3,[1,2]],"config":{}}'),
    "the same for sens": ("/Gradient", b'{"name":"m","outWrt":0,"inWrt":0,"input":[[1]],"sens":1,"config":{}}'),
    "a position with a fraction": (
        "/Gradient",
        b'{"name":"m","outWrt":0.0,"inWrt":0,"input":[[1]],"sens":[1],"config":{}}',
    ),
    "a position in quotes": ("/Gradient", b'{"name":"m","outWrt":"0","inWrt":0,"input":[[1]],"sens":[1],"config":{}}'),
    "no sens": ("/Gradient", b'{"name":"m","outWrt":0,"inWrt":0,"input":[[1]],"config":{}}'),
    # What ends where is not told by brackets alone.
    "a config of five levels": ("/Evaluate", b'{"name":"m","input":[[1]],"config":{"a":[{"b":[{}]}]}}'),
    "a config that does not end": ("/Evaluate", b'{"name":"m","input":[[1]],"config":{"a":[}'),
    "a config that ends too soon": ("/Evaluate", b'{"name":"m","input":[[1]],"config":{"a":1}}}'),
    "an escape in config": ("/Evaluate", b'{"name":"m","input":[[1]],"config":{"a":"\\""}}'),
    "a bracket in a text": ("/Evaluate", b'{"name":"m","input":[["]],"],[1]],"config":{}}'),
    "a name in a vector": ("/Evaluate", b'{"input":[["]],\\"name\\":\\"n\\"}"]],"name":"m","config":{}}'),
    "nested vectors": ("/Evaluate", b'{"name":"m","input":[[[1],[2]]],"config":{}}'),
    "a vector that does not end": ("/Evaluate", b'{"config":{},"name":"m","input":[[1'),
    "65 vectors": ("/Evaluate", b'{"name":"m","input":[[1]%b],"config":{}}' % (b",[1]" * 64)),
}


@pytest.mark.parametrize(("path", "body"), READ.values(), ids=READ)
def test_what_is_read(path: str, body: bytes) -> None:
    assert asks(call(path, body)) is None


def with_config(text: bytes) -> bytes:
    return b'{"name":"m","input":[[1]],"config":%b}' % text


def test_a_config_beyond_a_limit_is_read() -> None:
    body, limits = with_config(b'{"a":"%b"}' % (b"x" * 100)), Limits(config=107)
    assert asks(call("/Evaluate", body), Limits(config=108)) == (Operation.INFER, "m")
    assert asks(call("/Evaluate", body), limits) is None
    message = call("/Evaluate", body)
    assert RELAY.request(message, passing(message), Target(limits=Limits(config=108))) is not None
    assert RELAY.request(message, passing(message), Target(limits=limits)) is None


def test_a_long_config_is_read() -> None:
    assert asks(call("/Evaluate", with_config(b'{"a":"%b"}' % (b"x" * 2**16)))) is None


@pytest.mark.parametrize("name", NAMES)
def test_calls_of_the_real_client_pass(name: str) -> None:
    message = recorded_request(name)
    found = asks(message)
    written_by_hand = {"error_malformed", "error_method", "error_unsupported"}
    assert (found is not None) is (message.path in OPERATIONS and name not in written_by_hand)
    if found is not None:
        request = UMBRIDGE.decode_request(message, LISTENER)
        assert found == (request.operation, request.model)


PIECES = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b" ", b"1", b"-", b"null", b'"name"', b'"m"', b'"n"', b'"input"',
    b'"config"', b"{}", b"[[1]]", b'"name":"n"', b'"name":"m",', b'"input":[[1]],', b'"config":{}', b'"sens":[1],',
    b'"a":"]"', b'"]],[["', b'[[{"a":[[1]],', b"}]]", b"\\u006eame", b'"]],"', b"\xff", b"\x00", b'{"name":"n"}',
]  # fmt: skip
WHOLE = b'{"name":"m","input":[[1,2]],"config":{"a":"b"}}'


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A whole body with pieces of others in it."""
    body = WHOLE
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        cut = draw(st.integers(0, 2))
        body = body[:at] + draw(st.sampled_from(PIECES)) + body[at + cut :]
    return body


@given(bodies())
def test_the_model_is_the_one_that_readers_find(body: bytes) -> None:
    """Whoever takes the body as JSON finds the name once, and so does the gateway where it reads it."""
    found = asks(call("/Evaluate", body))
    if found is None:
        return
    try:
        request = UMBRIDGE.decode_request(call("/Evaluate", body), LISTENER)
    except (DecodeError, GatewayError):
        pass
    else:
        assert (request.operation, request.model) == found
    try:
        members = json.loads(body, object_pairs_hook=lambda pairs: pairs)
    except ValueError:
        return
    assert [value for name, value in members if name == "name"] == [found[1]]


# --- replies ---

RELAYED = {
    "Python's server": b'{"output": [[18, 27.5], [-5e-300]]}',
    "C++'s server": b'{"output":[[18.0]]}',
    "a derivative": b'{"output": [1, 2]}',
    "blanks": b' {\n"output" : [ [1] ] }\n',
}


@pytest.mark.parametrize("body", RELAYED.values(), ids=RELAYED)
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_replies_pass_whatever_their_content_type(body: bytes, kind: Any) -> None:
    told = Message(headers=Headers([(b"content-type", b"text/plain"), (b"x", b"y")]), parts=(kind(body),), status=201)
    passed = RELAY.reply(told, M, TARGET)
    assert passed is not None
    assert (passed.status, passed.parts) == (200, told.parts)
    assert passed.headers.raw == ((b"content-type", b"application/json"),)


READ_REPLIES = [
    b"", b"{}", b'{"output": null}', b'{"output": [[null]]}', b'{"output": [[nan, inf, -inf]]}', b'{"output": [[NaN]]}',
    b'{"output": [[Infinity]]}', b'{"output": [[1e400, True]]}', b'{"output": [[np.float64(1.5)]]}',
    b'{"output": [[1]], "more": 1}', b'{"more": 1, "output": [[1]]}', b'{"output": [["a"]]}',
    b'{"error": {"type": "InvalidInput", "message": "no"}}', b"wrong",
]  # fmt: skip


@pytest.mark.parametrize("body", READ_REPLIES)
def test_replies_that_are_read(body: bytes) -> None:
    assert RELAY.reply(reply(body), M, TARGET) is None


def test_an_error_is_raised_though_nothing_of_the_request_was_read() -> None:
    told = reply('{"error": {"type": "ModelNotFound", "message": "no such model"}}', status=400)
    with pytest.raises(GatewayError, match="no such model") as caught:
        RELAY.reply(told, M, TARGET)
    assert caught.value.reason is Reason.MODEL_NOT_FOUND
    with pytest.raises(GatewayError, match="boom"):
        RELAY.reply(reply("", 500, Headers([(b"exception_what", b"boom")])), M, TARGET)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_replies_pass_or_are_told_as_errors(name: str) -> None:
    told = recorded_reply(name)
    if recorded_request(name).path not in OPERATIONS:
        return
    if name.startswith("error"):
        with pytest.raises(GatewayError):
            RELAY.reply(told, M, TARGET)
    else:
        passed = RELAY.reply(told, M, TARGET)
        assert (passed is None) is (name == "infinite_evaluate")
        assert passed is None or passed.parts == told.parts


# --- through a gateway ---

CONFIG = """
listeners: [{name: in, bind: "127.0.0.1:0", protocols: [umbridge]}]
backends: {lab: {protocol: umbridge, endpoints: ["lab:1"]}}
routes: [{match: {model: m}, backend: lab}]
"""


async def test_bytes_pass_through_a_gateway_in_both_directions() -> None:
    told = b'{"output":  [[1e0,\n0.10]]}'
    wires = Wires(CONFIG, lab=replying(told, headers=[(b"content-type", b"text/plain"), (b"server", b"x")]))
    body = b'{"name": "m",  "input": [[1e0, 0.10]], "config": {"a": 1.50}}'
    passed = await wires.post("umbridge", "/Evaluate", body)
    assert (passed.status, passed.body) == (200, told)
    assert passed.headers.raw == ((b"content-type", b"application/json"),)
    assert [(each.path, each.body) for each in wires.sent["lab"]] == [("/Evaluate", body)]


async def test_what_one_side_writes_and_the_other_does_not_read_is_written_anew() -> None:
    answers = {
        "/Evaluate": b'{"output": [[nan, -inf, 1.0]]}',
        "/InputSizes": b'{"inputSizes": [2, 1]}',
        "/OutputSizes": b'{"outputSizes": [3]}',
        "/ModelInfo": b'{"support": {"Evaluate": true}}',
    }

    async def lab(message: Message) -> Message:
        return reply(answers[message.path])

    wires = Wires(CONFIG, lab=lab)
    passed = await wires.post("umbridge", "/Evaluate", b'{"name": "m", "input": [[1, 2]], "config": {}}')
    assert passed.body == b'{"output":[[NaN,-Infinity,1.0]]}'
    await wires.post("umbridge", "/Evaluate", b'{"name": "m", "input": [[1, 2], 3]}')
    sent = [each.body for each in wires.sent["lab"] if each.path == "/Evaluate"]
    assert sent == [
        b'{"name": "m", "input": [[1, 2]], "config": {}}',
        b'{"name":"m","input":[[1.0,2.0],[3.0]],"config":{}}',
    ]


async def test_two_names_reach_no_server() -> None:
    wires = Wires(CONFIG, lab=replying(b'{"output": [[1]]}'))
    body = b'{"name": "m", "name": "secret", "input": [[1]], "config": {}}'
    assert (await wires.post("umbridge", "/Evaluate", body)).status == 400
    assert wires.sent["lab"] == []
