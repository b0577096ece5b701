"""Work on large messages, away from the event loop.

Decoding or encoding 64 MiB takes up to seconds, in which nobody else would be served. Python runs one thread at a time,
so this makes nothing faster: it lets the loop have its turn in between, every few milliseconds.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple, Unpack

from gateway.core.datatypes import Datatype
from gateway.core.protocol import Protocol
from gateway.core.types import Answer, Message, Request, Response, Tensor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LARGE = 256 * 2**10
"""Bytes of a message or of its tensors. The slowest content, strings of one letter in JSON, takes 13 ms for as many;
numbers take 0.3 ms. The way to a thread and back takes 0.1 ms."""

_NUMBERS = 4
"""Numbers are encoded in a thread from so many times LARGE on: 1 MiB of them takes at most 5 ms."""

# More of them would only compete with the loop for its turn.
_threads = ThreadPoolExecutor(2, thread_name_prefix="codec")


async def in_thread(work: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
    """What `work` returns, or raises, away from the loop."""
    return await asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)


# Plain loops: for the one tensor that most messages have, `sum` of a generator takes twice as long.


def is_large(message: Message, protocol: Protocol) -> bool:
    """Whether decoding `message` would hold up the loop."""
    size = 0
    for part in message.parts:
        size += len(part)
    return size > LARGE and (protocol.parsed_size is None or protocol.parsed_size(message) > LARGE)


def has_large_inputs(request: Request) -> bool:
    """Whether encoding `request` would hold up the loop."""
    return _are_large(request.inputs)


def has_large_outputs(answer: Answer) -> bool:
    """Whether encoding `answer` would hold up the loop."""
    return isinstance(answer, Response) and _are_large(answer.outputs)


def _are_large(tensors: tuple[Tensor, ...]) -> bool:
    size = 0.0
    for each in tensors:
        size += len(each.data) if each.datatype is Datatype.BYTES else len(each.data) / _NUMBERS
    return size > LARGE
