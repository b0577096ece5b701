"""Bodies of JSON that go on as they came, and those that must not."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.types import Message, Request, Response, Tensor, Translate
from gateway.protocols.grps import GRPS_BRPC, GRPS_GRPC, GRPS_REST
from tests.protocols.grps.rest.wire import LISTENER, OK_STATUS, TARGET, call, reply

X = '{"name": "x", "dtype": "DT_FLOAT32", "shape": [1, 2], "flat_float32": [1e0, 0.10]}'
BODY = f'{{"model": "m-1.0.0", "gtensors": {{"tensors": [{X}]}}}}'
MANY = ",".join(["0.10"] * 20_000)
LARGE = BODY.replace("1, 2", "20001").replace("0.10", f"0.10,{MANY}").replace("1e0, ", "")
STATUS = OK_STATUS.decode()
REPLY = f'{{"status": {STATUS}, "gtensors": {{"tensors": [{X}]}}}}'


def body_of(*tensors: str, more: str = "") -> str:
    return f'{{"gtensors":{{"tensors":[{",".join(tensors)}]}}{more}}}'


def asked(body: str | bytes) -> Request:
    return GRPS_REST.decode_request(call(body if isinstance(body, bytes) else body.encode()), LISTENER)


def fitted(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors as the bridge gives them to a codec: new ones with the same data."""
    return tuple(Tensor(each.name, each.datatype, each.shape, each.data, "", each.parameters) for each in tensors)


def sent(request: Request) -> bytes:
    return bytes(GRPS_REST.encode_request(replace(request, inputs=fitted(request.inputs)), TARGET).body)


def anew(request: Request) -> bytes:
    return sent(replace(request, original=None))


def answered(body: str) -> Response:
    found = GRPS_REST.decode_response(reply(body.encode()), Request(Operation.INFER, "m"), TARGET)
    assert isinstance(found, Response)
    return found


def returned(answer: Response, request: Request) -> bytes:
    return bytes(GRPS_REST.encode_response(answer, request, Translate()).body)


# --- requests ---


@pytest.mark.parametrize(
    "body",
    [
        BODY,
        LARGE,
        body_of('{"dtype":"DT_FLOAT64","flat_float64":[0.10]}'),
        body_of('{"flat_int32":[-1,2],"shape":[2],"dtype":"DT_INT32","name":"ä"}'),
        body_of('{"dtype":"DT_FLOAT64","shape":[2],"flat_float64":[1,-0]}', X),
        body_of('{"dtype":"DT_STRING","shape":[2],"flat_string":["ä", ""]}'),
        body_of(X, more=',"model":"m"'),
    ],
    ids=lambda each: each[:50],
)
def test_a_request_goes_on(body: str) -> None:
    assert sent(asked(body)) == body.encode()


def test_the_text_goes_on_under_the_gateways_own_headers() -> None:
    message = GRPS_REST.encode_request(asked(BODY), TARGET)
    assert list(message.headers) == [("content-type", "application/json")]
    assert (message.method, message.path, message.query) == ("POST", "/grps/v1/infer/predict", "")


HOSTILE = {
    "an unknown member": BODY[:-1] + ',"x":1}',
    "an unknown member of gtensors": BODY.replace('{"tensors"', '{"x":1,"tensors"'),
    "an unknown member of a tensor": BODY.replace('{"name"', '{"x":1,"name"'),
    "an empty list of another dtype": BODY.replace('{"name"', '{"flat_int32":[],"name"'),
    "a null member": BODY[:-1] + ',"str_data":null}',
    "a null status": BODY[:-1] + ',"status":null}',
    "a status": BODY[:-1] + f',"status":{STATUS}}}',
    "an empty model": BODY.replace("m-1.0.0", ""),
    "an empty name": BODY.replace('"x"', '""'),
    "an empty shape": body_of('{"dtype":"DT_FLOAT32","shape":[],"flat_float32":[0.10]}'),
    "a dtype by its number": BODY.replace('"DT_FLOAT32"', "7"),
    "another name of the list": body_of('{"dtype":"DT_FLOAT64","flat_double":[0.10]}'),
    "floats of integers": body_of('{"dtype":"DT_INT32","shape":[1],"flat_int32":[1e0]}'),
    "half precision": body_of('{"dtype":"DT_FLOAT16","shape":[1],"flat_float16":[0.10]}'),
    "INT64 without quotes": body_of('{"dtype":"DT_INT64","shape":[1],"flat_int64":[ 1]}'),
    "quotes": BODY.replace("0.10", '"0.10"').replace("1e0", '"1e0"'),
    "NaN": BODY.replace("0.10", "NaN"),
    "quoted NaN": BODY.replace("0.10", '"NaN"'),
    "opposite infinities": BODY.replace("1e0, 0.10", "Infinity, -Infinity"),
    "NaN among many": LARGE.replace("0.10]", "NaN]"),
    "an escape": BODY.replace('"x"', '"\\u0078"'),
    "an escape among many": LARGE.replace('"x"', '"\\u0078"'),
    "a byte order mark": "\ufeff" + BODY,
    "blanks before": " " + BODY,
    "blanks behind": BODY + "\r\n",
    "an ndarray": '{"ndarray":[[0.10]]}',
    "no tensors": '{"gtensors":{"tensors": []}}',
    "no elements": body_of('{"dtype": "DT_FLOAT32","shape":[0],"flat_float32":[]}'),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=list(HOSTILE))
def test_what_says_more_or_less_is_written_anew(body: str) -> None:
    request = asked(body)
    assert sent(request) == anew(request) != body.encode()


def other_data(tensor: Tensor) -> Tensor:
    return replace(tensor, data=bytes(bytearray(tensor.data)))


CHANGES = {
    "another model": lambda request: replace(request, model="n"),
    "another version": lambda request: replace(request, version="2"),
    "other data": lambda request: replace(request, inputs=tuple(map(other_data, request.inputs))),
    "another order": lambda request: replace(request, inputs=request.inputs[::-1]),
    "one input less": lambda request: replace(request, inputs=request.inputs[:1]),
    "another shape": lambda request: replace(
        request, inputs=tuple(replace(each, shape=(2, 1)) for each in request.inputs)
    ),
    "another name": lambda request: replace(request, inputs=tuple(replace(each, name="z") for each in request.inputs)),
    "another datatype": lambda request: replace(
        request, inputs=tuple(replace(each, datatype=Datatype.INT32) for each in request.inputs)
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_changed_request_is_written_anew(change: Any) -> None:
    body = body_of(X, X.replace('"x"', '"y"'), more=',"model":"m"')
    changed = change(asked(body))
    assert sent(changed) == anew(changed) != body.encode()


@pytest.mark.parametrize("translate", [Translate(bytes="base64"), Translate(payload="str_data")], ids=str)
def test_another_form_by_the_route_is_written_anew(translate: Translate) -> None:
    body = body_of('{"dtype":"DT_STRING", "shape":[1],"flat_string":["a"]}')
    request = replace(asked(body), translate=translate)
    assert sent(request) == anew(request) != body.encode()


def test_what_grps_cannot_carry_is_refused_all_the_same() -> None:
    with pytest.raises(GatewayError, match="parameter 'p'"):
        GRPS_REST.encode_request(replace(asked(BODY), parameters={"p": 1}), TARGET)


@pytest.mark.parametrize("protocol", [GRPS_GRPC, GRPS_BRPC], ids=lambda each: each.name)
def test_json_is_not_sent_as_protobuf(protocol: Any) -> None:
    request = asked(BODY)
    parts = protocol.encode_request(request, TARGET).parts
    assert b"".join(parts) == b"".join(protocol.encode_request(replace(request, original=None), TARGET).parts)


# --- replies ---


@pytest.mark.parametrize("body", [REPLY, REPLY + "\n", REPLY.replace(": ", " :\n  ")], ids=["plain", "C++", "indented"])
def test_a_reply_comes_back(body: str) -> None:
    assert returned(answered(body), asked(BODY)) == body.encode()
    assert GRPS_REST.encode_response(answered(body), asked(BODY), Translate()).status == 200


@pytest.mark.parametrize(
    "body",
    [
        REPLY.replace("200", "201"),
        REPLY.replace('"OK"', '"fine"'),
        REPLY.replace('"SUCCESS"', "1"),
        REPLY.replace('"SUCCESS"', '"SUCCESS","x":1'),
        REPLY.replace('"SUCCESS"', '"UNKNOWN"'),
        BODY,
        REPLY.replace(STATUS, "{}"),
        REPLY.replace('"gtensors"', '"x":1,"gtensors"'),
        REPLY.replace('"gtensors"', '"model":"n","gtensors"'),
        REPLY.replace("0.10", "NaN"),
        REPLY + "\n\n",
    ],
)
def test_a_reply_that_says_more_or_less_is_written_anew(body: str) -> None:
    answer, request = answered(body), asked(BODY)
    assert returned(answer, request) == returned(replace(answer, original=None), request) != body.encode()


def test_a_changed_reply_is_written_anew() -> None:
    answer, request = answered(REPLY), asked(BODY)
    for outputs in (tuple(map(other_data, answer.outputs)), (replace(answer.outputs[0], name="z"),)):
        changed = replace(answer, outputs=outputs)
        assert returned(changed, request) == returned(replace(changed, original=None), request) != REPLY.encode()


def test_a_client_that_asks_for_an_ndarray_gets_one() -> None:
    message = replace(call(BODY.encode()), query="return-ndarray=true")
    assert b'"ndarray"' in returned(answered(REPLY), GRPS_REST.decode_request(message, LISTENER))


# --- whatever the body ---

NUMBERS = st.one_of(
    st.floats(width=32).map(json.dumps),
    st.integers(-(2**40), 2**40).map(str),
    st.sampled_from(["1e3", "0.10", "-0", "1E-400", "nan", "1e400", "true", "null", '"1"', '"NaN"', "01", "[1]"]),
)
TENSORS = st.builds(
    lambda members: f"{{{','.join(members)}}}",
    st.lists(
        st.one_of(
            st.sampled_from(['"name":"x"', '"name":""', '"dtype":"DT_FLOAT32"', '"dtype":7', '"dtype":"DT_INT32"']),
            st.sampled_from(['"shape":[1]', '"shape":[2]', '"shape":[]', '"x":1', '"n\\u0061me":"y"']),
            st.tuples(
                st.sampled_from(["flat_float32", "flat_int32", "flat_int64", "flat_string", "flat_float16"]),
                st.lists(NUMBERS, max_size=3),
            ).map(lambda each: f'"{each[0]}":[{", ".join(each[1])}]'),
        ),
        max_size=5,
    ),
)
PLAIN = st.lists(NUMBERS, min_size=1, max_size=4).map(
    lambda each: f'{{"dtype":"DT_FLOAT32","shape":[{len(each)}],"flat_float32":[{",".join(each)}]}}'
)
MORE = st.sampled_from(["", ',"model":"m"', ',"model":""', ',"x":1', ',"status":{}', ',"gmap":null', "}"])
BODIES = st.builds(
    lambda tensors, more: body_of(*tensors, more=more), st.lists(st.one_of(PLAIN, TENSORS), max_size=2), MORE
)


def said(model: str, tensors: tuple[Tensor, ...]) -> tuple[object, ...]:
    return model, [(each.name, each.datatype, each.shape, bytes(each.data)) for each in tensors]


@given(BODIES)
@example(BODY)
def test_what_goes_out_says_what_came_in(body: str) -> None:
    try:
        request = asked(body)
    except (DecodeError, GatewayError):
        return  # refused, as ever
    out = sent(request)
    again = asked(out)
    assert said(again.model, again.inputs) == said(request.model, request.inputs)
    if out == body.encode():  # strict JSON, as the gateway writes it
        ours, theirs = (json.loads(each, parse_constant=pytest.fail) for each in (anew(request), body))
        assert ours.keys() == theirs.keys()
        for mine, given_ in zip(ours["gtensors"]["tensors"], theirs["gtensors"]["tensors"], strict=True):
            assert mine.keys() == given_.keys()


@given(BODIES.map(lambda body: body.replace('{"gtensors"', f'{{"status":{STATUS},"gtensors"')))
def test_what_comes_back_says_what_the_backend_said(body: str) -> None:
    try:
        answer = answered(body)
    except (DecodeError, GatewayError):
        return
    again = answered(returned(answer, asked(BODY)).decode())
    assert said("", again.outputs) == said("", answer.outputs)


def test_a_body_in_several_parts_goes_on_whole() -> None:
    message = Message(**{name: getattr(call(), name) for name in ("method", "path", "headers", "pattern")})
    request = GRPS_REST.decode_request(replace(message, parts=(BODY[:9].encode(), BODY[9:].encode())), LISTENER)
    assert sent(request) == BODY.encode()
