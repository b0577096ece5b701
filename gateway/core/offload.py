"""Decides which messages are decoded and encoded in a thread, and runs that work there.

Decoding or encoding 64 MiB can take seconds. In the event loop's own thread nobody else would be served meanwhile.
Python runs one thread at a time, so a second thread makes nothing faster, but the loop gets its turn every few
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
"""Bytes of a message, or of its tensors, above which a thread does the work. The slowest content, strings of one letter
in JSON, takes about 12 ms for this size, numbers under 1 ms (docs/decisions/threads.md)."""

_NUMBERS = 4
"""Tensors of numbers may be this many times larger than LARGE: encoding 1 MiB of them takes at most 5 ms."""

COPIED = 16
"""Bytes of numbers that are only copied or swapped in decoding take as long as one byte that is parsed: 4 MiB of them
take a few milliseconds."""

# More threads would only compete with the event loop for its turn.
_threads = ThreadPoolExecutor(2, thread_name_prefix="codec")


async def in_thread(work: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
    """Run `work` in a thread; returns what it returns and raises what it raises."""
    return await asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)


async def worked(work: Callable[[Unpack[Ts]], T], *arguments: *Ts, large: bool) -> T:
    """The result of `work`, in a thread if it is `large`. Raises what it raises."""
    return await in_thread(work, *arguments) if large else work(*arguments)


_LARGE_NUMBERS = _NUMBERS * LARGE
_BYTES = Datatype.BYTES

# Of one part or tensor of at most LARGE bytes both are false, whatever is in it. Most messages are such: `exchange`,
# where each call in Python counts, looks at that itself. The loops are plain because `sum` of a generator takes twice
# as long.


def is_large(message: Message, protocol: Protocol) -> bool:
    """Whether decoding `message` would block the event loop for too long."""
    size = 0
    for part in message.parts:
        size += len(part)
    return size > LARGE and (protocol.parsed_size is None or protocol.parsed_size(message) > LARGE)


def are_large(tensors: tuple[Tensor, ...]) -> bool:
    """Whether encoding a message with these tensors would block the event loop for too long."""
    size = 0
    for each in tensors:
        size += _NUMBERS * len(each.data) if each.datatype is _BYTES else len(each.data)
    return size > _LARGE_NUMBERS
