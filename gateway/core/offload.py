"""Decide which messages are decoded and encoded in a thread, and run that work there.

Decoding or encoding 64 MiB can take seconds, during which it would block all other requests in the event loop's own
thread. Python runs one thread at a time, so a second thread is not faster, but the event loop can run every few
milliseconds.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple, Unpack

from gateway.core.datatypes import Datatype
from gateway.core.protocol import Protocol
from gateway.core.types import Message, Tensor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LARGE = 256 * 2**10
"""Maximum size of a message, or of its tensors, to process in the event loop, in bytes.

A thread processes larger messages. The slowest content of this size, strings of one letter in JSON, takes about 12 ms;
numbers take less than 1 ms (docs/decisions/threads.md)."""

_NUMBERS = 4
"""Tensors of numbers can be this many times larger than LARGE, because encoding 1 MiB of them takes at most 5 ms."""

COPIED = 16
"""Number of bytes that decoding copies or swaps in the time in which it parses one byte.

Copying or swapping 4 MiB of numbers takes a few milliseconds."""

# More threads would only compete with the event loop.
_threads = ThreadPoolExecutor(2, thread_name_prefix="codec")


async def in_thread(work: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
    """Run `work` in a thread. Returns its result and raises its exceptions."""
    return await asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)


async def worked(work: Callable[[Unpack[Ts]], T], *arguments: *Ts, large: bool) -> T:
    """Return the result of `work`, in a thread if it is `large`. Raises its exceptions."""
    return await in_thread(work, *arguments) if large else work(*arguments)


_LARGE_NUMBERS = _NUMBERS * LARGE
_BYTES = Datatype.BYTES

# For a message with a single part or tensor of at most LARGE bytes, which is the common case, both functions return
# False for any contents. `exchange` checks this itself, because each Python call counts there. The loops are plain
# because `sum` of a generator takes twice as long.


def is_large(message: Message, protocol: Protocol) -> bool:
    """Return whether decoding `message` would block the event loop for too long."""
    size = 0
    for part in message.parts:
        size += len(part)
    return size > LARGE and (protocol.parsed_size is None or protocol.parsed_size(message) > LARGE)


def are_large(tensors: tuple[Tensor, ...]) -> bool:
    """Return whether encoding a message with these tensors would block the event loop for too long."""
    size = 0
    for each in tensors:
        size += _NUMBERS * len(each.data) if each.datatype is _BYTES else len(each.data)
    return size > _LARGE_NUMBERS
