"""Recorded frames on a byte stream, however it is cut; and frames that are anything at all."""

import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import as_gateway_error
from gateway.core.messages import Message
from gateway.core.protocol import Limits, ListenerSettings, StreamBinding, Target
from gateway.core.requests import Response
from gateway.protocols.grps import GRPS_BRPC
from gateway.protocols.grps.brpc.frames import read_meta
from gateway.protocols.grps.schema import RpcMeta
from gateway.transports.tcp.packets import Packet, PacketReader
from tests.protocols.grps.brpc.recorded import META, NUMBER, PAYLOAD, REPLY, REPLY_PAYLOAD, REQUEST, joined
from tests.protocols.grps.brpc.test_client import inference
from tests.protocols.grps.brpc.wire import arrived, pieces, written
from tests.protocols.grps.protobuf.upb import GRPS

STREAM = REQUEST + REPLY + joined(b"") + REQUEST
FRAMES = [REQUEST, REPLY, joined(b""), REQUEST]
LISTENER = ListenerSettings(limits=Limits(message=100_000))


def reader(limits: Limits | None = None, scratch: int = 4096) -> PacketReader:
    assert isinstance(GRPS_BRPC.binding, StreamBinding)
    return PacketReader(GRPS_BRPC.binding.framing, limits or Limits(), memoryview(bytearray(scratch)))


def feed(into: PacketReader, data: Iterable[bytes]) -> list[Packet]:
    """As a loop does: fills the buffer, and tells how far."""
    packets: list[Packet] = []
    for piece in data:
        while piece:
            buffer = into.buffer
            size = min(len(buffer), len(piece))
            buffer[:size] = piece[:size]
            packets += into.received(size)
            piece = piece[size:]
    return packets


def frames(packets: list[Packet]) -> list[bytes]:
    return [bytes(header) + bytes(rest) for header, rest in packets]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8), st.sampled_from([1, 12, 64, 4096]))
@example([], 4096)
@example(list(range(1, len(STREAM))), 4096)
def test_frames_are_found_wherever_the_stream_is_cut(places: list[int], scratch: int) -> None:
    into = reader(scratch=scratch)
    assert frames(feed(into, pieces(STREAM, places))) == FRAMES
    into.check_end()


@pytest.mark.parametrize("end", range(1, len(REQUEST)))
def test_an_end_inside_a_frame_is_told(end: int) -> None:
    into = reader()
    assert feed(into, [REQUEST[:end]]) == []
    with pytest.raises(DecodeError, match="ended in a message"):
        into.check_end()


@pytest.mark.parametrize("piece", [1, 10, 1000])
def test_of_a_frame_beyond_the_limit_the_meta_is_read_and_no_more(piece: int) -> None:
    limits = Limits(message=len(META) + 100)
    data = joined(META, bytes(101)) + REQUEST
    large, next_one = feed(reader(limits), [data[at : at + piece] for at in range(0, len(data), piece)])
    assert frames([large, next_one]) == [joined(META, bytes(101))[: 12 + len(META)], REQUEST]
    message = Message(parts=large)
    with pytest.raises(GatewayError, match=r"of 158 bytes is larger than limits\.message, 157 bytes") as failure:
        GRPS_BRPC.decode_request(message, ListenerSettings(limits=limits))
    refusal = read_meta(arrived(written(GRPS_BRPC.encode_error(failure.value, None, message))))
    assert (refusal.response.error_code, refusal.correlation_id) == (1003, NUMBER)
    with pytest.raises(DecodeError, match=r"of 158 bytes is larger than limits\.message, 157 bytes"):
        GRPS_BRPC.decode_response(message, inference(), Target("grps", "127.0.0.1:7081", limits=limits))


def test_a_meta_beyond_the_limit_is_refused_before_it_is_received() -> None:
    with pytest.raises(GatewayError, match=r"of 57 bytes, is larger than limits\.headers, 56 bytes") as failure:
        feed(reader(Limits(headers=56)), [REQUEST[:12]])
    assert failure.value.reason is Reason.HEADERS_TOO_LARGE


# --- Anything at all ---

metas = st.one_of(
    st.binary(max_size=80),
    st.tuples(st.integers(0, len(META)), st.binary(max_size=6)).map(lambda at: META[: at[0]] + at[1] + META[at[0] :]),
    st.builds(
        lambda **fields: bytes(RpcMeta(**fields).SerializePartialToString()),
        request=st.just({"service_name": "GrpsBrpcService", "method_name": "Predict"}),
        compress_type=st.integers(-2, 5),
        attachment_size=st.integers(-2, 50),
        correlation_id=st.integers(-(2**63), 2**63 - 1),
        content_type=st.integers(-1, 4),
        checksum_type=st.integers(-1, 2),
        checksum_value=st.binary(max_size=5),
        checksum_with_attachment=st.booleans(),
    ),
)
payloads = st.one_of(st.just(PAYLOAD), st.binary(max_size=60))


@given(metas, payloads)
@example(b"\x0a\x04\x0a\x02\xff\xfe", b"")
def test_any_frame_is_a_request_or_is_answered_with_its_id(meta: bytes, payload: bytes) -> None:
    message = arrived(joined(meta, payload))
    assert isinstance(GRPS_BRPC.binding, StreamBinding)
    assert GRPS_BRPC.binding.framing.tag is not None
    try:
        number = GRPS_BRPC.binding.framing.tag(message)
    except DecodeError:
        number = 0
    try:
        GRPS_BRPC.decode_request(message, LISTENER)
    except (DecodeError, GatewayError) as error:
        reply = GRPS_BRPC.encode_error(as_gateway_error(error), None, message)
        told = read_meta(arrived(written(reply)))
        assert told.correlation_id == number
        assert told.response.error_code in (0, 1001, 1002, 1003)


def compare(answer: Response, read: Any) -> None:
    """`answer` has the names, shapes and elements of `read`, the same message read by protobuf's library."""
    if read.WhichOneof("data_oneof") != "gtensors":
        return
    tensors = read.gtensors.tensors
    assert [(each.name, list(each.shape)) for each in answer.outputs] == [
        (each.name, list(each.shape)) for each in tensors
    ]
    for output, tensor in zip(answer.outputs, tensors, strict=True):
        [elements] = [list(values) for field, values in tensor.ListFields() if field.name.startswith("flat_")] or [[]]
        if output.datatype is Datatype.BYTES:
            texts = [each.encode() for each in elements]
            assert bytes(output.data) == b"".join(struct.pack("<I", len(each)) + each for each in texts)
        else:
            assert bytes(output.data) == np.array(elements).astype(output.datatype.dtype).tobytes()


@given(metas, st.one_of(payloads, st.just(REPLY_PAYLOAD)))
def test_any_frame_is_an_answer_or_none(meta: bytes, payload: bytes) -> None:
    message = arrived(joined(meta, payload))
    with suppress(DecodeError, GatewayError):
        answer = GRPS_BRPC.decode_response(message, inference(), Target("grps", "127.0.0.1:7081"))
        assert isinstance(answer, Response)
        told = RpcMeta.FromString(meta)
        assert told.response.error_code == 0
        if not told.compress_type:
            compare(answer, GRPS.FromString(payload[: len(payload) - told.attachment_size]))
