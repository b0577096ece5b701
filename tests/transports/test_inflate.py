import gzip
import threading
from collections.abc import Callable
from random import Random

import pytest

from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.protocol import Limits
from gateway.transports.inflate import IN_THREAD, inflate, inflate_in_thread, inflate_message, inflate_small
from gateway.transports.memory import PROCESS_MEMORY
from tests.transports.tcp import toy_protocol as toy
from tests.transports.tcp.toy_protocol import HEADER, SQUEEZING, squeezed

LIMITS = Limits(message=2**22)


async def test_a_body_that_inflates_far_is_left_to_a_thread() -> None:
    data = gzip.compress(bytes(IN_THREAD + 1))
    assert inflate_small(data, "gzip", LIMITS, "it") is None
    assert inflate_small(bytes(IN_THREAD + 1), "gzip", LIMITS, "it") is None
    assert await inflate_in_thread(data, "gzip", LIMITS, "it") == bytes(IN_THREAD + 1)
    assert inflate_small(gzip.compress(bytes(IN_THREAD)), "gzip", LIMITS, "it") == bytearray(IN_THREAD)
    with pytest.raises(GatewayError, match=r"limits\.message, 100 bytes"):
        inflate_small(data, "gzip", Limits(message=100), "it")


async def test_a_message_that_takes_long_is_inflated_in_a_thread() -> None:
    where: list[bool] = []

    def noting(message: Message, limits: Limits, take: Callable[[int], None]) -> Message:
        where.append(threading.current_thread() is threading.main_thread())
        return toy.inflate(message, limits, take)

    framing = replace(SQUEEZING, inflate=noting)
    for text in (b"a" * IN_THREAD, b"a" * (IN_THREAD + 1), Random(1).randbytes(2 * IN_THREAD)):
        data = squeezed(text)
        found = await inflate_message(Message(parts=(data[: HEADER.size], data[HEADER.size :])), framing, LIMITS)
        assert found.parts[1] == text
    # the second was begun without a thread, and stopped when it became large
    assert where == [True, True, False, False]


def test_inflated_bytes_are_counted_and_refused_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    before = PROCESS_MEMORY.used
    data = gzip.compress(bytes(2**20))
    body = inflate(data, "gzip", LIMITS, "it")
    assert 2**20 <= PROCESS_MEMORY.used - before <= 2**20 + 2**16
    del body
    assert PROCESS_MEMORY.used == before
    monkeypatch.setattr(PROCESS_MEMORY, "limit", before + 2**18)
    with pytest.raises(GatewayError, match=r"limits\.memory") as caught:
        inflate(data, "gzip", LIMITS, "it")
    assert caught.value.reason is Reason.OVERLOADED
    assert PROCESS_MEMORY.used == before


@pytest.mark.parametrize("size", [IN_THREAD // 2, 4 * IN_THREAD])
async def test_inflated_messages_are_refused_without_memory(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    before, data = PROCESS_MEMORY.used, squeezed(bytes(size))
    message = Message(parts=(data[: HEADER.size], data[HEADER.size :]))
    monkeypatch.setattr(PROCESS_MEMORY, "limit", before + size - 1)
    with pytest.raises(GatewayError, match=r"limits\.memory") as caught:
        await inflate_message(message, SQUEEZING, LIMITS)
    assert caught.value.reason is Reason.OVERLOADED
    assert PROCESS_MEMORY.used == before
