"""Messages that pass unread between two sides of grps-rest: which do, and what the server and the client get."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import unread
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Protocol, Relay
from gateway.core.requests import Request
from gateway.protocols.grps import GRPS_REST
from gateway.protocols.grps.errors import ModelFailure
from tests.limits import examples
from tests.protocols.grps.rest.wire import JSON, LISTENER, OCTETS, OK_STATUS, PREDICT, TARGET, call, reply, with_header

WITH_MODEL = ListenerSettings("http", model="default")
ASKED_IN = {
    mode: GRPS_REST.with_settings({"ctrl_mode": mode, "ctrl_key": "stream"}) for mode in ("query", "header", "body")
}
NUMBERS = b"[%b]" % b",".join([b"0.25"] * 1000)  # more than what is parsed in any case
LARGE = (
    b'"gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT32", "shape": [1000], "flat_float32": %b}]}' % NUMBERS
)
SMALL = b'"str_data": "hi"'


def relay(protocol: Protocol = GRPS_REST) -> Relay:
    assert protocol.relay is not None
    return protocol.relay


def headed(message: Message, protocol: Protocol = GRPS_REST, listener: ListenerSettings = LISTENER) -> Request | None:
    return unread(message, protocol, listener)


def passing(message: Message, protocol: Protocol = GRPS_REST, listener: ListenerSettings = LISTENER) -> Request:
    """The request of a message that passes."""
    request = headed(message, protocol, listener)
    assert request is not None
    return request


def sent(message: Message, protocol: Protocol = GRPS_REST, listener: ListenerSettings = LISTENER) -> Message:
    """What the server gets."""
    request = replace(passing(message, protocol, listener), deadline=message.deadline)
    found = relay(protocol).request(message, request, TARGET)
    assert found is not None
    return found


def replied(back: Message, message: Message | None = None, protocol: Protocol = GRPS_REST) -> Message | None:
    return relay(protocol).reply(back, passing(message or call(b"{%b}" % SMALL), protocol), TARGET)


def told(back: Message, message: Message | None = None, protocol: Protocol = GRPS_REST) -> Message:
    """What the client gets of a reply that passes."""
    found = replied(back, message, protocol)
    assert found is not None
    return found


# --- requests ---


@pytest.mark.parametrize("content_type", [JSON, "application/json; charset=utf-8", "", "text/plain"])
def test_json_goes_on_as_it_came_under_its_type(content_type: str) -> None:
    body = b'{ "model": "m-1.0.0",\n "unknown": [null, {}], "str_data": "h\\n\xc3\xa9" }'
    message = replace(call(body, content_type, "a=b"), deadline=7.0)
    found = sent(with_header(message, "cookie", "mine"))
    assert (found.method, found.path, found.query) == ("POST", PREDICT, "model=m-1.0.0")
    assert (found.parts, found.deadline) == ((body,), 7.0)
    assert list(found.headers) == [("content-type", JSON)]


def test_bytes_go_on_as_they_came_with_the_model_in_the_query() -> None:
    found = sent(call(b'{"model": "other"}\0', f"{OCTETS}; a=b", "model=first&model=a%20b"))
    assert (found.path, found.query) == (PREDICT, "model=a+b")
    assert (found.parts, list(found.headers)) == ((b'{"model": "other"}\0',), [("content-type", OCTETS)])


def test_an_inference_at_another_path_goes_to_grps_own() -> None:
    assert sent(call(b"{%b}" % SMALL, path="/predict")).path == PREDICT


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize(
    ("members", "query", "model"),
    [
        ("{%b}", "", ""),
        ('{"model": "m", %b}', "", "m"),
        (' {\n"model" : "\u00e9" , %b}\n', "", "\u00e9"),
        ('{%b, "model": "m"}', "", "m"),
        ('{%b, "model":"m" } \r\n', "", "m"),
        ('{"model": "m", %b}', "model=q", "m"),
        ("{%b}", "model=q", "q"),
        ('{%b, "other": {"a": "model"}}', "model=q", "q"),
    ],
)
def test_the_model_is_that_of_the_message_else_that_of_the_query(
    members: str, query: str, model: str, data: bytes, kind: Any
) -> None:
    body = members.replace("%b", data.decode()).encode()
    message = call(kind(body), query=query)
    assert passing(message).model == model == GRPS_REST.decode_request(message, LISTENER).model


def test_the_model_of_a_listener_goes_on_in_the_query() -> None:
    assert sent(call(b"{%b}" % SMALL), listener=WITH_MODEL).query == "model=default"
    assert sent(call(b"x", OCTETS), listener=WITH_MODEL).query == "model=default"
    assert sent(call(b'{"model": "m", %b}' % SMALL), listener=WITH_MODEL).query == "model=m"


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    "members",
    [
        b'{"model": "a", "model": "b", %b}',
        b'{"model": "a", %b, "model": "b"}',
        b'{%b, "model": "b", "model": "a"}',
        b'{"model": "", %b}',
        b'{"model": "\xff", %b}',
        b'{"model": null, %b}',
        b'{"model": 7, %b}',
        b'{"model": ["a"], %b}',
        b'{"model": "a", "\\u006dodel": "b", %b}',
        b'{"\\u006dodel": "b", %b}',
        b'{"mode\\u006C": "b", %b}',
        b'{"model": "a", %b, "x": "\\u0022"}',
        b"\xef\xbb\xbf{%b}",
        b'[{"model": "a", %b}]',
        b"{%b",
        b"{%b, \"a\": 'b'}",
        b'{%b, "streaming": true}',
        b'{%b, "streaming": false}',
        b'{%b, "gtensors": {"tensors": [{"flat_double": [1]}]}}',
        # the servers in C++ pass over protobuf's other names
        b'{%b, "gtensors": {"tensors": [{"flatInt32": [1]}]}}',
        b'{%b, "gmap": {"sI32" : {"a": 1}}}',
        b'{"gmap":{"sB":{"a":"AP8="}}, %b}',
        b'{%b, "strData": "a"}',
        b'{%b, "x": ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", '
        b'"t", "u", "v", "w", "x", "y", "z", "a", "b", "c", "d", "e", "f", "g", "h", "i"], "binData": ""}',
    ],
)
def test_what_must_be_read_does_not_pass(members: bytes, data: bytes) -> None:
    if data is LARGE and members in (b"{%b", b"{%b, \"a\": 'b'}"):
        return  # is not parsed here: servers refuse it
    assert headed(call(members.replace(b"%b", data))) is None


@pytest.mark.parametrize("at", range(2**20 - 9, 2**20 + 2))
def test_a_second_name_is_found_wherever_it_is_in_a_large_body(at: int) -> None:
    begin, end = b'{"model": "a", "x": [', b'], "model": "b", "y": 1}'
    place = at + len(begin) - 3
    body = begin + b"1," * ((place - len(begin)) // 2) + b" " * (place % 2) + b"1" + end
    assert headed(call(memoryview(body))) is None
    assert passing(call(memoryview(body.replace(b'"model": "b"', b'"other": "b"')))).model == "a"


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"Infinity"])
@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_numbers_that_servers_do_not_read_are_read_here(number: bytes, data: bytes) -> None:
    assert headed(call(b'{%b, "ndarray": [%b]}' % (data, number))) is None
    assert passing(call(b'{"model": "m", %b, "ndarray": ["%b"]}' % (data, number))).model == "m"


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8-sig"])
@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_what_a_server_might_read_in_another_coding_does_not_pass(coding: str, data: bytes) -> None:
    text = f'{{"model": "hidden", {data.decode()}}}'
    assert json.loads(text.encode(coding))["model"] == "hidden"
    assert headed(call(text.encode(coding))) is None


def test_a_name_that_only_looks_like_a_member_is_none() -> None:
    # the member is called `x "model`
    body = b'{%b, "x \\"model":"y"}' % LARGE
    assert passing(call(body)).model == "" == GRPS_REST.decode_request(call(body), LISTENER).model
    assert passing(call(b'{%b, "other": {"a": 1, "model": "y"}}' % LARGE)).model == ""


@pytest.mark.parametrize(
    "message",
    [
        call(b""),
        call(b"", OCTETS),
        call(b"text", "text/plain"),
        call(b"{%b}" % SMALL, query="return-ndarray=true"),
        call(b'{"str_data": "m"}', path="/grps/v1/metadata/model"),
        call(b"", path="/grps/v1/health/live"),
    ],
)
def test_other_messages_are_read(message: Message) -> None:
    assert headed(message) is None


def test_a_query_that_is_refused_is_refused_as_ever() -> None:
    with pytest.raises(DecodeError, match="expected true or false"):
        headed(call(b"{%b}" % SMALL, query="streaming=maybe"))


NAMES = ["model", "model", "m\\u006fdel", "model ", "str_data", "gmap", 'x\\"model', "\\\\", "streaming"]
MEMBERS = st.tuples(
    st.sampled_from([f'"{name}"' for name in NAMES]),
    st.sampled_from(
        ['"a"', '"b"', '""', "null", '"model"', '{"model": "c"}', '["model", "d"]', '"\\""', '"\\u0061"', "1e5", "true"]
    ),
)


@settings(max_examples=examples(600))
@given(
    st.lists(MEMBERS, max_size=4),
    st.sampled_from(["", '"gtensors": {"tensors": []}', LARGE.decode()]),
    st.integers(0, 4),
    st.sampled_from([":", " : "]),
    st.lists(st.tuples(st.integers(0, 5000), st.sampled_from(list(b'"\\{},:m\0'))), max_size=2),
    st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-16-le"]),
)
def test_where_a_message_passes_every_reader_finds_its_model(
    members: list[tuple[str, str]], data: str, at: int, colon: str, changes: list[tuple[int, int]], coding: str
) -> None:
    entries = [f"{key}{colon}{value}" for key, value in members]
    if data:
        entries.insert(at, data)
    body = bytearray(("{" + ", ".join(entries) + "}").encode(coding))
    for place, octet in changes:
        body[place % len(body)] = octet
    message = call(bytes(body), query="model=q")
    found = headed(message)
    if found is None:
        return
    try:
        pairs: list[tuple[str, Any]] = json.loads(bytes(body), object_pairs_hook=list)
    except ValueError:
        return  # servers refuse it
    names = [value for key, value in pairs if key == "model"]
    assert found.model == (names[0] if names else "q")
    assert len(names) <= 1
    assert found.operation is Operation.INFER
    try:
        read = GRPS_REST.decode_request(message, LISTENER)
    except (DecodeError, GatewayError):
        return
    assert (read.operation, read.model) == (found.operation, found.model)


# --- streams ---


def asks(mode: str, body: bytes = b"{%b}" % SMALL) -> Message:
    """A message that asks for a stream."""
    if mode == "query":
        return call(body, query="stream=true")
    if mode == "header":
        return with_header(call(body), "stream", "true")
    return call(body[:-1] + b', "stream": true}')


@pytest.mark.parametrize(
    ("mode", "query", "headers"), [("query", "stream=true", []), ("header", "", [("stream", "true")]), ("body", "", [])]
)
def test_a_stream_is_asked_for_in_the_same_way(mode: str, query: str, headers: list[tuple[str, str]]) -> None:
    message, protocol = asks(mode), ASKED_IN[mode]
    request = passing(message, protocol)
    assert request.operation is Operation.STREAM
    found = sent(message, protocol)
    assert (found.query, list(found.headers)[1:], found.parts) == (query, headers, message.parts)
    # asked for one reply after all, a server must not be asked for a stream
    unary = replace(request, operation=Operation.INFER)
    assert relay(protocol).request(message, unary, TARGET) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{%b, "stream": "true"}',
        b'{%b, "stream": 1}',
        b'{%b, "stream": true, "stream": false}',
        b'{%b, "stream": false, "stream": true}',
        b'{%b, "str\\u0065am": true}',
    ],
)
def test_a_body_that_may_ask_for_a_stream_is_read(body: bytes) -> None:
    assert headed(call(body.replace(b"%b", SMALL)), ASKED_IN["body"]) is None


def test_sides_with_the_same_control_have_the_same_relay() -> None:
    def own(**values: str) -> Relay | None:
        return GRPS_REST.with_settings(values).relay

    assert own() is own(ctrl_key="streaming") is GRPS_REST.relay
    assert own(ctrl_mode="header", ctrl_key="a") is own(ctrl_key="A", ctrl_mode="header")
    different = [own(), own(ctrl_key="a"), own(ctrl_mode="query"), own(res_content_type="text/event-stream")]
    assert len({id(each) for each in different}) == len(different)
    # JSON could write it in several ways
    assert own(ctrl_mode="body", ctrl_key="a/b") is None


# --- replies ---

SUCCESS = b'{"status": %b, "str_data": "hi"}' % OK_STATUS
PRETTY = b'{\n "status": {\n  "code": 200,\n  "msg": "OK",\n  "status": "SUCCESS"\n },\n "model": "m",\n "x": []\n}\n'
CREATED = b'{"model": "m", "status": {"code": 201, "status": "SUCCESS"}, "str_data": "hi"}'
FAILED = b'{"status": {"code": 422, "msg": "bad", "status": "FAILURE"}}'


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (SUCCESS, JSON, JSON),
        (PRETTY, "application/json;charset=utf-8", JSON),
        (CREATED, JSON, JSON),
        (b"\0\xff", OCTETS, OCTETS),
        (b"", OCTETS, OCTETS),
        (b"{1}", OCTETS, OCTETS),
        (SUCCESS, OCTETS, OCTETS),
    ],
)
def test_a_reply_goes_on_as_it_came(body: bytes, content_type: str, expected: str) -> None:
    back = told(with_header(reply(body, content_type), "set-cookie", "theirs"))
    assert (back.status, list(back.headers), back.parts) == (200, [("content-type", expected)], (body,))


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (SUCCESS, "text/plain", 200),
        (SUCCESS, "", 200),
        (SUCCESS, JSON, 201),
        (CREATED.replace(b'"hi"', b'"%b"' % (b"h" * 2**18)), JSON, 200),
    ],
)
def test_other_replies_are_read(body: bytes, content_type: str, status: int) -> None:
    assert replied(reply(body, content_type, status)) is None


@pytest.mark.parametrize(("content_type", "status"), [(JSON, 200), (JSON, 422), (OCTETS, 200), ("", 422)])
def test_an_error_is_raised_with_its_code(content_type: str, status: int) -> None:
    with pytest.raises(ModelFailure, match="bad") as raised:
        replied(reply(FAILED, content_type, status))
    assert raised.value.code == 422


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"status": 1}', b"<html>"])
def test_a_reply_that_is_no_message_is_a_faulty_one(body: bytes) -> None:
    with pytest.raises(DecodeError):
        replied(reply(body))


def test_a_page_is_an_error_by_its_status() -> None:
    with pytest.raises(GatewayError, match="Not Found") as raised:
        replied(reply(b"<h1>Not Found</h1>", "text/html", 404))
    assert raised.value.reason is Reason.MODEL_NOT_FOUND


STREAM = call(b"{%b}" % SMALL, query="streaming=true")


@pytest.mark.parametrize("content_type", [OCTETS, "text/event-stream", JSON])
@pytest.mark.parametrize("piece", [SUCCESS, PRETTY, CREATED, b"data: hi\n\n", b"\xff"])
def test_a_message_of_a_stream_goes_on_as_it_came(piece: bytes, content_type: str) -> None:
    back = told(reply(piece, content_type), STREAM)
    assert (back.status, list(back.headers), back.parts) == (200, [("content-type", content_type)], (piece,))


def test_streams_have_the_type_that_is_set() -> None:
    set_here = GRPS_REST.with_settings({"res_content_type": "text/event-stream"})
    assert list(told(reply(SUCCESS, OCTETS), STREAM, set_here).headers) == [("content-type", "text/event-stream")]
    assert list(told(reply(SUCCESS, ""), STREAM).headers) == [("content-type", OCTETS)]


@pytest.mark.parametrize("status", [200, 500])
def test_an_error_in_a_stream_is_raised(status: int) -> None:
    with pytest.raises(ModelFailure, match="bad"):
        replied(reply(FAILED, OCTETS, status), STREAM)


def test_a_page_in_place_of_a_stream_is_an_error() -> None:
    with pytest.raises(GatewayError, match="busy"):
        replied(reply(b"busy", "text/plain", 503), STREAM)
