"""Frames that pass unread between two sides of grps-brpc: which do, and what the server and the client get."""

from struct import unpack_from
from typing import Any

import pytest

from gateway.core.errors import GatewayError, Reason
from gateway.core.exchange import unread
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import Request
from gateway.protocols.grps import GRPS_BRPC
from gateway.protocols.grps.brpc import server
from gateway.protocols.grps.brpc.meta import SERVICE
from gateway.protocols.grps.errors import ModelFailure
from gateway.protocols.grps.schema import RpcMeta
from tests.protocols.grps.brpc.recorded import NUMBER, PAYLOAD, REPLY, REPLY_META, REPLY_PAYLOAD, REQUEST, joined
from tests.protocols.grps.brpc.wire import arrived, written

assert GRPS_BRPC.relay is not None
RELAY: Relay = GRPS_BRPC.relay
LISTENER, TARGET = ListenerSettings("brpc"), Target("grps", "127.0.0.1:1")
FAILURE = bytes.fromhex("0a0a 08a603 1203 626164 1802")  # 422, bad
DATA = bytes.fromhex("2202 6869")  # str_data: hi


def asked(method: str = "Predict", service: str = SERVICE, **more: object) -> bytes:
    """The meta of a request."""
    names = {"service_name": service, "method_name": method}
    call = {**names, **more.pop("request", {})}  # type: ignore[dict-item]
    raw: bytes = RpcMeta(request=call, correlation_id=NUMBER, **more).SerializeToString()
    return raw


def headed(frame: bytes, listener: ListenerSettings = LISTENER, received: float = 0.0) -> Request | None:
    return unread(arrived(frame, received=received), GRPS_BRPC, listener)


def passing(frame: bytes, listener: ListenerSettings = LISTENER, received: float = 0.0) -> Request:
    """The request of a frame that passes."""
    request = headed(frame, listener, received)
    assert request is not None
    return request


def sent(frame: bytes) -> Message | None:
    """What the server gets, before the connector has numbered it."""
    return RELAY.request(arrived(frame), passing(frame), TARGET)


def replied(reply: bytes) -> Message | None:
    return RELAY.reply(arrived(reply), passing(REQUEST), TARGET)


def cut(message: Message | None) -> tuple[Any, bytes]:
    """The meta of a frame that passed, and what is behind it."""
    assert message is not None
    frame = written(message)
    size, meta = unpack_from("!2I", frame, 4)
    assert size == len(frame) - 12
    return RpcMeta.FromString(frame[12 : 12 + meta]), frame[12 + meta :]


def test_a_recorded_request_goes_on_behind_a_meta_of_the_gateway() -> None:
    request = passing(REQUEST)
    assert (request.operation, request.model, request.deadline) == (Operation.INFER, "twice-1.0.0", None)
    meta, payload = cut(sent(REQUEST))
    assert payload == PAYLOAD
    assert meta == RpcMeta(request={"service_name": SERVICE, "method_name": "Predict"}, compress_type=0)


def test_an_attachment_goes_on_and_what_is_meant_for_the_gateway_does_not() -> None:
    meta = asked(
        service="GrpsBrpcService",
        request={"timeout_ms": 250, "log_id": 7, "request_id": "r"},
        attachment_size=4,
        authentication_data=b"secret",
        user_fields={"for": b"me"},
    )
    frame = joined(meta, PAYLOAD + b"\0\xff12")
    assert passing(frame, received=10.0).deadline == 10.25
    meta_sent, payload = cut(sent(frame))
    assert payload == PAYLOAD + b"\0\xff12"
    names = {"service_name": SERVICE, "method_name": "Predict"}
    assert meta_sent == RpcMeta(request=names, compress_type=0, attachment_size=4)


@pytest.mark.parametrize(
    "frame",
    [
        joined(b"", PAYLOAD),
        joined(b"\xff", PAYLOAD),
        joined(asked("ModelMetadata"), PAYLOAD),
        joined(asked("PredictByHttp"), PAYLOAD),
        joined(asked(service="Other"), PAYLOAD),
        joined(asked(compress_type=2), PAYLOAD),
        joined(asked(compress_type=9), PAYLOAD),
        joined(asked(checksum_type=1, checksum_value=b"0000"), PAYLOAD),
        joined(asked(content_type=1), b'{"model": "m", "str_data": "hi"}'),
        joined(asked(content_type=1), PAYLOAD),
        joined(asked(attachment_size=-1), PAYLOAD),
        joined(asked(attachment_size=4000), PAYLOAD),
        joined(asked(), b""),
        joined(asked(), b"\x12\x01m"),
        joined(asked(), PAYLOAD[:-1]),
        joined(asked(), b"\x12\x01\xff" + DATA),
        joined(asked(), PAYLOAD, magic=b"HULU"),
    ],
)
def test_what_must_be_read_does_not_pass(frame: bytes) -> None:
    assert headed(frame) is None


def test_a_frame_of_which_only_the_meta_was_kept_does_not_pass() -> None:
    assert RELAY.head(Message(parts=(REQUEST[:12], REQUEST[12 : 12 + 0x39])), LISTENER) is None


def test_of_several_models_the_last_one_counts_and_an_attachment_names_none() -> None:
    assert passing(joined(asked(attachment_size=3), PAYLOAD + b"\x12\x01b" + b"\x12\x01c")).model == "b"


def test_the_model_of_a_listener_is_written_into_a_message_without_one() -> None:
    own = ListenerSettings("brpc", model="default")
    assert headed(joined(asked(), DATA), own) is None
    assert passing(REQUEST, own).model == "twice-1.0.0"
    assert passing(joined(asked(), DATA)).model == ""


def test_a_recorded_reply_goes_on_behind_a_meta_of_the_gateway() -> None:
    meta, payload = cut(replied(REPLY))
    assert payload == REPLY_PAYLOAD
    assert meta == RpcMeta(response={"error_code": 0}, compress_type=0, correlation_id=NUMBER)


def test_a_reply_has_the_clients_number_and_the_servers_attachment() -> None:
    theirs = RpcMeta(response={}, correlation_id=1, attachment_size=3, user_fields={"a": b"b"}).SerializeToString()
    meta, payload = cut(replied(joined(theirs, REPLY_PAYLOAD + b"end")))
    assert payload == REPLY_PAYLOAD + b"end"
    assert meta == RpcMeta(response={"error_code": 0}, compress_type=0, correlation_id=NUMBER, attachment_size=3)


@pytest.mark.parametrize(
    "reply",
    [
        joined(RpcMeta(correlation_id=1, compress_type=2).SerializeToString(), REPLY_PAYLOAD),
        joined(RpcMeta(correlation_id=1, checksum_type=1).SerializeToString(), REPLY_PAYLOAD),
        joined(RpcMeta(correlation_id=1, content_type=1).SerializeToString(), b"{}"),
        joined(RpcMeta(correlation_id=1, attachment_size=-1).SerializeToString(), REPLY_PAYLOAD),
        joined(REPLY_META, b""),
        joined(REPLY_META, REPLY_PAYLOAD[:-1]),
        joined(b"\xff", REPLY_PAYLOAD),
    ],
)
def test_other_replies_are_read(reply: bytes) -> None:
    assert replied(reply) is None


def test_an_error_in_the_meta_is_raised() -> None:
    meta = RpcMeta(response={"error_code": 1003, "error_text": "[127.0.0.1:1][E1003]Fail to parse request"})
    with pytest.raises(GatewayError, match=r"^Fail to parse request") as raised:
        replied(joined(meta.SerializeToString()))
    assert raised.value.reason is Reason.INVALID_INPUT


def test_an_error_in_the_message_is_raised_with_its_code_and_its_reason() -> None:
    with pytest.raises(ModelFailure, match="bad") as raised:
        replied(joined(REPLY_META, FAILURE))
    assert raised.value.code == 422
    meta = RpcMeta(user_fields={"gateway-reason": b"overloaded"}).SerializeToString()
    with pytest.raises(GatewayError, match="bad") as told:
        replied(joined(meta, FAILURE))
    assert told.value.reason is Reason.OVERLOADED


def test_the_reply_with_an_error_has_the_clients_number() -> None:
    request = passing(REQUEST)
    error = ModelFailure(Reason.MODEL_ERROR, "bad", 422)
    meta, payload = cut(GRPS_BRPC.encode_error(error, request, arrived(REQUEST)))
    assert payload == FAILURE
    assert meta.correlation_id == NUMBER
    assert server.correlation_of(request) == bytes.fromhex("20 8280808060")
