"""Inflating what arrived, away from the loop where that takes long."""

import asyncio

from gateway.core.errors import GatewayError, Reason
from gateway.core.protocol import Framing
from gateway.core.types import Message
from gateway.core.values import replace
from gateway.transports.memory import PROCESS

IN_THREAD = 256 * 2**10
"""Messages above this many bytes, on their larger side, are inflated in a thread: 1 ms of the loop."""


def is_compressed(message: Message, framing: Framing) -> bool:
    """Whether it has content to inflate."""
    return framing.is_compressed is not None and framing.is_compressed(message)


async def inflate(message: Message, framing: Framing, limit: int) -> Message:
    """A compressed message as it would be if it were not, its content of at most `limit` bytes. Raises as the
    framing's `inflate` does."""
    assert framing.inflate is not None
    if len(message.parts[1]) <= IN_THREAD:
        try:
            return _counted(framing.inflate(message, min(limit, IN_THREAD)))
        except GatewayError as error:
            if error.reason is not Reason.TOO_LARGE or limit <= IN_THREAD:
                raise
    return _counted(await asyncio.to_thread(framing.inflate, message, limit))


def _counted(message: Message) -> Message:
    header, content = message.parts
    return replace(message, parts=(header, PROCESS.hold(content)))
