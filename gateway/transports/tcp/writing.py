"""Writing a message's parts."""

import asyncio

from gateway.core.types import Message

_JOINED = 64 * 2**10
"""Up to this many bytes, one copy is cheaper than one more write."""


def write(transport: asyncio.WriteTransport, message: Message) -> None:
    """Write `message`; large parts are not copied to join them."""
    if sum(map(len, message.parts)) <= _JOINED:
        transport.write(b"".join(message.parts))
        return
    for part in message.parts:
        transport.write(part)
