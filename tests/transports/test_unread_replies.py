"""Replies that clients do not read count against the process' memory."""

import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from gateway.core.messages import Message
from gateway.core.protocol import Framing, Limits, Protocol
from gateway.transports.memory import PROCESS_MEMORY
from tests.limits import until
from tests.transports.conftest import LOOPS as LOOPS
from tests.transports.tcp import toy_protocol as toy
from tests.transports.tcp.toy_protocol import TAGGED, connected, listening, packet, read_packet

MIB = 2**20
LARGE = 8 * MIB
LIMITS = Limits(message=16 * MIB)


def reply(message: Message, protocol: Protocol) -> Message:
    """8 MiB to whoever asks for much, else what was said."""
    said = bytes(message.parts[1])
    return toy.reply(bytes(LARGE) if said == b"much" else said[:10].upper(), toy.tag_of(message))


@pytest.fixture
async def unused() -> AsyncIterator[int]:
    """The bytes in use before the test; the same must be in use after it."""
    gc.collect()  # connections of other tests, whose loops were closed before they were
    before = PROCESS_MEMORY.used
    yield before
    assert PROCESS_MEMORY.used == before


async def until_used(least: int, most: float = float("inf")) -> None:
    await until(lambda: least <= PROCESS_MEMORY.used <= most)


@pytest.mark.long
@pytest.mark.parametrize("framing", [toy.ORDERED, TAGGED], ids=["one at a time", "multiplexed"])
@pytest.mark.parametrize("leave", [True, False], ids=["they leave", "they read after all"])
async def test_unread_replies_of_fifty_clients_are_counted_until_they_are_gone(
    framing: Framing, leave: bool, unused: int
) -> None:
    async with listening(reply, framing=framing, limits=LIMITS) as listener:
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(connected(listener)) for _ in range(50)]
            for _, writer in peers:
                writer.write(packet("much"))
            await until_used(unused + 50 * (LARGE - 6 * MIB))  # the kernel takes some MiB of each
            assert PROCESS_MEMORY.used <= unused + 50 * (LARGE + 100)
            if not leave:
                for reader, _ in peers:
                    _, text = await read_packet(reader)
                    assert len(text) == LARGE
                await until_used(unused, unused)
        await until_used(unused, unused)


async def test_without_memory_large_requests_are_refused_and_small_ones_go_on(
    monkeypatch: pytest.MonkeyPatch, unused: int
) -> None:
    monkeypatch.setattr(PROCESS_MEMORY, "limit", unused + 20 * MIB)
    async with listening(reply, limits=LIMITS) as listener:
        async with AsyncExitStack() as stack:
            for _ in range(20):
                _, writer = await stack.enter_async_context(connected(listener))
                writer.write(packet("much"))
            await until_used(unused + 20 * MIB)
            reader, writer = await stack.enter_async_context(connected(listener))
            writer.write(packet("small"))
            assert (await read_packet(reader))[1] == "SMALL"
            writer.write(packet(bytes(MIB)))
            _, text = await read_packet(reader)
            assert text.startswith("overloaded: no memory for 1048576 bytes more: messages hold ")
        await until_used(unused, unused)


async def test_an_aborted_connection_gives_its_memory_back(unused: int) -> None:
    async with listening(reply, limits=LIMITS) as listener, connected(listener) as (_, writer):
        writer.write(packet("much"))
        await until_used(unused + MIB)
        await listener.drain(0)
        assert PROCESS_MEMORY.used == unused
