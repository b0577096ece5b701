"""Functions that decompress bodies, for the connections of all transports.

The functions count the memory in a Memory, and use a thread for work that would block the loop for too long.
"""

import asyncio
from collections.abc import Callable

from gateway.core import inflation
from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.messages import Buffer, Message
from gateway.core.protocol import Framing, Limits
from gateway.transports.memory import PROCESS_MEMORY, ArrivingBody, Memory

IN_THREAD = 256 * 2**10
"""The maximum size, in bytes, of content to process without a thread. The limit applies before and after decompression.
Content of this size takes 1 ms."""


def inflate(data: Buffer, coding: str, limits: Limits, what: str, memory: Memory = PROCESS_MEMORY) -> Buffer:
    """Return the decompressed `data`. `coding` is a key of inflation.WBITS.

    Raises:
        DecodeError, GatewayError: same as `inflation.inflated`; also RESOURCE_EXHAUSTED (overloaded) if the process
        does not have enough memory.
    """
    arriving = ArrivingBody(inflation.max_inflated_size(len(data), limits), memory)
    for piece in inflation.inflated(data, coding, limits, what):
        arriving.append(piece)
    return arriving.body


def inflate_small(
    data: Buffer, coding: str, limits: Limits, what: str, memory: Memory = PROCESS_MEMORY
) -> Buffer | None:
    """Same as `inflate`, but returns None if the content is too large to decompress without a thread."""
    if len(data) > IN_THREAD:
        return None
    try:
        return inflate(data, coding, _without_thread(limits), what, memory)
    except GatewayError as error:
        if error.reason is not Reason.TOO_LARGE or limits.message <= IN_THREAD:
            raise
        return None


async def inflate_in_thread(
    data: Buffer, coding: str, limits: Limits, what: str, memory: Memory = PROCESS_MEMORY
) -> Buffer:
    """Same as `inflate`, but in a thread."""
    return await asyncio.to_thread(inflate, data, coding, limits, what, memory)


async def inflate_anywhere(
    data: Buffer, coding: str, limits: Limits, what: str, memory: Memory = PROCESS_MEMORY
) -> Buffer:
    """Same as `inflate`, but in a thread if the content is large."""
    found = inflate_small(data, coding, limits, what, memory)
    return await inflate_in_thread(data, coding, limits, what, memory) if found is None else found


def is_compressed(message: Message, framing: Framing) -> bool:
    """Return whether `message` contains compressed content."""
    return framing.is_compressed is not None and framing.is_compressed(message)


async def inflate_message(
    message: Message, framing: Framing, limits: Limits, memory: Memory = PROCESS_MEMORY
) -> Message:
    """Return `message` with decompressed content. Raises the same errors as the framing's `inflate`."""
    assert framing.inflate is not None
    if len(message.parts[1]) <= IN_THREAD:
        try:
            return _inflate_counted(message, framing.inflate, _without_thread(limits), memory)
        except GatewayError as error:
            if error.reason is not Reason.TOO_LARGE or limits.message <= IN_THREAD:
                raise
    return await asyncio.to_thread(_inflate_counted, message, framing.inflate, limits, memory)


def _without_thread(limits: Limits) -> Limits:
    return replace(limits, message=min(limits.message, IN_THREAD))


def _inflate_counted(
    message: Message,
    inflate: Callable[[Message, Limits, Callable[[int], None]], Message],
    limits: Limits,
    memory: Memory,
) -> Message:
    taken = 0

    def take(size: int) -> None:
        nonlocal taken
        memory.add(size)
        taken += size

    try:
        inflated = inflate(message, limits, take)
        header, content = inflated.parts
        return replace(inflated, parts=(header, memory.track(content)))
    finally:
        memory.free(taken)
