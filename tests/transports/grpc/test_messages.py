import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.transports.grpc.inflating import Compressed
from gateway.transports.grpc.messages import MessageReader, TooLargeError, framed

LIMIT = 1000
STREAM = b"".join(
    (b"\0\0\0\0\x05first", b"\0\0\0\0\x00", b"\0\0\0\0\x03two", b"\1\0\0\0\x02zz", b"\0\0\0\x03\xe8", bytes(1000))
)
MESSAGES = [b"first", b"", b"two", b"zz", bytes(1000)]


def read(reader: MessageReader, data: bytes) -> list[bytes]:
    return [bytes(each.data if isinstance(each, Compressed) else each) for each in reader.read(memoryview(data))]


@example([])
@example([*range(len(STREAM))])
@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_how_the_stream_is_split_does_not_matter(cuts: list[int]) -> None:
    ends = [*sorted(cuts), len(STREAM)]
    reader = MessageReader(LIMIT)
    pieces = [STREAM[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert [message for piece in pieces for message in read(reader, piece)] == MESSAGES
    assert reader.is_between


def test_compressed_messages_are_told_apart() -> None:
    kinds = [type(each) is Compressed for each in MessageReader(LIMIT).read(memoryview(STREAM))]
    assert kinds == [False, False, False, True, False]


def test_what_is_kept_does_not_change_with_the_buffer() -> None:
    buffer = bytearray(b"\0\0\0\0\x05first")
    (message,) = MessageReader(LIMIT).read(memoryview(buffer))
    buffer[:] = bytes(10)
    assert message == b"first"


@pytest.mark.parametrize("size", [1, 4, 5, 6])
def test_within_a_message_it_is_not_between(size: int) -> None:
    reader = MessageReader(LIMIT)
    assert read(reader, STREAM[:size]) == []
    assert not reader.is_between


@pytest.mark.parametrize("cut", [5, 1])
def test_a_size_beyond_the_limit_is_refused_with_the_prefix(cut: int) -> None:
    prefix = b"\0\xff\xff\xff\xff"
    reader = MessageReader(LIMIT)
    reader.read(memoryview(prefix[: 5 - cut]))
    with pytest.raises(TooLargeError) as caught:
        reader.read(memoryview(prefix[5 - cut :]))
    assert caught.value.size == 2**32 - 1


def test_a_message_is_sent_behind_its_prefix() -> None:
    assert b"".join(framed((b"one", memoryview(b"two")))) == b"\0\0\0\0\x06onetwo"
