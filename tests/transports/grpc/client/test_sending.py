"""What no server makes happen in a test: its buffers are too large."""

import asyncio
from collections import deque
from itertools import repeat

import pytest

from gateway.core.errors import DecodeError
from gateway.core.protocol import Limits
from gateway.transports.grpc.client.call import Call
from gateway.transports.grpc.client.sending import Sender


class Full(asyncio.WriteTransport):
    """A transport whose other side reads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.size += len(data)

    def get_write_buffer_size(self) -> int:
        return self.size


def test_a_server_that_asks_and_does_not_read_is_left() -> None:
    transport = Full()
    sender = Sender(transport)
    for _ in range(100_000):
        sender.control(bytes(17))  # it reads on
    sender.pause()
    before = transport.size
    with pytest.raises(DecodeError, match="it does not read what it asks for"):
        deque(map(sender.control, repeat(bytes(17))), 0)
    assert transport.size - before < 100_000


def test_heads_pile_up_to_a_bound() -> None:
    transport = Full()
    sender = Sender(transport)
    sender.pause()
    while not sender.is_stuck:
        call = Call(Limits(), streamed=False)
        sender.begin(call, bytes(1000), (bytes(10_000),))
        assert transport.size < 1_200_000
    assert transport.size > 1_000_000
    sender.resume()
    assert not sender.is_stuck
