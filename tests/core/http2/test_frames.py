import pytest

from gateway.core.http2 import frames
from gateway.core.http2.frames import ErrorCode, Setting

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


UNPADDED = {
    "padded": (frames.PADDED, b"\x03payload\0\0\0", b"payload"),
    "padded by nothing": (frames.PADDED, b"\x00payload", b"payload"),
    "nothing but padding": (frames.PADDED, b"\x02\0\0", b""),
    "with a priority": (frames.PRIORITIZED, b"\x80\0\0\x01\xffpayload", b"payload"),
    "both": (frames.PADDED | frames.PRIORITIZED, b"\x01\x80\0\0\x01\xffpayload\0", b"payload"),
}


@pytest.mark.parametrize(("flags", "payload", "data"), UNPADDED.values(), ids=UNPADDED)
def test_padding_and_priority_are_no_payload(flags: int, payload: bytes, data: bytes) -> None:
    assert frames.unpadded(memoryview(payload), "HEADERS", flags) == data


def test_an_error_is_told_by_its_name() -> None:
    assert frames.error_name(7) == "REFUSED_STREAM"
    assert frames.error_name(99) == "error code 99"
