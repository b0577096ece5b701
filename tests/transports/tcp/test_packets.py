import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError
from gateway.core.protocol import Framing, Limits
from gateway.transports.tcp.packets import SCRATCH_BYTES, Packet, PacketReader
from tests.transports.tcp.toy_protocol import HEADED, HEADER, ORDERED, packet


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
WITH_LARGE = packet("one") + packet("head" + "x" * 300) + packet("four") + packet("tail" + "y" * 9000)


@pytest.mark.parametrize(
    ("framing", "limit", "stream", "expected"),
    [
        (ORDERED, 1000, SEVERAL, [b"one", b"", b"x" * 200, b"four"]),
        (HEADED, 100, WITH_LARGE, [b"one", b"head", b"four", b"tail"]),
    ],
    ids=["all whole", "those over the limit to their heads"],
)
@given(st.lists(st.integers(0, len(WITH_LARGE)), max_size=6), st.sampled_from([1, 9, 10, 13, 64, 4096]))
def test_messages_are_cut_out_wherever_the_stream_is_cut(
    framing: Framing, limit: int, stream: bytes, expected: list[bytes], places: list[int], scratch: int
) -> None:
    into, packets = PacketReader(framing, Limits(message=limit), memoryview(bytearray(scratch))), []
    ends = sorted({*(place % len(stream) for place in places), len(stream)})
    for start, end in zip([0, *ends], ends, strict=False):
        packets += feed(into, stream[start:end])
    assert texts(packets) == expected
    assert not into.in_body
    into.check_end()


def test_a_message_larger_than_the_scratch_has_a_buffer_of_its_size() -> None:
    into = PacketReader(ORDERED, Limits(message=1000), memoryview(bytearray(16)))
    feed(into, packet(bytes(100))[:20])
    assert len(into.buffer) == 100 - (20 - HEADER.size)


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
