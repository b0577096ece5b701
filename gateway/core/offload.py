"""Functions that decide which messages to decode and encode in a thread, and run this work there. `exchange` and
`streaming` call this module.

Decoding or encoding 64 MiB can take seconds. In the event loop's thread, this work would block all other requests.
Python runs one thread at a time, so a second thread is not faster, but it lets the event loop run every few
milliseconds.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple, Unpack

from gateway.core.datatypes import Datatype
from gateway.core.messages import Message
from gateway.core.protocol import Protocol
from gateway.core.tensors import Tensor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LARGE = 256 * 2**10
"""Maximum size in bytes of a message, or of its tensors, that the event loop's own thread processes.

Another thread processes larger messages. At this size, the slowest content (JSON strings of one letter) takes about 12
ms, and numbers take less than 1 ms (docs/decisions/threads.md)."""

_NUMBERS = 4
"""Factor by which tensors of numbers can exceed LARGE, because encoding 1 MiB of numbers takes at most 5 ms."""

COPIED = 16
"""Number of bytes that can be copied or byte-swapped in the time that parsing one byte takes.

Copying or swapping 4 MiB of numbers takes a few milliseconds."""

# More threads would only compete with the event loop.
_threads = ThreadPoolExecutor(2, thread_name_prefix="codec")


async def in_thread(work: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
    """Run `work` in a thread. Return its result, or raise its exception."""
    return await asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)


async def worked(work: Callable[[Unpack[Ts]], T], *arguments: *Ts, large: bool) -> T:
    """Run `work`, in a thread if `large` is True. Return its result, or raise its exception."""
    return await in_thread(work, *arguments) if large else work(*arguments)


_LARGE_NUMBERS = _NUMBERS * LARGE
_BYTES = Datatype.BYTES

# Both functions return False for any message with a single part or tensor of at most LARGE bytes, which is the common
# case. `exchange` checks for this case itself, to save the call. The functions use plain loops because `sum` of a
# generator takes twice as long.


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
