"""Bodies that are passed on byte for byte, and those that must not be."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype, Kind
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.types import Message, Request, RequestedOutput, Translate
from gateway.protocols.v2 import V2_REST
from tests.protocols.v2.rest.wire import AS_IS, decode, infer, reply

PLAIN = Target("models", "127.0.0.1:8000", "plain")
MLSERVER = Target("models", "127.0.0.1:8000", "mlserver")
KSERVE = Target("models", "127.0.0.1:8000", "kserve")
TRITON = Target("models", "127.0.0.1:8000", "triton")

BODY = b'{"id": "7", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.10000, 2e0]}]}'


def sent(body: bytes, target: Target = PLAIN, header_length: object = None) -> Message:
    return V2_REST.encode_request(infer(body, header_length), target)


def inputs(data: bytes, datatype: bytes = b"FP32", shape: bytes = b"[2]", more: bytes = b"") -> bytes:
    entry = b'{"name":"x","datatype":"%b","shape":%b%b,"data":%b}' % (datatype, shape, more, data)
    return b'{"inputs":[%b]}' % entry


def binary(header: bytes, tensors: bytes = struct.pack("<2f", 1.5, -2)) -> tuple[bytes, int]:
    return header + tensors, len(header)


ENTRY = b'{"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}'
BY_REQUEST = b'{"parameters": {"binary_data_output": true, "a": 1}, "inputs": [%b]}' % ENTRY
BY_OUTPUT = b'{"inputs": [%b], "outputs": [{"name": "y", "parameters": {"binary_data": true}}]}' % ENTRY


# --- requests ---


@pytest.mark.parametrize("target", [PLAIN, MLSERVER], ids=lambda each: each.flavor)
@pytest.mark.parametrize(
    "body",
    [
        BODY,
        inputs(b"[1.5, -2]"),
        inputs(b"[1, 2]"),
        inputs(b"[1,2]", b"INT8"),
        inputs(b"[true,false]", b"BOOL"),
        inputs('["ä","b"]'.encode(), b"BYTES"),
        inputs(b"[]", b"INT64", b"[0,3]"),
        inputs(b'["http://a/","b:"]', b"BYTES"),
        inputs(b"[1.50,2]").replace(b'"x"', b'"serving_default_x:0"'),
        inputs(b"[1.5, -2]", more=b',"parameters":{"unit":"K","content_type":"base64"}'),
        b'{"parameters":{"p":1.50,"q":true},"inputs":[{"data":[1],"shape":[1],"name":"x","datatype":"INT32"}],'
        b'"outputs":[{"name":"y","parameters":{"p":1}},{"name":"z"}]}',
        inputs(b"[%b]" % b",".join([b"0.1"] * 20_000), shape=b"[20000]"),
    ],
    ids=lambda each: each[:80].decode(),
)
def test_json_goes_on_to_servers_of_json(body: bytes, target: Target) -> None:
    message = sent(body, target)
    assert message.body == body
    assert (message.method, message.path) == ("POST", "/v2/models/m/infer")
    assert list(message.headers) == [("content-type", "application/json")]


@pytest.mark.parametrize("target", [TRITON, replace(TRITON, flavor="binary"), Target()], ids=lambda each: each.flavor)
@pytest.mark.parametrize("header", [BY_REQUEST, BY_OUTPUT])
def test_binary_goes_on_to_servers_of_binary(header: bytes, target: Target) -> None:
    body, length = binary(header)
    message = sent(body, target, length)
    assert message.body == body
    assert list(message.headers) == [
        ("content-type", "application/octet-stream"),
        ("inference-header-content-length", str(length)),
    ]


HOSTILE = {
    "an unknown member": BODY[:-1] + b',"x":1}',
    "an unknown member of a tensor": inputs(b"[1,2]", more=b',"strides":[1]'),
    "unknown member of an output": BODY[:-1] + b',"outputs":[{"name":"y","x":1}]}',
    "data of an output": BODY[:-1] + b',"outputs":[{"name":"y","data":[1]}]}',
    "a null id": b'{"id":null,' + inputs(b"[1,2]")[1:],
    "null parameters": b'{"parameters":null,' + inputs(b"[1,2]")[1:],
    "null parameters of a tensor": inputs(b"[1,2]", more=b',"parameters":null'),
    "null parameters of an output": BODY[:-1] + b',"outputs":[{"name":"y","parameters":null}]}',
    "null outputs": BODY[:-1] + b',"outputs":null}',
    "empty outputs": BODY[:-1] + b',"outputs":[]}',
    "a parameter for the gateway": b'{"parameters":{"timeout":1000000},' + inputs(b"[1,2]")[1:],
    "a priority that asks for nothing": b'{"parameters":{"priority":0},' + inputs(b"[1,2]")[1:],
    "a wish for binary outputs": b'{"parameters":{"binary_data_output":true},' + inputs(b"[1,2]")[1:],
    "a wish for JSON": b'{"parameters":{"binary_data_output":false},' + inputs(b"[1,2]")[1:],
    "a wish for one binary output": BODY[:-1] + b',"outputs":[{"name":"y","parameters":{"binary_data":true}}]}',
    "a wish for one JSON output": BODY[:-1] + b',"outputs":[{"name":"y","parameters":{"binary_data":false}}]}',
    "nested data": inputs(b"[[1,2]]", shape=b"[1,2]"),
    "a scalar": inputs(b"1", shape=b"[]"),
    "NaN": inputs(b"[NaN, 1]"),
    "infinity": inputs(b"[1, Infinity]"),
    "minus infinity": inputs(b"[-Infinity, 1]"),
    "nan": inputs(b"[nan, 1]"),
    "inf": inputs(b"[inf, 1]"),
    "NaN among many": inputs(b"[%bNaN]" % (b"1.5," * 20_000), shape=b"[20001]"),
    "integers as floats": inputs(b"[1.0, 2]", b"INT32"),
    "base64": inputs(b'["YQ==","YQ=="]', b"BYTES", more=b',"parameters":{"content_type":"base64"}'),
    "escapes": inputs(rb'["a\"b","\u0041"]', b"BYTES"),
    "an escape in a key": BODY.replace(b"inputs", rb"\u0069nputs"),
    "a byte order mark": b"\xef\xbb\xbf" + BODY,
    "blanks before": b" " + BODY,
    "a line's end": BODY + b"\r\n",
    "many blanks behind": BODY + b" " * 10_000,
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=list(HOSTILE))
def test_what_says_more_is_written_anew(body: bytes) -> None:
    # NaN has a form in JSON only where the route says which
    request = replace(infer(body), translate=Translate(nan="null"))
    message = V2_REST.encode_request(request, PLAIN)
    assert message.body != body
    assert message.body == V2_REST.encode_request(replace(request, original=None), PLAIN).body


HOSTILE_BINARY = {
    "outputs in JSON": b'{"inputs":[%b]}' % ENTRY,
    "one output in JSON": BY_OUTPUT[:-2] + b',{"name":"z"}]}',
    "an unknown member": BY_REQUEST[:-1] + b',"x":1}',
    "an unknown member of a tensor": BY_REQUEST.replace(b'"shape"', b'"strides":[1],"shape"'),
    "a timeout": BY_REQUEST.replace(b'"a":', b'"timeout":'),
    "both wishes": BY_OUTPUT[:-1] + b',"parameters":{"binary_data_output":true}}',
    "another parameter of an output": BY_OUTPUT[:-3] + b',"x":1}]}',
    "a JSON tensor": BY_REQUEST[:-2] + b',{"name":"z","datatype":"FP32","shape":[1],"data":[1]}]}',
    "a blank before": b" " + BY_REQUEST,
    "a blank behind": BY_REQUEST + b"\n",
}


@pytest.mark.parametrize("header", HOSTILE_BINARY.values(), ids=list(HOSTILE_BINARY))
def test_binary_that_says_more_is_written_anew(header: bytes) -> None:
    body, length = binary(header)
    if header == HOSTILE_BINARY["another parameter of an output"]:
        body, length = binary(header.replace(b'true,"x":1}', b'true},"x":1}'))
    request = infer(body, length)
    message = V2_REST.encode_request(request, TRITON)
    assert message.body != body
    assert message.body == V2_REST.encode_request(replace(request, original=None), TRITON).body


def test_another_form_is_written_anew() -> None:
    assert sent(BODY, TRITON).body != BODY
    body, length = binary(BY_REQUEST)
    assert sent(body, PLAIN, length).body != body


def test_what_a_flavor_lacks_is_written_anew() -> None:
    header = BY_REQUEST.replace(b"FP32", b"BF16").replace(b"8}", b"4}")
    body, length = binary(header, b"\x80\x3f\x00\x40")
    with_id = binary(header.replace(b'{"parameters"', b'{"id":"1","parameters"', 1), b"\x80\x3f\x00\x40")
    assert sent(body, TRITON, length).body == body
    assert b"FP32" in sent(with_id[0], KSERVE, with_id[1]).body
    body, length = binary(BY_REQUEST)  # KServe needs an id
    assert b'"id":""' in sent(body, KSERVE, length).body


CHANGES = [
    {"inputs": ()},
    {"outputs": (RequestedOutput("z"),)},
    {"parameters": {"p": 2}},
    {"id": "8"},
    {"id": None},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_changed_request_is_written_anew(change: dict[str, object]) -> None:
    changed = replace(infer(BODY), **change)  # type: ignore[arg-type]
    message = V2_REST.encode_request(changed, PLAIN)
    assert message.body == V2_REST.encode_request(replace(changed, original=None), PLAIN).body != BODY


def test_what_is_no_part_of_the_body_may_change() -> None:
    changed = replace(infer(BODY), model="other", version="2", deadline=1.0, translate=Translate(nan="null"))
    message = V2_REST.encode_request(changed, PLAIN)
    assert (message.path, message.body) == ("/v2/models/other/versions/2/infer", BODY)


def test_base64_is_written_where_the_route_says_so() -> None:
    request = replace(infer(inputs(b'["a","b"]', b"BYTES")), translate=Translate(bytes="base64"))
    assert b'["YQ==","Yg=="]' in V2_REST.encode_request(request, PLAIN).body
    numbers = replace(infer(BODY), translate=Translate(bytes="base64"))
    assert V2_REST.encode_request(numbers, PLAIN).body == BODY


# --- responses ---

REPLY = b'{"model_name": "m","outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [0.10, 2.50]}]}'
ASKED = Request(Operation.INFER, "m")


def returned(body: bytes, asked: Request = ASKED, length: object = None, translate: Translate = AS_IS) -> Message:
    return V2_REST.encode_response(decode(reply(body, length), asked), asked, translate)


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        (REPLY, ASKED),
        (REPLY[:-1] + b',"id":"7"}', replace(ASKED, id="7")),
        (REPLY[:-1] + b',"model_version":"3"}', ASKED),
        (REPLY[:-1] + b',"parameters":{"p":1}}', ASKED),
        (REPLY, infer(BODY.replace(b'"id": "7", ', b""))),
    ],
)
def test_a_reply_comes_back(body: bytes, asked: Request) -> None:
    message = returned(body, asked)
    assert (message.status, message.body) == (200, body)
    assert list(message.headers) == [("content-type", "application/json")]


@pytest.mark.parametrize(
    "body",
    [
        REPLY.replace(b'"m"', b'"n"'),
        REPLY.replace(b'"model_name": "m",', b""),
        REPLY[:-1] + b',"id":"made-up"}',
        REPLY[:-1] + b',"id":null}',
        REPLY[:-1] + b',"model_version":""}',
        REPLY[:-1] + b',"parameters":null}',
        REPLY[:-1] + b',"parameters":{}}',
        REPLY[:-1] + b',"parameters":{"headers":{"server":"secret"}}}',
        REPLY[:-1] + b',"parameters":{"x":null}}',
        REPLY[:-1] + b',"traceback":"..."}',
        REPLY.replace(b'"shape"', b'"parameters":{"headers":{}},"shape"'),
        REPLY.replace(b'"shape"', b'"parameters":null,"shape"'),
        REPLY.replace(b'"shape"', b'"x":1,"shape"'),
        REPLY.replace(b"[0.10, 2.50]", b"[[0.10, 2.50]]").replace(b"[2]", b"[1,2]"),
        REPLY.replace(b"FP32", b"FP16"),
        REPLY.replace(b"FP32", b"INT32").replace(b"[0.10, 2.50]", b"[1.0, 2.0]"),
        REPLY.replace(b"0.10", b"NaN"),
        REPLY + b"\n",
        REPLY.replace(b'"y"', rb'"\u0079"'),
    ],
    ids=bytes.decode,
)
def test_a_reply_that_says_more_or_less_is_written_anew(body: bytes) -> None:
    answer = decode(reply(body), ASKED)
    message = V2_REST.encode_response(answer, ASKED, Translate(nan="null"))
    assert message.body == V2_REST.encode_response(replace(answer, original=None), ASKED, Translate(nan="null")).body
    assert message.body != body


def test_a_reply_comes_back_in_the_form_that_the_client_asked_for() -> None:
    header = b'{"model_name":"m", "outputs": [%b]}' % ENTRY.replace(b'"x"', b'"y"')
    body, length = binary(header)
    asked = infer(*binary(BY_REQUEST))
    message = returned(body, asked, length)
    assert message.body == body
    assert message.headers.get("inference-header-content-length") == str(length)
    assert b'"data":[1.5,-2.0]' in returned(body, ASKED, length).body  # it asked for JSON
    assert b"binary_data_size" in returned(REPLY, asked).body
    of_another = BY_OUTPUT.replace(b'"y"', b'"z"')
    assert b'"data":[1.5,-2.0]' in returned(body, infer(*binary(of_another)), length).body


def test_a_reply_with_other_outputs_is_written_anew() -> None:
    answer = decode(reply(REPLY), ASKED)
    fewer = replace(answer, outputs=(replace(answer.outputs[0], name="z"),))
    assert b'"z"' in V2_REST.encode_response(fewer, ASKED, AS_IS).body


def test_a_reply_in_base64_is_written_where_the_route_says_so() -> None:
    body = b'{"model_name":"m","outputs": [{"name":"y","datatype":"BYTES","shape":[1],"data":["a"]}]}'
    assert returned(body).body == body
    assert b'"YQ=="' in returned(body, translate=Translate(bytes="base64")).body


def test_a_reply_with_the_clients_id_comes_back() -> None:
    body = REPLY[:-1].replace(b"2.50", b"1e1") + b',"id":"2"}'
    second, asked = decode(reply(body)), replace(ASKED, id="2")
    assert V2_REST.encode_response(second, asked, AS_IS).body == body
    other = V2_REST.encode_response(second, replace(asked, id="3"), AS_IS).body
    assert json.loads(bytes(other))["id"] == "3"


MLSERVER_REPLY = (
    b'{"model_name":"m","model_version":"1","id":"a-b","parameters":{},"outputs":'
    b'[{"name":"y","shape":[2,1],"datatype":"FP64","parameters":{"content_type":"np"},"data":[3.0,4.5]}]}'
)


def test_a_reply_like_mlservers_is_written_anew_for_its_empty_parameters() -> None:
    answer, asked = decode(reply(MLSERVER_REPLY)), replace(ASKED, id="a-b")
    assert (answer.id, answer.model, answer.version, answer.parameters) == ("a-b", "m", "1", {})
    assert answer.outputs[0].parameters == {"content_type": "np"}
    written = V2_REST.encode_response(answer, asked, AS_IS).body
    assert written != MLSERVER_REPLY
    assert written == V2_REST.encode_response(replace(answer, original=None), asked, AS_IS).body


# --- any document ---

NAMES = st.text(max_size=4)
VALUES = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False), NAMES
)
PARAMETERS = st.dictionaries(
    NAMES | st.sampled_from(["content_type", "priority", "binary_data_output"]), VALUES, max_size=2
)


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, object]:
    datatype = draw(st.sampled_from([each for each in Datatype if each not in (Datatype.FP16, Datatype.BF16)]))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = 1
    for each in shape:
        count *= each
    if datatype is Datatype.BYTES:
        element: st.SearchStrategy[object] = st.text(max_size=3)
    elif datatype.kind is Kind.BOOL:
        element = st.booleans()
    elif datatype.kind is Kind.FLOAT:
        element = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-9, 9)
    else:
        element = st.integers(0, 127) | st.just(1.0)
    members: dict[str, object] = {
        "name": draw(NAMES),
        "datatype": datatype.value,
        "shape": shape,
        "data": draw(st.lists(element, min_size=count, max_size=count)),
    }
    if draw(st.booleans()):
        members["parameters"] = draw(PARAMETERS)
    if draw(st.integers(0, 9)) == 0:
        members[draw(NAMES)] = draw(VALUES)
    return members


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    document: dict[str, object] = {
        "inputs": draw(st.lists(tensors(), max_size=2, unique_by=lambda each: str(each["name"])))
    }
    if draw(st.booleans()):
        document["id"] = draw(NAMES | st.none())
    if draw(st.booleans()):
        document["parameters"] = draw(PARAMETERS)
    if draw(st.booleans()):
        names = draw(st.lists(NAMES, unique=True, max_size=2))
        document["outputs"] = [{"name": name, "parameters": draw(PARAMETERS)} for name in names]
    return json.dumps(document, ensure_ascii=draw(st.booleans()), indent=draw(st.none() | st.just(1))).encode()


def said(request: Request) -> tuple[object, ...]:
    """What a backend reads: parameters that it would keep to itself included."""
    written = [
        (each.name, each.datatype, each.shape, bytes(each.data), dict(each.parameters)) for each in request.inputs
    ]
    return written, request.id, request.outputs, dict(request.parameters), request.deadline


@given(documents())
def test_a_backend_reads_the_same_from_a_body_that_is_passed_on_and_one_that_is_written_anew(body: bytes) -> None:
    try:
        request = infer(body)
    except Exception:
        return
    for target in (PLAIN, MLSERVER):
        try:
            anew = V2_REST.encode_request(replace(request, original=None), target)
        except Exception as error:
            with pytest.raises(type(error)):
                V2_REST.encode_request(request, target)
            continue
        message = V2_REST.encode_request(request, target)
        assert said(infer(bytes(message.body))) == said(infer(bytes(anew.body)))
