"""Where frames begin and end, and whose they are."""

import pytest

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.messages import NO_HEADERS
from gateway.protocols.grps.brpc import frames
from tests.protocols.grps.brpc.recorded import META, NUMBER, PAYLOAD, REPLY, REPLY_META, REPLY_PAYLOAD, REQUEST, joined
from tests.protocols.grps.brpc.wire import arrived, written


@pytest.mark.parametrize(("data", "meta", "payload"), [(REQUEST, META, PAYLOAD), (REPLY, REPLY_META, REPLY_PAYLOAD)])
def test_recorded_frames_come_apart_and_together(data: bytes, meta: bytes, payload: bytes) -> None:
    assert frames.body_size(data[:12]) == len(data) - 12
    assert frames.meta_size(data[:12]) == len(meta)
    frame = frames.read_frame(arrived(data))
    assert (frame.meta.SerializeToString(), bytes(frame.payload), bytes(frame.attachment)) == (meta, payload, b"")
    assert written(frames.write_frame(meta, (payload,))) == data
    assert frames.read_correlation_id(arrived(data)) == NUMBER


@pytest.mark.parametrize(
    ("number", "field"),
    [
        (0, "2000"),
        (1, "2001"),
        (4294967298, "20 8280808010"),
        (NUMBER, "20 8280808060"),
        (2**53 + 1, "20 8180808080808010"),
        (2**63 - 1, "20 ffffffffffffffff7f"),
        (-1, "20 ffffffffffffffffff01"),
        (-(2**63), "20 80808080808080808001"),
    ],
)
def test_correlation_ids_are_exact_64_bits(number: int, field: str) -> None:
    assert frames.correlation_field(number) == bytes.fromhex(field)
    assert frames.read_correlation_id(arrived(joined(bytes.fromhex(field)))) == number


@pytest.mark.parametrize(
    ("seconds", "field"),
    [(0.5, "40 f403"), (2.0, "40 d00f"), (0.0001, "40 01"), (1e9, "40 ffffffff07")],
    ids=["half a second", "two seconds", "less than a millisecond", "more than an int32"],
)
def test_the_time_left_is_in_the_request_part(seconds: float, field: str) -> None:
    names = META[2 : 2 + 0x29]
    # as the codec writes it: everything but the correlation id
    ours = frames.write_frame(b"\x0a\x29" + names + b"\x18\x00", (PAYLOAD,))
    retagged = frames.with_correlation_id(ours, 7, seconds)
    request = names + bytes.fromhex(field)
    assert written(retagged) == joined(b"\x0a" + bytes([len(request)]) + request + b"\x18\x00\x20\x07", PAYLOAD)
    meta = frames.read_meta(arrived(written(retagged)))
    assert (meta.request.method_name, meta.request.timeout_ms) == ("Predict", min(max(1, seconds * 1000), 2**31 - 1))


def test_the_attachment_comes_last() -> None:
    frame = frames.read_frame(arrived(joined(META + bytes.fromhex("2808"), PAYLOAD + b"attached")))
    assert (bytes(frame.payload), bytes(frame.attachment)) == (PAYLOAD, b"attached")


@pytest.mark.parametrize(
    "field", ["2809", "28 ffffffff07", "28 ffffffffffffffffff01"], ids=["one more", "int32's last", "negative"]
)
def test_an_attachment_that_is_not_there_is_refused(field: str) -> None:
    told = r"attachment_size is -?\d+, but payload and attachment together have 8 bytes"
    with pytest.raises(DecodeError, match=told):
        frames.read_frame(arrived(joined(META + bytes.fromhex(field), b"attached")))


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"GET / HTTP/1", "magic b'GET ', expected b'PRPC'"),
        (b"STRM" + bytes(8), "magic b'STRM', expected b'PRPC'"),
        (joined(b"12345")[:8] + b"\0\0\0\6", "meta_size 6 is larger than body_size 5"),
        (b"PRPC" + bytes(4) + b"\xff" * 4, "meta_size 4294967295 is larger than body_size 0"),
    ],
)
def test_what_is_no_header(header: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        frames.body_size(header)


@pytest.mark.parametrize("meta", [b"\xff", b"\x0a\x05\x0a", b"\x0a\x02\x0a\x7f", b"\x0c"])
def test_what_is_no_meta(meta: bytes) -> None:
    with pytest.raises(DecodeError, match=r"no brpc\.policy\.RpcMeta message"):
        frames.read_correlation_id(arrived(joined(meta)))
    assert frames.credential(arrived(joined(meta))) == NO_HEADERS


def test_a_frame_holds_4_gib() -> None:
    large = memoryview(bytes(2**20)).cast("B")
    with pytest.raises(GatewayError, match=r"more than a baidu_std frame holds") as error:
        frames.write_frame(b"", (large,) * 4096)
    assert error.value.reason is Reason.TOO_LARGE
