"""Inflating what arrived, its memory counted, away from the loop where that takes long."""

import asyncio

from gateway.core import inflation
from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.protocol import Framing, Limits
from gateway.core.types import Buffer, Message
from gateway.transports.memory import PROCESS, Arriving

IN_THREAD = 256 * 2**10
"""Content above this many bytes, on its larger side, is worked on in a thread: 1 ms of the loop."""


def inflate(data: Buffer, coding: str, limits: Limits, what: str) -> Buffer:
    """`data` inflated; `coding` is one of inflation.WINDOWS.

    Raises:
        DecodeError, GatewayError: as `inflation.inflated`; RESOURCE_EXHAUSTED (overloaded), the process has no memory
            left for it.
    """
    arriving = Arriving(inflation.max_inflated_size(len(data), limits), PROCESS)
    for piece in inflation.inflated(data, coding, limits, what):
        arriving.append(piece)
    return arriving.body


def inflate_small(data: Buffer, coding: str, limits: Limits, what: str) -> Buffer | None:
    """The same; None if that takes longer than the loop can wait, and is to be done in a thread."""
    if len(data) > IN_THREAD:
        return None
    try:
        return inflate(data, coding, _at_once(limits), what)
    except GatewayError as error:
        if error.reason is not Reason.TOO_LARGE or limits.message <= IN_THREAD:
            raise
        return None


async def inflate_in_thread(data: Buffer, coding: str, limits: Limits, what: str) -> Buffer:
    """The same, away from the loop."""
    return await asyncio.to_thread(inflate, data, coding, limits, what)


async def inflate_anywhere(data: Buffer, coding: str, limits: Limits, what: str) -> Buffer:
    """The same, in a thread only where that takes longer than the loop can wait."""
    found = inflate_small(data, coding, limits, what)
    return await inflate_in_thread(data, coding, limits, what) if found is None else found


def is_compressed(message: Message, framing: Framing) -> bool:
    """Whether it has content to inflate."""
    return framing.is_compressed is not None and framing.is_compressed(message)


async def inflate_message(message: Message, framing: Framing, limits: Limits) -> Message:
    """A compressed message as it would be if it were not. Raises as the framing's `inflate` does."""
    assert framing.inflate is not None
    if len(message.parts[1]) <= IN_THREAD:
        try:
            return _counted(framing.inflate(message, _at_once(limits)))
        except GatewayError as error:
            if error.reason is not Reason.TOO_LARGE or limits.message <= IN_THREAD:
                raise
    return _counted(await asyncio.to_thread(framing.inflate, message, limits))


def _at_once(limits: Limits) -> Limits:
    return replace(limits, message=min(limits.message, IN_THREAD))


def _counted(message: Message) -> Message:
    header, content = message.parts
    return replace(message, parts=(header, PROCESS.hold(content)))
