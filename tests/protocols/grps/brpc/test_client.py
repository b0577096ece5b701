"""Facing backends: replies of a real server, and what real servers never send."""

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.models import ModelEntry, Signature
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.grps import GRPS_BRPC
from gateway.protocols.grps.brpc.frames import correlation_field, read_frame, with_correlation_id
from gateway.protocols.grps.brpc.meta import SERVICE
from gateway.protocols.grps.schema import RpcMeta
from tests.protocols.grps.brpc.recorded import META_1_6, NUMBER, OF_1_17, PAYLOAD, REPLY_META_1_6, REPLY_PAYLOAD, joined
from tests.protocols.grps.brpc.wire import arrived, written

LISTENER = ListenerSettings("brpc")
TARGET = Target("grps", "127.0.0.1:7081")
ID = correlation_field(NUMBER)
OK = bytes.fromhex("0a09 08c801 1202 4f4b 1801")
FP32 = np.float32


def ask(**meta: object) -> bytes:
    """A meta that asks for Predict, with more."""
    request = {"service_name": SERVICE, "method_name": "Predict"}
    fields: dict[str, object] = {"request": request, "correlation_id": NUMBER, **meta}
    return bytes(RpcMeta(**fields).SerializePartialToString())


def inference(*inputs: Tensor) -> Request:
    """That of the recording, unless there are other inputs."""
    return Request(Operation.INFER, "twice", "1.0.0", inputs=inputs or (tensor("x", np.array([[1, 2, 3]], FP32)),))


def answer_to(request: Request, reply: bytes) -> object:
    return GRPS_BRPC.decode_response(arrived(reply), request, TARGET)


def outputs_of(reply: bytes) -> list[object]:
    answer = answer_to(inference(), reply)
    assert isinstance(answer, Response)
    return [each.array.tolist() for each in answer.outputs]


def reported_error(reply: bytes) -> tuple[Reason, str]:
    with pytest.raises(GatewayError) as failure:
        answer_to(inference(), reply)
    return failure.value.reason, failure.value.message


def test_a_request_is_what_brpc_1_6_writes() -> None:
    message = with_correlation_id(GRPS_BRPC.encode_request(inference(), TARGET), NUMBER, None)
    assert written(message) == joined(META_1_6, PAYLOAD)


def test_a_route_can_choose_the_form_of_the_data() -> None:
    """As for the other wire forms; ndarray exists in JSON only."""
    beginnings = {"gtensors": "2a", "str_data": "22", "bin_data": "1a", "gmap": "3a"}
    assert GRPS_BRPC.payloads == tuple(beginnings)
    text = Tensor("k", Datatype.BYTES, (1,), b"\1\0\0\0a")
    for payload, beginning in beginnings.items():
        request = replace(inference(text), model="", version="", translate=Translate(payload=payload))
        message = with_correlation_id(GRPS_BRPC.encode_request(request, TARGET), NUMBER, None)
        assert bytes(read_frame(arrived(written(message))).payload).hex().startswith(beginning)


def test_large_data_are_not_copied() -> None:
    data = memoryview(bytes(400_000))
    message = GRPS_BRPC.encode_request(inference(Tensor("x", Datatype.FP32, (100_000,), data)), TARGET)
    assert any(part is data for part in with_correlation_id(message, 1, None).parts)


def test_the_deadline_is_for_the_connector() -> None:
    request = Request(Operation.LIVE, deadline=5.0)
    message = GRPS_BRPC.encode_request(request, TARGET)
    assert message.deadline == 5.0
    assert with_correlation_id(message, 1, 1.0).deadline == 5.0


@pytest.mark.parametrize(
    "meta",
    [
        REPLY_META_1_6,
        REPLY_META_1_6 + OF_1_17,
        ID,  # the smallest that a real client accepts
        ID + bytes.fromhex("5800 6204 00112233"),
        ID + bytes(RpcMeta(user_fields={"a": "b"}).SerializeToString()),
    ],
)
def test_the_recorded_reply_and_others(meta: bytes) -> None:
    assert outputs_of(joined(meta, REPLY_PAYLOAD)) == [[[2.0, 4.0, 6.0]]]


def test_an_attachment_of_a_reply_is_ignored() -> None:
    assert outputs_of(joined(ID + b"\x28\x03", REPLY_PAYLOAD + b"abc")) == [[[2.0, 4.0, 6.0]]]
    with pytest.raises(DecodeError, match="the response to ready has an attachment of 3 bytes"):
        answer_to(Request(Operation.READY), joined(ID + b"\x28\x03", OK + b"abc"))


@pytest.mark.parametrize(
    ("number", "text", "reason", "message"),
    [
        (1001, "[10.0.0.1:7081][E1001]Fail to find service=X", Reason.UNSUPPORTED, "Fail to find service=X"),
        (1002, "[10.0.0.1:7081][E1002]Fail to find method=X/Y", Reason.UNSUPPORTED, "Fail to find method=X/Y"),
        (1003, "[E1003]Fail to parse request=1", Reason.INVALID_INPUT, "Fail to parse request=1"),
        (1004, "no", Reason.UNAUTHENTICATED, "no"),
        (1008, "[E1008]slow", Reason.TIMEOUT, "slow"),
        (1011, "[R1][E1011]too many", Reason.OVERLOADED, "too many"),
        (2001, "[E2001]exploded", Reason.MODEL_ERROR, "exploded"),
        (2003, "[E2003]going", Reason.UNREACHABLE, "going"),
        (2004, "[E2004]Reached max_concurrency", Reason.OVERLOADED, "Reached max_concurrency"),
        (125, "[E125]", Reason.CANCELLED, "the server answered with brpc's error 125, without a text"),
        (4711, "", Reason.MODEL_ERROR, "the server answered with brpc's error 4711, without a text"),
        (-1, "[text] that is no prefix", Reason.MODEL_ERROR, "[text] that is no prefix"),
    ],
)
def test_errors_of_a_servers_frame(number: int, text: str, reason: Reason, message: str) -> None:
    meta = RpcMeta(response={"error_code": number, "error_text": text}).SerializeToString() + ID
    assert reported_error(joined(meta)) == (reason, message)
    assert reported_error(joined(meta + b"\x18\x02\x28\x00", b"nobody reads this")) == (reason, message)


def test_an_error_text_that_is_no_utf8() -> None:
    assert reported_error(joined(bytes.fromhex("1206 08ea07 1201ff") + ID)) == (Reason.UNSUPPORTED, "\ufffd")


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (joined(ID, b"\xff"), "protobuf message"),
        (joined(ID), "data"),
        (joined(ID + b"\x28\x01"), "attachment_size is 1"),
        (joined(ID + b"\x18\x04", REPLY_PAYLOAD), "compress_type 4 is unknown"),
        (joined(ID + b"\x18\x02", REPLY_PAYLOAD), "not gzip data"),
        (joined(ID + b"\x50\x01", b"{}"), "neither a status nor data|holds no data"),
        (joined(ID + b"\x50\x01", b"{"), "JSON"),
        (joined(ID + b"\x50\x03", b"{}"), "content_type 3 is not supported"),
        (joined(b"\xff"), "RpcMeta"),
    ],
)
def test_invalid_replies(reply: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        answer_to(inference(), reply)


def test_health_and_metadata_of_a_server() -> None:
    assert answer_to(Request(Operation.READY), joined(ID, OK)) is True
    not_ready = bytes.fromhex("0a1a 08f703 1213") + b"Service Unavailable" + b"\x18\x02"
    assert answer_to(Request(Operation.READY), joined(ID, not_ready)) is False
    yaml = b"models:\n- name: echo\n  version: 1.0.0\n"
    # over C++ RPC the server's metadata have no status
    models = answer_to(Request(Operation.MODELS), joined(ID, b"\x22" + bytes([len(yaml)]) + yaml))
    assert isinstance(models, tuple)
    assert isinstance(models[0], ModelEntry)
    assert models[0].name == "echo"
    yaml = b"name: echo\nversion: 1.0.0\n"
    metadata = answer_to(Request(Operation.METADATA, "echo"), joined(ID, OK + b"\x22" + bytes([len(yaml)]) + yaml))
    assert isinstance(metadata, Signature)


@pytest.mark.parametrize("operation", [Operation.STREAM, Operation.CONFIG, Operation.ONLINE, Operation.GRADIENT])
def test_operations_without_a_method(operation: Operation) -> None:
    with pytest.raises(GatewayError, match=operation.value) as failure:
        GRPS_BRPC.encode_request(Request(operation), TARGET)
    assert failure.value.reason is Reason.UNSUPPORTED
