import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError
from gateway.http2 import frames
from gateway.http2.frames import ErrorCode, FrameReader, Setting

STREAM = (
    b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"  # SETTINGS: 100 streams
    b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"  # its acknowledgement
    b"\x00\x00\x05\x00\x01\x80\x00\x00\x03hello"  # DATA of stream 3, with the reserved bit
    b"\x00\x40\x00\xfe\xff\x00\x00\x00\x01" + bytes(16384)  # of an unknown type, as large as may be
)
FRAMES = [
    (frames.SETTINGS, 0, 0, b"\x00\x03\x00\x00\x00\x64"),
    (frames.SETTINGS, frames.ACK, 0, b""),
    (frames.DATA, frames.END_STREAM, 3, b"hello"),
    (0xFE, 0xFF, 1, bytes(16384)),
]


def feed(reader: FrameReader, data: bytes) -> list[tuple[int, int, int, bytes]]:
    """As a loop does: no more at a time than there is room for."""
    found = []
    while data:
        size = min(len(data), len(reader.buffer))
        assert size
        reader.buffer[:size] = data[:size]
        data = data[size:]
        found += [(kind, flags, stream, bytes(payload)) for kind, flags, stream, payload in reader.received(size)]
    return found


def test_frames_are_cut_at_their_sizes() -> None:
    assert feed(FrameReader(), STREAM * 20) == FRAMES * 20


def test_one_byte_at_a_time() -> None:
    reader = FrameReader()
    assert [frame for octet in STREAM for frame in feed(reader, bytes([octet]))] == FRAMES


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_how_the_stream_is_split_does_not_matter(cuts: list[int]) -> None:
    ends = [*sorted(cuts), len(STREAM)]
    reader = FrameReader()
    pieces = [STREAM[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert [frame for piece in pieces for frame in feed(reader, piece)] == FRAMES


def test_a_frame_larger_than_announced_is_refused_with_its_header() -> None:
    with pytest.raises(DecodeError, match="a frame of 16385 bytes, at most 16384"):
        feed(FrameReader(), b"\x00\x40\x01\x00\x00\x00\x00\x00\x01")


def test_http_1_is_named() -> None:
    with pytest.raises(DecodeError, match="it speaks HTTP/1, not HTTP/2"):
        feed(FrameReader(), b"HTTP/1.1 400 Bad Request\r\n\r\n")


WRITTEN = {
    "settings": (
        frames.settings({Setting.HEADER_TABLE_SIZE: 0, Setting.INITIAL_WINDOW_SIZE: 2**31 - 1}),
        "00000c0400000000000001000000000004" + "7fffffff",
    ),
    "reset": (frames.reset(5, ErrorCode.CANCEL), "000004030000000005" + "00000008"),
    "window update": (frames.window_update(0, 65536), "000004080000000000" + "00010000"),
    "go away": (frames.go_away(ErrorCode.PROTOCOL_ERROR), "000008070000000000" + "0000000000000001"),
    "header": (frames.header(0x123456, frames.DATA, frames.END_STREAM, 7), "123456000100000007"),
}


@pytest.mark.parametrize(("written", "octets"), WRITTEN.values(), ids=WRITTEN)
def test_a_frame_is_written_as_specified(written: bytes, octets: str) -> None:
    assert written.hex() == octets


def test_settings_are_pairs() -> None:
    assert list(frames.read_settings(bytes.fromhex("000300000064000400ffffff"))) == [(3, 100), (4, 0xFFFFFF)]
    with pytest.raises(DecodeError, match="SETTINGS of 7 bytes, each has 6"):
        frames.read_settings(bytes(7))


UNPADDED = {
    "padded": (frames.PADDED, b"\x03payload\0\0\0", b"payload"),
    "padded by nothing": (frames.PADDED, b"\x00payload", b"payload"),
    "nothing but padding": (frames.PADDED, b"\x02\0\0", b""),
    "with a priority": (frames.PRIORITIZED, b"\x80\0\0\x01\xffpayload", b"payload"),
    "both": (frames.PADDED | frames.PRIORITIZED, b"\x01\x80\0\0\x01\xffpayload\0", b"payload"),
}
CUT_OFF = {
    "no size of the padding": (frames.PADDED, b""),
    "more padding than payload": (frames.PADDED, b"\x03\0\0"),
    "half a priority": (frames.PRIORITIZED, b"\0\0\0"),
    "padding within the priority": (frames.PADDED | frames.PRIORITIZED, b"\x01\0\0\0\0\0"),
}


@pytest.mark.parametrize(("flags", "payload", "data"), UNPADDED.values(), ids=UNPADDED)
def test_padding_and_priority_are_no_payload(flags: int, payload: bytes, data: bytes) -> None:
    assert frames.unpadded(memoryview(payload), "HEADERS", flags) == data


@pytest.mark.parametrize(("flags", "payload"), CUT_OFF.values(), ids=CUT_OFF)
def test_a_payload_without_room_for_them_is_refused(flags: int, payload: bytes) -> None:
    with pytest.raises(DecodeError, match="HEADERS of"):
        frames.unpadded(memoryview(payload), "HEADERS", flags)


def test_an_error_is_told_by_its_name() -> None:
    assert frames.error_name(7) == "REFUSED_STREAM"
    assert frames.error_name(99) == "error code 99"
