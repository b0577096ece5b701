import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.protocol import Limits
from gateway.transports.tcp.packets import SCRATCH_BYTES, Packet, PacketReader
from tests.transports.tcp.toy_protocol import HEADED, HEADER, ORDERED, packet


def reader(limit: int = 1000, scratch: int = 64) -> PacketReader:
    return PacketReader(ORDERED, Limits(message=limit), memoryview(bytearray(scratch)))


def feed(into: PacketReader, data: bytes) -> list[Packet]:
    """Feed `data` as an event loop does: fill the buffer, and report how many bytes."""
    packets: list[Packet] = []
    while data:
        buffer = into.buffer
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        packets += into.received(size)
        data = data[size:]
    return packets


def texts(packets: list[Packet]) -> list[bytes]:
    return [bytes(body) for _, body in packets]


SEVERAL = packet("one") + packet("") + packet(b"x" * 200) + packet("four")
TEXTS = [b"one", b"", b"x" * 200, b"four"]


@pytest.mark.parametrize("scratch", [1, 9, 10, 64, 4096])
def test_messages_are_cut_out_however_they_come(scratch: int) -> None:
    assert texts(feed(reader(scratch=scratch), SEVERAL)) == TEXTS


@given(st.lists(st.integers(0, len(SEVERAL)), max_size=6))
def test_messages_are_cut_out_wherever_the_stream_is_cut(places: list[int]) -> None:
    into, packets = reader(scratch=4096), []
    ends = sorted({*places, len(SEVERAL)})
    for start, end in zip([0, *ends], ends, strict=False):
        packets += feed(into, SEVERAL[start:end])
    assert texts(packets) == TEXTS
    into.check_end()


def test_a_message_larger_than_the_scratch_has_a_buffer_of_its_size() -> None:
    into = reader(scratch=16)
    feed(into, packet(bytes(100))[:20])
    assert len(into.buffer) == 100 - (20 - HEADER.size)


def test_a_message_beyond_the_limit_is_refused_before_it_is_received() -> None:
    into = reader(limit=10)
    packets: list[Packet] = []
    good, bad = packet("ten bytes."), HEADER.pack(b"T", 0, 0xFFFFFFFF)
    with pytest.raises(GatewayError, match=r"4294967295 bytes is larger than limits.message, 10 bytes"):
        packets.extend(_into(packets, into, good + bad))
    assert texts(packets) == [b"ten bytes."]
    assert into.header == bad
    assert not into.in_body


def _into(packets: list[Packet], into: PacketReader, data: bytes) -> list[Packet]:
    into.buffer[: len(data)] = data
    for each in into.received(len(data)):
        packets.append(each)
    return []


def test_a_malformed_header_is_kept_for_the_error() -> None:
    into = reader()
    with pytest.raises(DecodeError, match="magic b'G', expected b'T'"):
        feed(into, b"GET / HTTP/1.1\r\n\r\n")
    assert into.header == b"GET / HTT"


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (packet("abcd")[:3], "3 of the 9 bytes of its header"),
        (packet("abcd")[:9], "0 of the 4 bytes that its header announces"),
        (packet("abcd")[:12], "3 of the 4 bytes that its header announces"),
    ],
)
def test_an_end_inside_a_message_is_an_error(sent: bytes, why: str) -> None:
    into = reader()
    assert feed(into, sent) == []
    with pytest.raises(DecodeError, match=why):
        into.check_end()


HEADED_SEVERAL = packet("one") + packet("head" + "x" * 300) + packet("four") + packet("tail" + "y" * 9000)
HEADS = [b"one", b"head", b"four", b"tail"]


@given(st.lists(st.integers(0, len(HEADED_SEVERAL)), max_size=6), st.sampled_from([1, 13, 64, 4096]))
def test_a_message_over_the_limit_is_its_head_wherever_the_stream_is_cut(places: list[int], scratch: int) -> None:
    into, packets = PacketReader(HEADED, Limits(message=100), memoryview(bytearray(scratch))), []
    ends = sorted({*places, len(HEADED_SEVERAL)})
    for start, end in zip([0, *ends], ends, strict=False):
        packets += feed(into, HEADED_SEVERAL[start:end])
    assert texts(packets) == HEADS
    assert not into.in_body
    into.check_end()


def test_an_end_inside_dropped_bytes_is_an_error() -> None:
    into = PacketReader(HEADED, Limits(message=100), memoryview(bytearray(4096)))
    assert texts(feed(into, packet("head" + "x" * 300)[:100])) == [b"head"]
    assert into.in_body
    with pytest.raises(DecodeError, match=r"ended in a message that is larger than limits\.message"):
        into.check_end()


def test_dropped_bytes_are_received_in_large_pieces_and_the_next_message_is_read() -> None:
    size = 3 * 2**20
    into = PacketReader(HEADED, Limits(message=100), memoryview(bytearray(SCRATCH_BYTES)))
    sent = packet("head" + "x" * size) + packet("next")
    assert texts(feed(into, sent[:1000])) == [b"head"]
    assert len(into.buffer) == 2**20
    assert texts(feed(into, sent[1000:])) == [b"next"]
    assert not into.in_body
