"""The memory that message bodies use in this process, and buffers that grow with the received data.

These count against `limits.memory`:

- a body of at least MIN_COUNTED bytes, of a request or a reply, compressed or decompressed. Each byte counts from its
  arrival until the last view of the body is freed;
- a written reply until the client reads it;
- the other memory of a client's connection (`ConnectionMemory`), beyond UNCOUNTED bytes for each connection: heads,
  messages that wait for their turn, and calls with their small bodies.

Memory for one client's messages also counts against `limits.memory_per_client`, if that is set.

`limits.connections` limits the uncounted memory of connections. A size that a peer announces costs nothing before the
bytes arrive.
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

if sys.platform != "win32":  # only the client runs on Windows
    import resource

log = logging.getLogger(__name__)

MIN_COUNTED = 16 * 2**10
"""Minimum size of a body to count, in bytes. Counting costs about 1 us, which is too much for smaller bodies."""
UNCOUNTED = 64 * 2**10
"""Size of a connection's `ConnectionMemory` that is not counted, in bytes, so one small call at a time costs
nothing."""
FIELD_BYTES = 200
"""The memory of a header field in addition to its text, in bytes: two byte strings, a pair, and entries in a list and
in a dictionary."""
CALL_BYTES = 32 * 2**10
"""The memory of a waiting call with a body below MIN_COUNTED, in bytes: its task, the request in the forms of both
sides, and its part of a connection to a model server."""
_WAITING_BYTES = 512
"""The memory of a waiting message in addition to its content, in bytes."""
FIRST_BUFFER = 2**20
"""The size of the first buffer for a larger body, in bytes.

The second buffer has the body's full size. The kernel allocates a page at its first write. For arrays of 4 MiB and
more, it allocates 2 MiB at a time. Therefore the large array is created after 1 MiB has arrived."""
STEP = 64 * 2**10
"""Memory counts an arriving body in steps of this number of bytes."""

TRIM_SECONDS = 5.0
WORTH_TRIMMING = 32 * 2**20
"""The number of freed bytes after which free memory is returned to the system."""

FROM_KERNEL = 4 * 2**20
"""The minimum size of an array with its own pages, which are returned to the kernel as soon as it is freed, in
bytes."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""The constants of malloc.h."""

_STATM = Path("/proc/self/statm")
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

_Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


class Memory:
    """Counts the memory of message bodies, and refuses a body that would exceed `limit` bytes. It is thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.per_client: int | None = None
        """The maximum number of bytes of one client's messages; None means that only the total limit applies."""
        self._clients: weakref.WeakValueDictionary[str, ClientMemory] = weakref.WeakValueDictionary()
        self._limited_log = LogLimit(log, lines=1)
        self.peak = 0
        """The maximum number of bytes in use since the last check of `give_back`."""
        self.freed = 0
        """The number of freed but uncounted bytes, since `give_back` last returned memory."""
        self._used = 0
        self._lock = threading.Lock()
        self._freed: deque[int] = deque()
        """Sizes that were freed and are not subtracted yet. A finalizer can run anywhere, even while this thread holds
        the lock, so it only appends to this deque."""

    def of_client(self, peer: str) -> "Memory":
        """Return the counter for messages of the client at `peer` (`host:port`).

        If there is a limit per client and the client has an address, this is a ClientMemory, which all connections of
        the client share."""
        client = client_of(peer) if self.per_client is not None else ""
        if self.per_client is None or not client:
            return self
        found = self._clients.get(client)
        if found is None:
            found = self._clients[client] = ClientMemory(self, client, self.per_client)
        return found

    def warn(self, key: str, text: str, *values: object) -> None:
        """Log that the gateway refuses a message, once a minute for each `key`."""
        self._limited_log.write(key, logging.WARNING, text, *values)

    @property
    def used(self) -> int:
        """The number of bytes in use now."""
        with self._lock:
            return self._settle()

    def check(self, size: int) -> None:
        """Check that there is space for a body of `size` bytes, before any of it arrives.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if it would exceed the limit.
        """
        if size >= MIN_COUNTED:
            with self._lock:
                if self._settle() + size > self.limit:
                    raise self.refusal(size)

    def add(self, size: int) -> None:
        """Count `size` more bytes.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if they would exceed the limit.
        """
        with self._lock:
            used = self._settle() + size
            if used > self.limit:
                raise self.refusal(size)
            self._set_used(used)

    def count(self, size: int) -> None:
        """Count `size` bytes that are already in memory, even above the limit. Later bytes can be refused."""
        with self._lock:
            self._set_used(self._settle() + size)

    def free(self, size: int) -> None:
        """Subtract `size` bytes from the count."""
        self._freed.append(size)

    def freed_uncounted(self, size: int) -> None:
        """Record that `size` uncounted bytes are free again, for `give_back`."""
        self.freed += size

    def track(self, data: Buffer) -> Buffer:
        """Return the same bytes, counted until their last view is gone, even above the limit."""
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

    def refusal(self, size: int) -> GatewayError:
        self.warn(
            "memory",
            "refused a message because memory is short: messages hold %d bytes, limits.memory is %d",
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
    """Counts the memory for the messages of one `client`, both against its own `limit` and in `whole`. It exists while
    the client has a connection, or while one of its messages is in memory."""

    def __init__(self, whole: Memory, client: str, limit: int) -> None:
        super().__init__(limit)
        self._whole = whole
        self._client = client

    def check(self, size: int) -> None:
        """See `Memory.check`."""
        super().check(size)
        self._whole.check(size)

    def add(self, size: int) -> None:
        """See `Memory.add`."""
        super().add(size)
        try:
            self._whole.add(size)
        except GatewayError:
            super().free(size)
            raise

    def count(self, size: int) -> None:
        """See `Memory.count`."""
        super().count(size)
        self._whole.count(size)

    def free(self, size: int) -> None:
        """See `Memory.free`."""
        super().free(size)
        self._whole.free(size)

    def refusal(self, size: int) -> GatewayError:
        self._whole.warn(
            "client",
            "refused a message of client %s: its messages hold %d bytes, limits.memory_per_client is %d",
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
    """Calls `then` when its array is freed, in 0.8 us, whereas `weakref.finalize` takes 2.6 us."""

    __slots__ = ("then",)
    then: Callable[[], None]


_ends: dict[int, _End] = {}
"""Keeps the references alive, because a reference that is freed before its array does not call back."""


def _at_the_end_of(array: _Bytes, then: Callable[[], None]) -> None:
    end = _End(array, _ended)
    end.then = then
    _ends[id(end)] = end


def _ended(end: "weakref.ref[_Bytes]") -> None:
    _ends.pop(id(end)).then()


def cgroup_memory() -> int | None:
    """Return the memory limit of the process's cgroup, in bytes; None if it has no limit below the machine's memory."""
    limit = machine_memory()
    return limit if limit < physical_memory() else None


def resident_memory() -> int:
    """Return the memory that the process uses now, in bytes. On systems without /proc, return its maximum since the
    start."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def physical_memory() -> int:
    """Return the memory of the machine, in bytes."""
    if not hasattr(os, "sysconf"):  # on Windows: a size that every machine has
        return 4 << 30
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine_memory() -> int:
    """Return the memory that this process can use, in bytes: the limit of its cgroup, or else the machine's memory."""
    found = [physical_memory()]
    for path in _CGROUP_LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():  # `max` means no limit
            found.append(int(text))
    return min(found)


def default_limit() -> int:
    """Return the default of `limits.memory`: half of the memory that this process can use, because a body is copied at
    most once on its way through."""
    return machine_memory() // 2


PROCESS_MEMORY = Memory(default_limit())
"""Counts the bodies of the whole process; the configuration's `limits.memory` sets its limit."""


def set_allocator() -> None:
    """Set how glibc's allocator keeps freed memory; other allocators are not changed.

    - Memory that was freed by messages below FROM_KERNEL is kept for the next messages, until `give_back`. By default,
      the allocator returns the top of its heap after each message, and the kernel clears those pages for the next
      message, which takes 0.6 ms for 1.6 MB.
    - Threads that start from now on share the loop's arena. By default, each thread has its own arena, and
      `malloc_trim` does not return the free end of an arena. Six threads that had decompressed 17 MiB each left 120
      MiB. Python runs one thread at a time, so they rarely wait for one another.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, FROM_KERNEL)
        mallopt(_M_TRIM_THRESHOLD, WORTH_TRIMMING)
        mallopt(_M_ARENA_MAX, 1)


async def give_back(memory: Memory) -> None:
    """Return free memory to the system after large messages and many connections, in an endless loop. glibc would keep
    the memory; 6 requests of 40 MiB left 280 MiB."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(TRIM_SECONDS)
        used = memory.used
        if memory.peak - used + memory.freed > WORTH_TRIMMING:
            memory.peak, memory.freed = used, 0
            with log_and_continue("returning free memory to the system"):
                await asyncio.to_thread(trim, 0)


class ConnectionMemory:
    """The memory of one connection other than bodies that are counted byte by byte: `size` bytes. `memory` counts these
    bytes in steps, so most calls only add two numbers. Use it in one event loop only."""

    __slots__ = ("_floor", "_memory", "_room", "size")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size = 0
        self._room = UNCOUNTED
        """The `size` above which more bytes are counted: the number of counted bytes plus UNCOUNTED."""
        self._floor = -math.inf
        """The `size` below which fewer bytes are counted."""

    def add(self, size: int) -> None:
        """Add `size` bytes.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if `memory` has no space for them.
        """
        if self.size + size > self._room:
            more = _steps(self.size + size - self._room)
            self._memory.add(more)
            self._set_room(self._room + more)
        self.size += size

    def free(self, size: int) -> None:
        """Remove `size` bytes."""
        self.size -= size
        if self.size < self._floor:
            room = UNCOUNTED + _steps(max(0, self.size - UNCOUNTED))
            self._memory.free(self._room - room)
            self._set_room(room)

    def clear(self) -> None:
        """Remove all bytes, because the connection is closed."""
        self.free(self.size)

    def _set_room(self, room: int) -> None:
        self._room = room
        self._floor = max(room - 4 * STEP, UNCOUNTED // 2) if room > UNCOUNTED else -math.inf


def waiting_bytes(size: int) -> int:
    """Return the memory of a message of `size` bytes while it waits for its turn. A large body is counted
    byte by byte."""
    return _WAITING_BYTES + size if size < MIN_COUNTED else _WAITING_BYTES


def _steps(size: int) -> int:
    return -(-size // STEP) * STEP


class _Share:
    """The count of one body, which its successive buffers share, and which is freed with the last of them."""

    __slots__ = ("_buffers", "_memory", "size")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._buffers = 0
        self.size = 0

    def add(self, size: int) -> None:
        """Count `size` bytes. Raises GatewayError like `Memory.add`."""
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
    """One body as it arrives. `size` is its size, at least 1, or its maximum size.

    The caller adds bytes with `append`, or receives them into `unfilled` and reports them with `filled`; `reserve`
    makes more space. A body of known size is complete once `missing` is 0. Bodies of fewer than `least` bytes are not
    counted."""

    __slots__ = ("_buffer", "_is_counted", "_share", "filled_bytes", "size")

    def __init__(self, size: int, memory: Memory, least: int = MIN_COUNTED) -> None:
        self.size = size
        self._is_counted = size >= least
        self.filled_bytes = 0
        self._share = _Share(memory)
        # This is a view because creating a view for each use costs more. It keeps its array alive.
        self._buffer = self._share.buffer(min(size, FIRST_BUFFER)).data

    @property
    def missing(self) -> int:
        """The maximum number of bytes that are still to arrive."""
        return self.size - self.filled_bytes

    @property
    def unfilled(self) -> memoryview:
        """The buffer for the next bytes."""
        return self._buffer[self.filled_bytes :]

    @property
    def body(self) -> memoryview:
        """The bytes that have arrived."""
        return self._buffer[: self.filled_bytes].toreadonly()

    def filled(self, count: int) -> None:
        """Handle `count` bytes that were received into `unfilled`.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if the process has no memory left for them.
        """
        self.filled_bytes += count
        more = self.filled_bytes - self._share.size
        if more > 0 and self._is_counted:
            self._share.add(min(max(more, STEP), self.size - self._share.size))

    def reserve(self) -> None:
        """Make sure that `unfilled` has at least one byte if any bytes are missing."""
        if self.filled_bytes == len(self._buffer) < self.size:
            self._grow()

    def append(self, data: Buffer) -> None:
        """Add the next bytes, at most `missing`.

        Raises:
            GatewayError: like `filled`.
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
