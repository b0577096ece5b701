"""The memory that message bodies hold in this process, and buffers that grow with what arrives.

What is counted against `limits.memory`:

- a body of MIN_COUNTED bytes or more, of a request or a reply, compressed or inflated: each byte from its arrival until
  the last view of the body is gone;
- a written reply as long as the client does not read it;
- what else a client's connection holds (ConnectionMemory): heads, messages that wait for their turn, and calls with
  their small bodies, beyond UNCOUNTED bytes for each connection.

What comes from one client is also counted against `limits.memory_per_client`, if that is set.

What connections may hold uncounted is bounded by `limits.connections`. A size that a peer announces costs nothing
before the bytes arrive.
"""

import asyncio
import ctypes
import logging
import math
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gateway.core.address import client_of
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.log_limit import LogLimit
from gateway.core.surviving import log_and_continue
from gateway.core.types import Buffer

if sys.platform != "win32":  # where only the client runs
    import resource

log = logging.getLogger(__name__)

MIN_COUNTED = 16 * 2**10
"""Bytes of the smallest body that is counted. Counting costs about 1 us, too much for a smaller one."""
UNCOUNTED = 64 * 2**10
"""Bytes that each connection can hold before they are counted: one small call at a time costs nothing."""
FIELD_BYTES = 200
"""Bytes that a header field takes beside its text: two byte strings, a pair, places in a list and in a dictionary."""
CALL_BYTES = 32 * 2**10
"""What a call that waits takes with a body below MIN_COUNTED: its task, the request in the forms of both sides, and its
part of a connection to a model server."""
_WAITING_BYTES = 512
"""Bytes that a message takes beside its content while it waits for its turn."""
FIRST_BUFFER = 2**20
"""Bytes of the first buffer of a larger body; the second buffer has the body's full size. The kernel allocates pages
only when they are written, but for arrays of 4 MiB and more it allocates 2 MiB at a time: so the large array is made
once 1 MiB has arrived."""
STEP = 64 * 2**10
"""An arriving body is counted in steps of so many bytes."""

TRIM_SECONDS = 5.0
WORTH_TRIMMING = 32 * 2**20
"""Bytes that must have been freed before free memory is returned to the system."""

FROM_KERNEL = 4 * 2**20
"""Bytes from which on an array has pages of its own, which are returned to the kernel as soon as it is freed."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""The numbers of malloc.h."""

_STATM = Path("/proc/self/statm")
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

_Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


class Memory:
    """Counts the bytes that message bodies hold, and refuses a body that would exceed `limit` bytes. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.per_client: int | None = None
        """The most bytes that messages of one client may hold; None: as many as those of all."""
        self._clients: weakref.WeakValueDictionary[str, ClientMemory] = weakref.WeakValueDictionary()
        self._limited_log = LogLimit(log, lines=1)
        self.peak = 0
        """The most bytes that were held since `give_back` last looked."""
        self.freed = 0
        """Bytes that were freed without having been counted since `give_back` last returned any."""
        self._used = 0
        self._lock = threading.Lock()
        self._freed: deque[int] = deque()
        """Sizes that were freed and are not subtracted yet. A finalizer may run anywhere, also while this thread holds
        the lock, so it only appends here."""

    def of_client(self, peer: str) -> "Memory":
        """The counter for messages of the client at `peer` (`host:port`): a ClientMemory, which all connections of the
        client share, if there is a limit per client and the client has an address."""
        client = client_of(peer) if self.per_client is not None else ""
        if self.per_client is None or not client:
            return self
        found = self._clients.get(client)
        if found is None:
            found = self._clients[client] = ClientMemory(self, client, self.per_client)
        return found

    def warn(self, key: str, text: str, *values: object) -> None:
        """Log that a message is refused, once a minute for each `key`."""
        self._limited_log.write(key, logging.WARNING, text, *values)

    @property
    def used(self) -> int:
        """Bytes that are held now."""
        with self._lock:
            return self._settle()

    def check(self, size: int) -> None:
        """Check that a body of `size` bytes has room, before any of it is read.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), it would exceed the limit.
        """
        if size >= MIN_COUNTED:
            with self._lock:
                if self._settle() + size > self.limit:
                    raise self._refusal(size)

    def add(self, size: int) -> None:
        """Count `size` bytes more.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), they would exceed the limit.
        """
        with self._lock:
            used = self._settle() + size
            if used > self.limit:
                raise self._refusal(size)
            self._set_used(used)

    def count(self, size: int) -> None:
        """Count `size` bytes that are in memory already. They are never refused; later ones may be."""
        with self._lock:
            self._set_used(self._settle() + size)

    def free(self, size: int) -> None:
        """Count `size` bytes less."""
        self._freed.append(size)

    def freed_uncounted(self, size: int) -> None:
        """`size` bytes were freed that were never counted: `give_back` looks at them too."""
        self.freed += size

    def track(self, data: Buffer) -> Buffer:
        """The same bytes, counted until their last view is gone. They are never refused."""
        if len(data) < MIN_COUNTED:
            return data
        array = np.frombuffer(data, np.uint8)
        self.count(len(data))
        _at_the_end_of(array, partial(self.free, len(data)))
        return array.data

    def _set_used(self, used: int) -> None:
        self._used = used
        if used > self.peak:
            self.peak = used

    def _refusal(self, size: int) -> GatewayError:
        self.warn(
            "memory",
            "a message is refused because memory is short: messages hold %d bytes, limits.memory is %d",
            self._used,
            self.limit,
        )
        return refusal(
            Reason.OVERLOADED,
            f"no memory for {size} bytes more: messages hold {self._used} bytes, limits.memory is {self.limit} bytes; "
            "try again later",
        )

    def _settle(self) -> int:
        while self._freed:
            self._used -= self._freed.popleft()
        return self._used


class ClientMemory(Memory):
    """Counts the bytes that the messages of one `client` hold, both against its own `limit` and in `whole`. It exists
    as long as the client has a connection, or any of its messages is in memory."""

    def __init__(self, whole: Memory, client: str, limit: int) -> None:
        super().__init__(limit)
        self._whole = whole
        self._client = client

    def check(self, size: int) -> None:
        """As of any Memory."""
        super().check(size)
        self._whole.check(size)

    def add(self, size: int) -> None:
        """As of any Memory."""
        super().add(size)
        try:
            self._whole.add(size)
        except GatewayError:
            super().free(size)
            raise

    def count(self, size: int) -> None:
        """As of any Memory."""
        super().count(size)
        self._whole.count(size)

    def free(self, size: int) -> None:
        """As of any Memory."""
        super().free(size)
        self._whole.free(size)

    def _refusal(self, size: int) -> GatewayError:
        self._whole.warn(
            "client",
            "a message of client %s is refused: its messages hold %d bytes, limits.memory_per_client is %d",
            self._client,
            self._used,
            self.limit,
        )
        return refusal(
            Reason.OVERLOADED,
            f"no memory for {size} bytes more: the messages of this client hold {self._used} bytes, "
            f"limits.memory_per_client is {self.limit} bytes; try again later",
        )


class _End(weakref.ref["_Bytes"]):
    """Calls `then` when its array is collected. `weakref.finalize` does the same in 2.6 us, this in 0.8."""

    __slots__ = ("then",)
    then: Callable[[], None]


_ends: dict[int, _End] = {}
"""Keeps the references alive: one that is collected before its array does not call back."""


def _at_the_end_of(array: _Bytes, then: Callable[[], None]) -> None:
    end = _End(array, _ended)
    end.then = then
    _ends[id(end)] = end


def _ended(end: "weakref.ref[_Bytes]") -> None:
    _ends.pop(id(end)).then()


def cgroup_memory() -> int | None:
    """The limit of the process' cgroup, in bytes; None if it has none below the machine's memory."""
    limit = machine_memory()
    return limit if limit < physical_memory() else None


def resident_memory() -> int:
    """Bytes of memory that the process has now; without /proc, the most that it had so far."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def physical_memory() -> int:
    """Bytes of memory that the machine has."""
    if not hasattr(os, "sysconf"):  # Windows: what every machine that it runs on has
        return 4 << 30
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine_memory() -> int:
    """Bytes of memory that this process may use: the limit of its cgroup, else the machine's memory."""
    found = [physical_memory()]
    for path in _CGROUP_LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():  # `max` is no limit
            found.append(int(text))
    return min(found)


def default_limit() -> int:
    """The default of `limits.memory`: half of what this process may use, because a body is copied at most once on its
    way through."""
    return machine_memory() // 2


PROCESS_MEMORY = Memory(default_limit())
"""Counts the bodies of the whole process; the configuration's `limits.memory` sets its limit."""


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
    """Return free memory to the system after large messages and many connections, for ever. glibc would keep it: 6
    requests of 40 MiB left 280 MiB."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(TRIM_SECONDS)
        used = memory.used
        if memory.peak - used + memory.freed > WORTH_TRIMMING:
            memory.peak, memory.freed = used, 0
            with log_and_continue("returning free memory to the system"):
                await asyncio.to_thread(trim, 0)


class ConnectionMemory:
    """The memory that one connection holds beside bodies that are counted byte by byte: `size` bytes. They are counted
    in `memory` in steps, so that most calls add two numbers and no more. Of one event loop."""

    __slots__ = ("_floor", "_memory", "_room", "size")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size = 0
        self._room = UNCOUNTED
        """How large `size` may become before more is counted: what is counted, and UNCOUNTED."""
        self._floor = -math.inf
        """How small `size` may become before less is counted."""

    def add(self, size: int) -> None:
        """Hold `size` bytes more.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), `memory` has no room for them.
        """
        if self.size + size > self._room:
            more = _steps(self.size + size - self._room)
            self._memory.add(more)
            self._set_room(self._room + more)
        self.size += size

    def free(self, size: int) -> None:
        """Hold `size` bytes less."""
        self.size -= size
        if self.size < self._floor:
            room = UNCOUNTED + _steps(max(0, self.size - UNCOUNTED))
            self._memory.free(self._room - room)
            self._set_room(room)

    def clear(self) -> None:
        """Hold nothing any more: the connection is closed."""
        self.free(self.size)

    def _set_room(self, room: int) -> None:
        self._room = room
        self._floor = max(room - 4 * STEP, UNCOUNTED // 2) if room > UNCOUNTED else -math.inf


def waiting_bytes(size: int) -> int:
    """The memory that a message of `size` bytes takes while it waits for its turn; a large body is counted byte by
    byte."""
    return _WAITING_BYTES + size if size < MIN_COUNTED else _WAITING_BYTES


def _steps(size: int) -> int:
    return -(-size // STEP) * STEP


class _Share:
    """The count of one body, shared by its successive buffers; freed with the last of them."""

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


class ArrivingBody:
    """One body as it arrives. `size` is its size, at least 1, or the most that it may have.

    Bytes are added with `append`; or they are received into `unfilled`, reported with `filled`, and `reserve` makes
    more space. A body of known size is complete once `missing` is 0. Bodies of fewer than `least` bytes are not
    counted.
    """

    __slots__ = ("_buffer", "_is_counted", "_share", "filled_bytes", "size")

    def __init__(self, size: int, memory: Memory, least: int = MIN_COUNTED) -> None:
        self.size = size
        self._is_counted = size >= least
        self.filled_bytes = 0
        self._share = _Share(memory)
        # A view, because making one for each use costs more; it keeps its array alive.
        self._buffer = self._share.buffer(min(size, FIRST_BUFFER)).data

    @property
    def missing(self) -> int:
        """How many bytes are still to arrive, at most."""
        return self.size - self.filled_bytes

    @property
    def unfilled(self) -> memoryview:
        """Where the next bytes go."""
        return self._buffer[self.filled_bytes :]

    @property
    def body(self) -> memoryview:
        """The bytes that have arrived."""
        return self._buffer[: self.filled_bytes].toreadonly()

    def filled(self, count: int) -> None:
        """`count` bytes were received into `unfilled`.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), the process has no memory left for them.
        """
        self.filled_bytes += count
        more = self.filled_bytes - self._share.size
        if more > 0 and self._is_counted:
            self._share.add(min(max(more, STEP), self.size - self._share.size))

    def reserve(self) -> None:
        """Make sure that `unfilled` has at least one byte, if any is missing."""
        if self.filled_bytes == len(self._buffer) < self.size:
            self._grow()

    def append(self, data: Buffer) -> None:
        """Add the next bytes, no more than are missing.

        Raises:
            GatewayError: as `filled`.
        """
        start, end = self.filled_bytes, self.filled_bytes + len(data)
        if end > len(self._buffer):
            self._grow()
        self._buffer[start:end] = data
        self.filled(len(data))

    def _grow(self) -> None:
        grown = self._share.buffer(self.size).data
        grown[: self.filled_bytes] = self._buffer[: self.filled_bytes]
        self._buffer = grown
