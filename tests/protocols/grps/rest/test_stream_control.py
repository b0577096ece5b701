"""How a stream is asked for, where people configure it (`ctrl_mode`, `ctrl_key`, `res_content_type`): both directions
in literal bytes, then two gateways in a row with a reference server behind them."""

import json

import pytest

from gateway.config import ConfigError
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, SettingError
from gateway.core.requests import DEFAULT_TRANSLATE, Response
from gateway.protocols.grps import GRPS_REST
from tests.protocols.grps.rest.wire import JSON, LISTENER, OCTETS, PREDICT, TARGET, X_JSON, X, call, with_header
from tests.protocols.grps.values import inference, texts
from tests.running_gateway import config_of, reference, running_gateway
from tests.tls.running import at, connected

STR, MEMBER = b'{"str_data":"a"}', b'{"streaming":true,"str_data":"a"}'


def controlled(mode: str = "", key: str = "", content_type: str = "") -> Protocol:
    values = {"ctrl_mode": mode, "ctrl_key": key, "res_content_type": content_type}
    return GRPS_REST.with_settings({name: value for name, value in values.items() if value})


def wants_stream(protocol: Protocol, message: Message) -> bool:
    form = protocol.http
    by_head = form.wants_stream is not None and form.wants_stream(replace(message, parts=(b"",)))
    return by_head or (form.body_wants_stream is not None and form.body_wants_stream(message))


def asking(query: str = "", header: tuple[str, str] | None = None, body: bytes = STR) -> Message:
    message = call(body, query=query)
    return message if header is None else with_header(message, *header)


# --- Facing clients ---

ASKED = [
    ("", "", asking("streaming=true")),
    ("", "", asking("streaming=True")),
    ("", "", asking("model=m&streaming=TRUE")),
    ("", "", asking(header=("streaming", "true"))),
    ("", "", asking(header=("streaming", "True"))),
    ("", "", asking("streaming=true", body=MEMBER)),
    ("", "go", asking("go=TRUE")),
    ("", "go", asking(header=("go", "true"))),
    ("query", "", asking("model=m&streaming=True")),
    ("query", "go", asking("g%6F=true")),
    ("header", "", asking(header=("streaming", "true"))),
    ("header", "X-Stream", asking(header=("x-stream", "TRUE"))),
    ("body", "", asking(body=MEMBER)),
    ("body", "stream", asking(body=b'{"str_data":"a", "stream" : true }')),
]


@pytest.mark.parametrize(("mode", "key", "message"), ASKED)
def test_a_listener_is_asked_for_a_stream(mode: str, key: str, message: Message) -> None:
    protocol = controlled(mode, key)
    request = decoded(message, protocol, LISTENER)
    assert wants_stream(protocol, message)
    assert request.operation is Operation.STREAM
    assert request.inputs == (replace(texts("", "a"), content_type="text"),)


NOT_ASKED = [
    ("", "", asking()),
    ("", "", asking("streaming=false")),
    ("", "", asking(header=("streaming", "false"))),
    ("", "", asking(body=b'{"streaming":false,"str_data":"a"}')),
    ("query", "", asking("streaming=false")),
    ("query", "go", asking("streaming=true")),
    ("query", "", asking(header=("streaming", "maybe"))),
    ("header", "go", asking(header=("streaming", "true"))),
    ("header", "", asking(header=("streaming", "false"))),
    ("body", "stream", asking(body=b'{"stream":false,"str_data":"a"}')),
    ("body", "stream", asking(body=b'{"stream":null,"str_data":"a"}')),
    ("body", "stream", asking()),
    ("body", "stream", asking(body=b'{"str_data":"a","other":{"stream":true}}')),
]


@pytest.mark.parametrize(("mode", "key", "message"), NOT_ASKED)
def test_a_listener_is_not_asked_for_a_stream(mode: str, key: str, message: Message) -> None:
    protocol = controlled(mode, key)
    assert not wants_stream(protocol, message)
    assert decoded(message, protocol, LISTENER).operation is Operation.INFER


REFUSED = [
    # ignored, they would be answered with something else than was asked for
    *[
        ("", "", asking(query), f"in the query is '{word}', expected true or false")
        for query, word in {"streaming=1": 1, "streaming=yes": "yes", "streaming=": "", "streaming": ""}.items()
    ],
    ("", "", asking(header=("streaming", "maybe")), "the header streaming is 'maybe', expected true or false"),
    ("", "", asking(body=MEMBER), "use streaming=true in the query or a header streaming: true"),
    ("header", "go", asking("go=true"), "go in the query does not ask for a stream here: ask with a header go: true"),
    ("body", "go", asking("go=true"), 'go in the query does not ask .* a member "go": true in the JSON body'),
    ("query", "go", asking(header=("go", "true")), "go in the header does not ask .*: ask with go=true in the query"),
    ("body", "go", asking(header=("go", "true")), "go in the header does not ask"),
    ("header", "go", asking(header=("go", "yes")), "the header go is 'yes', expected true or false"),
    ("query", "go", asking(body=b'{"go":true,"str_data":"a"}'), "member 'go' does not request .*; use go=true in the"),
    ("body", "go", asking(body=b'{"go":1,"str_data":"a"}'), "member 'go' does not request a stream"),
    ("body", "go", asking(body=b'{"go":"true","str_data":"a"}'), "member 'go' does not request a stream"),
    ("body", "go", asking(body=b'{"go":true,"str_data":"a"'), "JSON"),
    ("body", "go", asking(body=b'{"go":true,"str_data":"a"}{}'), "JSON"),
]


@pytest.mark.parametrize(("mode", "key", "message", "told"), REFUSED)
def test_a_stream_asked_for_in_another_way_is_refused(mode: str, key: str, message: Message, told: str) -> None:
    protocol = controlled(mode, key)
    assert not wants_stream(protocol, message)
    with pytest.raises(DecodeError, match=told):
        decoded(message, protocol, LISTENER)


def test_bytes_have_no_member_that_asks() -> None:
    message = call(b'{"go":true}', OCTETS)
    protocol = controlled("body", "go")
    assert not wants_stream(protocol, message)
    assert decoded(message, protocol, LISTENER).inputs == (texts("", b'{"go":true}'),)


@pytest.mark.parametrize(("content_type", "expected"), [("", OCTETS), ("text/event-stream", "text/event-stream")])
def test_a_stream_has_the_type_of_the_listener(content_type: str, expected: str) -> None:
    protocol = controlled("query", content_type=content_type)
    request = decoded(asking("streaming=true"), protocol, LISTENER)
    message = protocol.encode_response(Response((texts("", "b"),)), request, DEFAULT_TRANSLATE)
    assert protocol.encode_end is not None
    end = protocol.encode_end(request)
    assert end is not None
    assert [each.headers.get("content-type") for each in (message, end)] == [expected, expected]


# --- Facing backends ---

SENT = [
    ("", "", "streaming=true", "", X_JSON),
    ("query", "go", "go=true", "", X_JSON),
    ("header", "X-Stream", "", "x-stream", X_JSON),
    ("body", "go", "", "", b'{"go":true,' + X_JSON[1:]),
]


@pytest.mark.parametrize(("mode", "key", "query", "header", "body"), SENT)
def test_a_backend_is_asked_for_a_stream(mode: str, key: str, query: str, header: str, body: bytes) -> None:
    request = replace(inference(X, model=""), operation=Operation.STREAM)
    message = controlled(mode, key).encode_request(request, TARGET)
    fields = [("content-type", JSON), *([(header, "true")] if header else [])]
    assert (message.path, message.query, list(message.headers)) == (PREDICT, query, fields)
    assert b"".join(map(bytes, message.parts)) == body


@pytest.mark.parametrize("mode", ["query", "header", "body"])
def test_a_call_is_the_same_in_every_mode(mode: str) -> None:
    request = inference(X, model="")
    assert controlled(mode, "go").encode_request(request, TARGET) == GRPS_REST.encode_request(request, TARGET)


def test_bytes_are_not_asked_for_by_a_member() -> None:
    request = replace(inference(texts("t", b"\xff"), payload="bin_data"), operation=Operation.STREAM)
    with pytest.raises(GatewayError, match="ctrl_mode: body") as caught:
        controlled("body").encode_request(request, TARGET)
    assert caught.value.reason is Reason.UNSUPPORTED
    by_header = controlled("header").encode_request(request, TARGET)
    assert (by_header.query, by_header.headers.get("streaming"), by_header.body) == ("model=m", "true", b"\xff")


@pytest.mark.parametrize(
    ("settings", "key", "told"),
    [
        ({"ctrl_mode": "Query"}, "ctrl_mode", "'Query' is none of query, header, body"),
        ({"ctrl_mode": "query", "ctrl_key": "model"}, "ctrl_key", "'model' means something else in the query"),
        ({"ctrl_mode": "header", "ctrl_key": "Content-Type"}, "ctrl_key", "means something else in the header"),
        ({"ctrl_mode": "header", "ctrl_key": "a b"}, "ctrl_key", "'a b' is not a header's name"),
        ({"ctrl_mode": "body", "ctrl_key": "gtensors"}, "ctrl_key", "means something else in the body"),
        ({"ctrl_key": "host"}, "ctrl_key", "means something else in the header"),
        ({"ctrl_key": "X-Request-Id"}, "ctrl_key", "'X-Request-Id' means something else in the header"),
        ({"res_content_type": "a\r\nb: c/d"}, "res_content_type", "is not a content type such as text/event-stream"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, str], key: str, told: str) -> None:
    with pytest.raises(SettingError, match=told) as caught:
        GRPS_REST.with_settings(settings)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("listener", "backend", "told"),
    [
        ("{grps-rest: {ctrl_mod: body}}", "{}", "3:86: grps-rest has no setting 'ctrl_mod'; did you mean 'ctrl_mode'?"),
        ("{grps-rest: {ctrl_mode: cookie}}", "{}", "3:97: 'cookie' is none of query, header, body"),
        ("{grps-grpc: {ctrl_mode: body}}", "{}", "3:74: the listener does not serve 'grps-grpc'"),
        ("{}", "{ctrl_key: host}", "4:91: 'host' means something else in the header; choose another name"),
        ("{}", "{ctrl_mode: 1}", "4:92: expected text, got 1"),
    ],
)
def test_a_wrong_setting_is_told_with_its_place(listener: str, backend: str, told: str) -> None:
    text = ROW.format(listener="X", address="127.0.0.1:1", backend=f", settings: {backend}")
    with pytest.raises(ConfigError) as caught:
        config_of(text.replace("{grps-rest: X}", listener))
    assert told in str(caught.value).removeprefix("test.yaml:")


# --- Gateways in a row ---

ROW = """
listeners:
  - {{name: http, bind: "127.0.0.1:0", protocols: [grps-rest], settings: {{grps-rest: {listener}}}}}
backends: {{behind: {{protocol: grps-rest, endpoints: ["{address}"]{backend}}}}}
routes: [{{match: {{}}, backend: behind}}]
"""
MODES = {"query": ("?go=true", "", ""), "header": ("", "Go: true\r\n", ""), "body": ("", "", '"go":true,')}
DOUBLES = (
    '{%s"model":"double","gtensors":{"tensors":[{"name":"x",'
    '"dtype":"DT_FLOAT64","shape":[1,2],"flat_float64":[1,2.50]}]}}'
)


def settings(mode: str) -> str:
    return f"{{ctrl_mode: {mode}, ctrl_key: go}}"


async def answer(port: int, query: str, headers: str, body: str) -> tuple[str, bytes]:
    """The head, and what comes after it, of the reply to a request."""
    content = body.encode()
    head = f"POST {PREDICT}{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {JSON}\r\n{headers}"
    async with connected(port, None) as (reader, writer):
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        reply = await reader.read()
    found, _, rest = reply.partition(b"\r\n\r\n")
    return found.decode().lower(), rest


@pytest.mark.parametrize("behind", MODES)
@pytest.mark.parametrize("front", MODES)
async def test_two_gateways_that_are_asked_in_different_ways(front: str, behind: str) -> None:
    query, headers, member = MODES[front]
    async with (
        reference("grps-rest", "double") as address,
        running_gateway(ROW.format(listener=settings(behind), address=address, backend="")) as second,
    ):
        further = f", settings: {settings(behind)}"
        listener = f"{{ctrl_mode: {front}, ctrl_key: go, res_content_type: text/event-stream}}"
        text = ROW.format(listener=listener, address=f"127.0.0.1:{at(second, 'http')}", backend=further)
        async with running_gateway(text) as first:
            streamed = await answer(at(first, "http"), query, headers, DOUBLES % member)
            whole = await answer(at(first, "http"), "", "", DOUBLES % "")
    assert "\r\ntransfer-encoding: chunked" in streamed[0]
    assert "\r\ncontent-type: text/event-stream" in streamed[0]
    size, _, rest = streamed[1].partition(b"\r\n")
    message = json.loads(rest[: int(size, 16)])
    assert message["gtensors"]["tensors"][0]["flat_float64"] == [2, 5]
    assert "go" not in message
    assert "\r\ncontent-type: application/json" in whole[0]
    assert json.loads(whole[1])["gtensors"] == message["gtensors"]


async def test_a_compressed_body_is_not_asked() -> None:
    async with reference("grps-rest", "double") as address:
        text = ROW.format(listener=settings("body"), address=address, backend="")
        async with running_gateway(text) as gateway:
            head, body = await answer(at(gateway, "http"), "", "Content-Encoding: gzip\r\n", "x")
    assert head.startswith("http/1.1 400 ")
    assert "send it uncompressed" in json.loads(body)["status"]["msg"]
