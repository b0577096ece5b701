"""Messages in protobuf like one that came before: what they say, and which of them go on as they came."""

from collections.abc import Iterator
from struct import pack
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import layouts
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.types import Message, Request, Response, Tensor, Translate
from gateway.protobuf.schema import Schema
from gateway.protocols.grps import GRPS_BRPC, GRPS_GRPC, GRPS_REST
from gateway.protocols.grps.descriptors import GRPC_DESCRIPTORS
from gateway.protocols.grps.protobuf import message, recalled
from gateway.protocols.grps.protobuf.message import read_message

GrpsMessage = Schema(GRPC_DESCRIPTORS).message("grps.protos.v1.GrpsMessage")
PREDICT = "/grps.protos.v1.GrpsService/Predict"
LISTENER, TARGET = ListenerSettings("in"), Target("grps", "127.0.0.1:1")
OK = {"code": 200, "msg": "OK", "status": 1}
LIMIT = 2**20


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    recalled._layouts.clear()
    recalled._attempts.clear()


def written(*values: float, model: str = "some-model-1.0.0", **more: Any) -> bytes:
    """As protobuf's own library writes it."""
    given = GrpsMessage(model=model, **more)
    given.gtensors.tensors.add(name="x", dtype=7, shape=[len(values)], flat_float32=values)
    given.gtensors.tensors.add(name="y", dtype=8, shape=[1, 1], flat_float64=[values[0]])
    raw: bytes = given.SerializeToString()
    return raw


BODY = written(1.5, -2)


def asked(body: bytes) -> Request:
    return GRPS_GRPC.decode_request(Message(path=PREDICT, parts=(body,), pattern=PREDICT), LISTENER)


def twice(body: bytes) -> Request:
    """The request in a body that came before."""
    asked(body)
    return asked(body)


def sent(request: Request, protocol: Any = GRPS_GRPC) -> bytes:
    return b"".join(protocol.encode_request(request, TARGET).parts)


def anew(request: Request) -> bytes:
    return sent(replace(request, original=None))


def answered(body: bytes) -> Response:
    found = GRPS_GRPC.decode_response(Message(parts=(body,)), Request(Operation.INFER, "m"), TARGET)
    assert isinstance(found, Response)
    return found


def test_the_first_and_the_second_go_on_as_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    first = asked(BODY)
    assert GRPS_GRPC.encode_request(first, TARGET).parts == (BODY,)
    body = written(3, 4)
    monkeypatch.setattr("gateway.protocols.grps.protobuf.message._read_anew", pytest.fail)
    second = asked(body)
    assert (second.model, [each.name for each in second.inputs]) == ("some-model-1.0.0", ["x", "y"])
    assert [each.array.tolist() for each in second.inputs] == [[3, 4], [[3]]]
    assert [each.datatype for each in second.inputs] == [Datatype.FP32, Datatype.FP64]
    assert GRPS_GRPC.encode_request(second, TARGET).parts[0] is body


def test_a_reply_goes_back_as_it_came() -> None:
    request = asked(BODY)
    reply = written(3, 4, model="", status=OK)
    answered(reply)
    again = answered(reply)
    assert GRPS_GRPC.encode_response(again, request, Translate()).parts == (reply,)
    for changed in (
        replace(again, outputs=again.outputs[:1]),
        replace(again, outputs=tuple(replace(each, name="z") for each in again.outputs[:1])),
    ):
        out = b"".join(GRPS_GRPC.encode_response(changed, request, Translate()).parts)
        anew_ = GRPS_GRPC.encode_response(replace(changed, original=None), request, Translate()).parts
        assert out == b"".join(anew_) != reply


def test_a_reply_that_names_a_model_gets_the_clients_name() -> None:
    reply = written(3, 4, model="theirs", status=OK)
    answered(reply)
    out = b"".join(GRPS_GRPC.encode_response(answered(reply), asked(BODY), Translate()).parts)
    assert out == written(3, 4, status=OK)


def test_brpc_carries_the_same_message() -> None:
    request = twice(BODY)
    assert GRPS_BRPC.encode_request(request, TARGET).parts[1] is BODY


def test_protobuf_is_not_sent_as_json() -> None:
    assert sent(twice(BODY), GRPS_REST).startswith(b"{")


CHANGES = {
    "another model": lambda request: replace(request, model="n"),
    "other data": lambda request: replace(
        request, inputs=tuple(replace(each, data=b"\0" * 8) for each in request.inputs)
    ),
    "another order": lambda request: replace(request, inputs=request.inputs[::-1]),
    "another name": lambda request: replace(request, inputs=tuple(replace(each, name="z") for each in request.inputs)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_changed_request_is_written_anew(change: Any) -> None:
    changed = change(twice(BODY))
    assert sent(changed) == anew(changed) != BODY


UNKNOWN = b"\x98\x06\x01"  # field 99
MODEL = b"\x12\x10some-model-1.0.0"
X = b"\x0a\x01x\x10\x07\x1a\x01\x02R\x08" + pack("<2f", 1.5, -2)


def gtensors(tensor: bytes) -> bytes:
    field = b"\x0a" + bytes([len(tensor)]) + tensor
    return MODEL + b"\x2a" + bytes([len(field)]) + field


HOSTILE = {
    "an unknown field": BODY + UNKNOWN,
    "an unknown field of a tensor": gtensors(X + UNKNOWN),
    "an unknown field first": UNKNOWN + BODY,
    "a name that the next one replaces": b"\x12\x01a" + BODY,
    "a status": BODY + b"\x0a\x00",
    "another order": BODY[len(MODEL) :] + MODEL,
    "another order in a tensor": gtensors(X[3:] + X[:3]),
    "a length in two bytes": gtensors(X.replace(b"R\x08", b"R\x88\x00")),
    "an empty model": b"\x12\x00" + gtensors(X)[len(MODEL) :],
    "numbers that are not packed": gtensors(X[:8] + b"U" + X[10:14] + b"U" + X[14:]),
    "numbers in two lists": gtensors(X[:8] + b"R\x04" + X[10:14] + b"R\x04" + X[14:]),
    "payloads that are replaced": b"\x22\x01a" + BODY,
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=list(HOSTILE))
def test_what_says_more_or_otherwise_is_written_anew(body: bytes) -> None:
    request = twice(body)
    assert request.inputs[0].array.tolist() == [1.5, -2]
    assert sent(request) == anew(request) != body


def test_a_message_that_is_never_as_the_gateway_writes_it_is_compared_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes = mock.Mock(wraps=message.write_message)
    monkeypatch.setattr(message, "write_message", writes)
    for at in range(100):
        read_message(written(at, 2) + UNKNOWN, LIMIT)
    assert writes.call_count == 8
    assert read_message(BODY, LIMIT).original is not None
    assert writes.call_count == 9


def test_an_own_message_is_as_the_library_writes_it() -> None:
    assert sent(twice(gtensors(X))) == gtensors(X)


def test_the_limit_holds_for_what_is_remembered() -> None:
    asked(BODY)
    with pytest.raises(GatewayError, match=r"limits\.message"):
        read_message(BODY, 10)


def test_a_layout_is_for_messages_of_the_same_text_only() -> None:
    asked(BODY)
    for at in range(len(BODY)):
        other = bytearray(BODY)
        other[at] ^= 1
        recalled_, layouts = _outcome(bytes(other)), dict(recalled._layouts)
        recalled._layouts.clear()
        assert _outcome(bytes(other)) == recalled_
        recalled._layouts.clear()
        recalled._layouts.update(layouts)


def _outcome(body: bytes) -> object:
    try:
        read = read_message(body, LIMIT)
    except (DecodeError, GatewayError) as error:
        return str(error)
    return read.model, read.status, [(each.name, each.datatype, each.shape, bytes(each.data)) for each in read.tensors]


def test_the_latest_layouts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "MOST", 3)
    for size in range(1, 9):
        asked(written(*[1.0] * size))
    assert [layout.tensors[0][2] for layouts in recalled._layouts.values() for layout in layouts] == [(6,), (7,), (8,)]


def test_long_texts_are_not_kept() -> None:
    long = GrpsMessage.FromString(BODY)
    long.gtensors.tensors[1].name = "y" * 2000
    asked(long.SerializeToString())
    assert not recalled._layouts


TENSORS = st.lists(
    st.tuples(st.text(max_size=3), st.sampled_from([7, 8, 4, 9]), st.lists(st.floats(width=32), max_size=4)), max_size=3
)


@given(TENSORS, st.text(max_size=20), st.booleans())
def test_bytes_out_equal_bytes_in(tensors: list[tuple[str, int, list[float]]], model: str, again: bool) -> None:
    message = GrpsMessage(model=model)
    message.gtensors.SetInParent()
    for name, dtype, values in tensors:
        entry = message.gtensors.tensors.add(name=name, dtype=dtype, shape=[len(values)])
        if dtype == 9:
            entry.flat_string.extend(map(str, values))
        elif dtype == 4:
            entry.flat_int32.extend(range(len(values)))
        else:
            getattr(entry, "flat_float32" if dtype == 7 else "flat_float64").extend(values)
    body: bytes = message.SerializeToString()
    try:
        request = asked(body)
    except DecodeError:
        return  # two of one name
    if again:
        request = asked(body)
    assert sent(request) == body


def fitted(tensor: Tensor) -> Tensor:
    return Tensor(tensor.name, tensor.datatype, tensor.shape, tensor.data)


def test_new_tensors_of_the_same_data_go_on_as_they_came() -> None:
    request = twice(BODY)
    out = GRPS_GRPC.encode_request(replace(request, inputs=tuple(map(fitted, request.inputs))), TARGET)
    assert out.parts[0] is BODY
