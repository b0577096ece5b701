"""Counters for the memory that message bodies use in this process, and buffers that grow with the received data.

The following items count against `limits.memory`:

- a request or reply body of at least MIN_COUNTED bytes, compressed or decompressed. Each byte counts from its arrival
  until the last view of the body is freed.
- a written reply, until the client reads it.
- other memory of a client's connection (`ConnectionMemory`) that exceeds UNCOUNTED bytes per connection: heads,
  messages that wait for their turn, and calls with their small bodies.

If `limits.memory_per_client` is set, the memory for one client's messages also counts against it.

`limits.connections` limits the uncounted memory of connections. A size that a peer announces uses no memory before the
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
from gateway.core.messages import Buffer
from gateway.core.surviving import log_and_continue

if sys.platform != "win32":  # only the client runs on Windows
    import resource

log = logging.getLogger(__name__)

MIN_COUNTED = 16 * 2**10
"""Minimum size of a body to count, in bytes. Counting costs about 1 us, which is too much for smaller bodies."""
UNCOUNTED = 64 * 2**10
"""Size in bytes up to which a connection's `ConnectionMemory` is not counted. A connection with one small call at a
time therefore needs no counting."""
FIELD_BYTES = 200
"""The memory, in bytes, for a header field in addition to its text: two byte strings, a pair, and entries in a list and
in a dictionary."""
CALL_BYTES = 32 * 2**10
"""The memory, in bytes, for a waiting call with a body below MIN_COUNTED. It includes the task, the request in the
formats of the client and the backend, and the call's part of a connection to a model server."""
_WAITING_BYTES = 512
"""The memory for a waiting message in addition to its content, in bytes."""
FIRST_BUFFER = 2**20
"""The size, in bytes, of the first buffer for a larger body.

The second buffer has the body's full size. The kernel allocates memory at the first write, usually one page at a time,
but 2 MiB at a time for arrays of at least 4 MiB. Therefore, the large array is created only after 1 MiB has arrived."""
STEP = 64 * 2**10
"""The size, in bytes, of the steps in which Memory counts an arriving body."""

TRIM_SECONDS = 5.0
WORTH_TRIMMING = 32 * 2**20
"""The number of freed bytes after which the gateway returns free memory to the operating system."""

FROM_KERNEL = 4 * 2**20
"""The minimum size, in bytes, of an array with its own pages. These pages return to the kernel as soon as the array is
freed."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""The parameters of `mallopt` in malloc.h."""

_STATM = Path("/proc/self/statm")
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

_Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


class Memory:
    """Counts the memory of message bodies, and rejects a body that would exceed `limit` bytes. The class is
    thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.per_client: int | None = None
        """The maximum number of bytes for one client's messages. None means that only the total limit applies."""
        self._clients: weakref.WeakValueDictionary[str, ClientMemory] = weakref.WeakValueDictionary()
        self._limited_log = LogLimit(log, lines=1)
        self.peak = 0
        """The maximum number of bytes in use since the last check of `give_back`."""
        self.freed = 0
        """The number of uncounted bytes that were freed since `give_back` last returned memory."""
        self._used = 0
        self._lock = threading.Lock()
        self._freed: deque[int] = deque()
        """Sizes that were freed but have not been subtracted yet. A finalizer can run anywhere, even while its thread
        holds the lock, so finalizers only append to this deque."""

    def of_client(self, peer: str) -> "Memory":
        """Return the counter for messages from the client at `peer` (`host:port`).

        If a limit per client is set and the client has an address, the result is a ClientMemory, which all of the
        client's connections share."""
        client = client_of(peer) if self.per_client is not None else ""
        if self.per_client is None or not client:
            return self
        found = self._clients.get(client)
        if found is None:
            found = self._clients[client] = ClientMemory(self, client, self.per_client)
        return found

    def warn(self, key: str, text: str, *values: object) -> None:
        """Log that the gateway rejects a message, at most once a minute for each `key`."""
        self._limited_log.write(key, logging.WARNING, text, *values)

    @property
    def used(self) -> int:
        """The number of bytes in use now."""
        with self._lock:
            return self._settle()

    def check(self, size: int) -> None:
        """Check that enough memory is left for a body of `size` bytes, before any part of the body arrives.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if the body would exceed the limit.
        """
        if size >= MIN_COUNTED:
            with self._lock:
                if self._settle() + size > self.limit:
                    raise self.refusal(size)

    def add(self, size: int) -> None:
        """Count `size` more bytes.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if the bytes would exceed the limit.
        """
        with self._lock:
            used = self._settle() + size
            if used > self.limit:
                raise self.refusal(size)
            self._set_used(used)

    def count(self, size: int) -> None:
        """Count `size` bytes that are already in memory, even above the limit. As a result, later bytes can be
        rejected."""
        with self._lock:
            self._set_used(self._settle() + size)

    def free(self, size: int) -> None:
        """Subtract `size` bytes from the count."""
        self._freed.append(size)

    def freed_uncounted(self, size: int) -> None:
        """Record for `give_back` that `size` uncounted bytes are free again."""
        self.freed += size

    def track(self, data: Buffer) -> Buffer:
        """Count `data` until its last view is freed, even above the limit. Return the same bytes."""
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
    """Counts the memory for the messages of one `client`, both against the client's `limit` and in `whole`. The object
    exists while the client has a connection or a message in memory."""

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
    """Calls `then` when its array is freed. An `_End` takes 0.8 us, compared with 2.6 us for `weakref.finalize`."""

    __slots__ = ("then",)
    then: Callable[[], None]


_ends: dict[int, _End] = {}
"""Keeps the references alive, because a reference that is freed before its array never calls back."""


def _at_the_end_of(array: _Bytes, then: Callable[[], None]) -> None:
    end = _End(array, _ended)
    end.then = then
    _ends[id(end)] = end


def _ended(end: "weakref.ref[_Bytes]") -> None:
    _ends.pop(id(end)).then()


def cgroup_memory() -> int | None:
    """Return the memory limit of the process's cgroup, in bytes; None if the cgroup has no limit below the machine's
    memory."""
    limit = machine_memory()
    return limit if limit < physical_memory() else None


def resident_memory() -> int:
    """Return the memory that the process uses now, in bytes. On systems without /proc, return the maximum since the
    start."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def physical_memory() -> int:
    """Return the machine's memory, in bytes."""
    if not hasattr(os, "sysconf"):  # on Windows: a size that every machine has
        return 4 << 30
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine_memory() -> int:
    """Return the memory that this process can use, in bytes. This is the limit of its cgroup, or else the machine's
    memory."""
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
    """Return the default of `limits.memory`, in bytes. The default is half of the memory that this process can use,
    because the gateway copies a body at most once."""
    return machine_memory() // 2


PROCESS_MEMORY = Memory(default_limit())
"""Counts the memory of bodies in the entire process. The configuration key `limits.memory` sets the limit."""


def set_allocator() -> None:
    """Configure how glibc's allocator keeps freed memory. Other allocators stay unchanged.

    - The allocator keeps the memory of messages below FROM_KERNEL for the next messages, until `give_back` returns it.
      By default, the allocator returns the top of its heap after each message. The kernel would then clear these pages
      for the next message, which takes 0.6 ms for 1.6 MB.
    - Threads that start from now on share the loop's arena. By default, each thread has its own arena, and
      `malloc_trim` does not return the free end of an arena. For example, six threads that had each decompressed 17 MiB
      left 120 MiB. Python runs one thread at a time, so threads with a shared arena rarely wait for each other.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, FROM_KERNEL)
        mallopt(_M_TRIM_THRESHOLD, WORTH_TRIMMING)
        mallopt(_M_ARENA_MAX, 1)


async def give_back(memory: Memory) -> None:
    """In an endless loop, return free memory to the operating system after large messages and many connections.
    Otherwise, glibc would keep this memory: 6 requests of 40 MiB left 280 MiB."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(TRIM_SECONDS)
        used = memory.used
        if memory.peak - used + memory.freed > WORTH_TRIMMING:
            memory.peak, memory.freed = used, 0
            with log_and_continue("returning free memory to the system"):
                await asyncio.to_thread(trim, 0)


class ConnectionMemory:
    """The memory of one connection, except bodies that are counted byte by byte. `size` is the number of bytes.
    `memory` counts these bytes in steps, so most calls only add two numbers. Use each object in only one event loop."""

    __slots__ = ("_floor", "_memory", "_room", "size")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size = 0
        self._room = UNCOUNTED
        """The `size` above which `memory` must count more bytes, which is the number of counted bytes plus
        UNCOUNTED."""
        self._floor = -math.inf
        """The `size` below which `memory` must count fewer bytes."""

    def add(self, size: int) -> None:
        """Add `size` bytes.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if the bytes exceed the limit of `memory`.
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
    """Return the memory, in bytes, for a message of `size` bytes that waits for its turn. The content of a large
    message is not included, because it is counted byte by byte."""
    return _WAITING_BYTES + size if size < MIN_COUNTED else _WAITING_BYTES


def _steps(size: int) -> int:
    return -(-size // STEP) * STEP


class _Share:
    """The count for one body, which the body's successive buffers share. The count ends when the last buffer is
    freed."""

    __slots__ = ("_buffers", "_memory", "size")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._buffers = 0
        self.size = 0

    def add(self, size: int) -> None:
        """Count `size` bytes. Raises the same errors as `Memory.add`."""
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
    """A body that is arriving. `size` is its size or maximum size, and is at least 1.

    The caller adds bytes with `append`, or receives them into `unfilled` and reports them with `filled`. `reserve`
    provides more space. A body of known size is complete when `missing` is 0. Bodies of fewer than `least` bytes are
    not counted."""

    __slots__ = ("_buffer", "_is_counted", "_share", "filled_bytes", "size")

    def __init__(self, size: int, memory: Memory, least: int = MIN_COUNTED) -> None:
        self.size = size
        self._is_counted = size >= least
        self.filled_bytes = 0
        self._share = _Share(memory)
        # A view, because creating a view for each use would cost more. The view keeps its array alive.
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
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if the process does not have enough memory.
        """
        self.filled_bytes += count
        more = self.filled_bytes - self._share.size
        if more > 0 and self._is_counted:
            self._share.add(min(max(more, STEP), self.size - self._share.size))

    def reserve(self) -> None:
        """Ensure that `unfilled` has space for at least one byte if any bytes are missing."""
        if self.filled_bytes == len(self._buffer) < self.size:
            self._grow()

    def append(self, data: Buffer) -> None:
        """Add the next bytes, at most `missing`.

        Raises:
            GatewayError: same as `filled`.
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
