"""Messages of two tensors through the codecs of both sides, beside what protobuf's own library writes."""

from struct import pack
from typing import Any

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import Schema
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.requests import Request, Response, Translate
from gateway.protocols.grps import GRPS_BRPC, GRPS_GRPC, GRPS_REST
from gateway.protocols.grps.protobuf.message import read_message
from gateway.protocols.grps.schema import GRPC_DESCRIPTORS

GrpsMessage = Schema(GRPC_DESCRIPTORS).message("grps.protos.v1.GrpsMessage")
PREDICT = "/grps.protos.v1.GrpsService/Predict"
LISTENER, TARGET = ListenerSettings("in"), Target("grps", "127.0.0.1:1")
OK = {"code": 200, "msg": "OK", "status": 1}
LIMIT = 2**20


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


def sent(request: Request, protocol: Any = GRPS_GRPC) -> bytes:
    return b"".join(protocol.encode_request(request, TARGET).parts)


def answered(body: bytes) -> Response:
    found = GRPS_GRPC.decode_response(Message(parts=(body,)), Request(Operation.INFER, "m"), TARGET)
    assert isinstance(found, Response)
    return found


def test_a_request_is_written_as_the_library_writes_it() -> None:
    request = asked(BODY)
    assert (request.model, [each.name for each in request.inputs]) == ("some-model-1.0.0", ["x", "y"])
    assert [each.array.tolist() for each in request.inputs] == [[1.5, -2], [[1.5]]]
    assert [each.datatype for each in request.inputs] == [Datatype.FP32, Datatype.FP64]
    assert sent(request) == BODY
    assert b"".join(GRPS_BRPC.encode_request(request, TARGET).parts).endswith(BODY)
    assert sent(request, GRPS_REST).startswith(b"{")


def test_so_is_a_reply() -> None:
    reply = written(3, 4, model="", status=OK)
    parts = GRPS_GRPC.encode_response(answered(reply), asked(BODY), Translate()).parts
    assert b"".join(parts) == reply


def test_a_reply_that_names_a_model_gets_the_clients_name() -> None:
    reply = written(3, 4, model="theirs", status=OK)
    out = b"".join(GRPS_GRPC.encode_response(answered(reply), asked(BODY), Translate()).parts)
    assert out == written(3, 4, status=OK)


UNKNOWN = b"\x98\x06\x01"  # field 99
MODEL = b"\x12\x10some-model-1.0.0"
X = b"\x0a\x01x\x10\x07\x1a\x01\x02R\x08" + pack("<2f", 1.5, -2)


def gtensors(tensor: bytes, model: str = "some-model-1.0.0") -> bytes:
    field = b"\x0a" + bytes([len(tensor)]) + tensor
    return (MODEL if model else b"") + b"\x2a" + bytes([len(field)]) + field


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
def test_what_a_message_has_besides_is_left_out(body: bytes) -> None:
    request = asked(body)
    assert request.inputs[0].array.tolist() == [1.5, -2]
    model = "" if "\x12\x00" in body.decode("latin-1")[:2] else "some-model-1.0.0"
    assert sent(request) in (written(1.5, -2, model=model), gtensors(X, model))


def test_the_limit_is_for_all_tensors_together() -> None:
    with pytest.raises(GatewayError, match=r"limits\.message"):
        read_message(BODY, 10)


def test_a_change_of_any_byte_is_refused_or_read_as_the_library_reads_it() -> None:
    for at in range(len(BODY)):
        for flip in (1, 2, 8, 128):
            other = BODY[:at] + bytes((BODY[at] ^ flip,)) + BODY[at + 1 :]
            try:
                found = read_message(other, LIMIT)
            except (DecodeError, GatewayError):
                continue
            expected = GrpsMessage.FromString(other)
            assert found.model == expected.model
            tensors = [(each.name, list(each.shape)) for each in expected.gtensors.tensors]
            assert [(each.name, list(each.shape)) for each in found.tensors] == tensors


def test_long_names_are_written_alike() -> None:
    long = GrpsMessage.FromString(BODY)
    long.gtensors.tensors[1].name = "y" * 2000
    assert sent(asked(long.SerializeToString())) == long.SerializeToString()


def test_lists_of_large_messages_are_views_of_them() -> None:
    for size in (10, 100_000):
        [x, _] = asked(written(*[1.5] * size)).inputs
        assert isinstance(x.data, memoryview) == (size > 10)
