"""The memory that messages hold in this process, and buffers that grow with what arrives.

Bodies of COUNTED bytes and more are counted against `limits.memory`, of requests and of replies, compressed and
inflated: as their bytes arrive, until the last view of them is gone. So are written replies as long as the client does
not read them. Smaller bodies are not counted one by one; `limits.connections` bounds them. What a peer only announced
costs nothing.
"""

import asyncio
import ctypes
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gateway.core.errors import Reason, refusal
from gateway.core.log_limit import LogLimit
from gateway.core.types import Buffer

log = logging.getLogger(__name__)

COUNTED = 16 * 2**10
"""Bytes. Counting costs about 1 us, which only larger bodies are worth."""
FIRST = 2**20
"""Bytes of the first buffer of a body that has more; the second has its whole size. The kernel gives the pages of an
array only as they are written, but those of arrays of 4 MiB and more by 2 MiB each: so one of these is made when 1 MiB
has arrived."""
STEP = 64 * 2**10
"""Bytes by which an arriving body is counted."""

TRIM_SECONDS = 5.0
WORTH_TRIMMING = 32 * 2**20
"""Bytes that must have been freed."""

FROM_KERNEL = 4 * 2**20
"""Bytes from which on an array has pages of its own, which are returned to the kernel as soon as it is freed."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""The numbers of malloc.h."""

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

_Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


class Memory:
    """Counts the bytes that message bodies hold, and refuses what would exceed `limit` bytes. Safe to be called from
    several threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._limited = LogLimit(log, lines=1)
        self.peak = 0
        """The most bytes that were held since `give_back` looked last."""
        self._used = 0
        self._lock = threading.Lock()
        self._freed: deque[int] = deque()
        """What was freed and is still counted. A finalizer may run anywhere, also where the lock is held, so it only
        notes the size here."""

    @property
    def used(self) -> int:
        """Bytes that are held now."""
        with self._lock:
            return self._settle()

    def check(self, size: int) -> None:
        """Refuse a body of `size` bytes before any of it is read.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), it would exceed the limit.
        """
        if size >= COUNTED:
            with self._lock:
                self._check(size)

    def add(self, size: int) -> None:
        """Count `size` bytes more.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), they would exceed the limit.
        """
        with self._lock:
            self._check(size)
            self._add(size)

    def count(self, size: int) -> None:
        """Count `size` bytes that are there already: they are not refused, but what comes after them may be."""
        with self._lock:
            self._add(size)

    def free(self, size: int) -> None:
        """Count `size` bytes less."""
        self._freed.append(size)

    def hold(self, data: Buffer) -> Buffer:
        """`data`, counted as long as it is used; it is there already and not refused."""
        if len(data) < COUNTED:
            return data
        array = np.frombuffer(data, np.uint8)
        self.count(len(data))
        _at_the_end_of(array, partial(self.free, len(data)))
        return array.data

    def _add(self, size: int) -> None:
        self._used = self._settle() + size
        self.peak = max(self.peak, self._used)

    def _check(self, size: int) -> None:
        used = self._settle()
        if used + size > self.limit:
            self._limited.write(
                "memory",
                logging.WARNING,
                "a message is refused for want of memory: messages hold %d bytes, limits.memory is %d",
                used,
                self.limit,
            )
            raise refusal(
                Reason.OVERLOADED,
                f"no memory for {size} bytes more: messages hold {used} bytes, limits.memory is {self.limit} bytes; "
                "try again later",
            )

    def _settle(self) -> int:
        while self._freed:
            self._used -= self._freed.popleft()
        return self._used


class _End(weakref.ref["_Bytes"]):
    """Calls `then` when its array is gone: what `weakref.finalize` does, at a third of its cost, 0.8 for 2.6 us."""

    __slots__ = ("then",)
    then: Callable[[], None]


_ends: dict[int, _End] = {}
"""A weak reference that is gone itself calls nothing."""


def _at_the_end_of(array: _Bytes, then: Callable[[], None]) -> None:
    end = _End(array, _ended)
    end.then = then
    _ends[id(end)] = end


def _ended(end: "weakref.ref[_Bytes]") -> None:
    _ends.pop(id(end)).then()


def machine_memory() -> int:
    """Bytes that this process may use: those of its cgroup, else those of the machine."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUP_LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():  # `max` is no limit
            found.append(int(text))
    return min(found)


def default_limit() -> int:
    """Half of what this process may use: a body is copied at most once on its way through."""
    return machine_memory() // 2


PROCESS = Memory(default_limit())
"""What everything in this process counts with: memory is the process', not one gateway's. Its `limit` is set by the
configuration's `limits.memory`."""


def set_allocator() -> None:
    """Set how glibc's allocator keeps what is freed; other allocators stay as they are.

    - What messages below FROM_KERNEL leave free is kept for the next ones, until `give_back`. By itself the allocator
      returns the top of its heap as soon as a message is done, and the kernel clears those pages for the next one: 0.6
      ms for 1.6 MB.
    - Threads that start from now on allocate where the loop does. Otherwise each has an arena of its own, and
      `malloc_trim` does not return the free end of an arena: six threads that had inflated 17 MiB each left 120 MiB.
      Python runs one thread at a time, so they hardly wait for one another.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, FROM_KERNEL)
        mallopt(_M_TRIM_THRESHOLD, WORTH_TRIMMING)
        mallopt(_M_ARENA_MAX, 1)


async def give_back(memory: Memory) -> None:
    """Return to the system what large messages have left free, again and again. glibc's allocator keeps it otherwise:
    6 requests of 40 MiB left 280 MiB."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(TRIM_SECONDS)
        used = memory.used
        if memory.peak - used > WORTH_TRIMMING:
            memory.peak = used
            await asyncio.to_thread(trim, 0)


class _Share:
    """What the buffers of one body, which follow one another, have counted together; freed with the last of them."""

    __slots__ = ("_buffers", "_memory", "size")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._buffers = 0
        self.size = 0

    def add(self, size: int) -> None:
        """Raises GatewayError as Memory.add does."""
        self._memory.add(size)
        self.size += size

    def buffer(self, size: int) -> _Bytes:
        array = np.empty(size, np.uint8)
        self._buffers += 1
        _at_the_end_of(array, self._freed)
        return array

    def _freed(self) -> None:
        self._buffers -= 1
        if not self._buffers:
            self._memory.free(self.size)
            self.size = 0


class Arriving:
    """One body as it arrives. `size` is how many bytes it will have, at least one; or the most that it may have.

    Bytes are appended; or they are received into `room`, told by `filled`, and `reserve` makes new room. A body whose
    size is known is complete once `missing` is 0.
    """

    __slots__ = ("_array", "_share", "filled_bytes", "size")

    def __init__(self, size: int, memory: Memory) -> None:
        self.size = size
        self.filled_bytes = 0
        self._share = _Share(memory)
        self._array = self._share.buffer(min(size, FIRST))

    @property
    def missing(self) -> int:
        """How many bytes are still to come, at most."""
        return self.size - self.filled_bytes

    @property
    def room(self) -> memoryview:
        """Where the next bytes go."""
        return self._array.data[self.filled_bytes :]

    @property
    def body(self) -> memoryview:
        """What has arrived."""
        return self._array.data[: self.filled_bytes].toreadonly()

    def filled(self, count: int) -> None:
        """`count` bytes were put into `room`.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), the process has no memory left for them.
        """
        self.filled_bytes += count
        more = self.filled_bytes - self._share.size
        if more > 0 and self.size >= COUNTED:
            self._share.add(min(max(more, STEP), self.size - self._share.size))

    def reserve(self) -> None:
        """Make `room` for at least one byte if any is missing."""
        if self.filled_bytes == len(self._array) < self.size:
            self._grow()

    def append(self, data: Buffer) -> None:
        """Take the next bytes, which must not be more than are missing.

        Raises:
            GatewayError: as `filled`.
        """
        start, end = self.filled_bytes, self.filled_bytes + len(data)
        if end > len(self._array):
            self._grow()
        self._array.data[start:end] = data
        self.filled(len(data))

    def _grow(self) -> None:
        grown = self._share.buffer(self.size)
        grown[: self.filled_bytes] = self._array[: self.filled_bytes]
        self._array = grown
