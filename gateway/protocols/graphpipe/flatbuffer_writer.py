"""Flatbuffers front to back: every offset points forward, to what is written after it.

The structure comes first and the payloads (tensors' data) last, so that a message goes out as parts: the structure,
then each tensor's own buffer, never joined.
"""

from collections.abc import Callable
from struct import Struct

from gateway.core.errors import Reason, refusal

_U32 = Struct("<I")
_I32 = Struct("<i")
_I64 = Struct("<q")

_WORD = 8
_ALIGNMENT = 64
"""Of payloads: what vector instructions like best. Every reader takes it."""
_MOST = 2**31
"""An offset has 32 bits, and most readers take one for a sign."""


_SMALL = 1024
_REMEMBERED = 256


class Structures:
    """The structures that were written lately, if they are small: clients and servers send the same again and again,
    but for the payloads. `write` makes one of what tells it apart from others."""

    def __init__(self, write: Callable[..., tuple[bytes, ...]]) -> None:
        self._write = write
        self._known: dict[tuple[object, ...], tuple[bytes, ...]] = {}

    def get(self, *traits: object) -> tuple[bytes, ...]:
        """What `write` makes of `traits`, which must be hashable."""
        known = self._known.get(traits)
        return self._new(traits) if known is None else known

    def _new(self, traits: tuple[object, ...]) -> tuple[bytes, ...]:
        structure = self._write(*traits)
        if sum(map(len, structure)) <= _SMALL:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[traits] = structure
        return structure


class Layout:
    """How a table lies that has all its fields, given as (slot in the vtable, bytes) in the order in which they lie;
    `place` is where each is in the table."""

    def __init__(self, *fields: tuple[int, int]) -> None:
        self.place: dict[int, int] = {}
        at = 4
        for slot, size in fields:
            at = _aligned(at, size)
            self.place[slot] = at
            at += size
        self.size = at
        slots = range(4, max(self.place, default=2) + 2, 2)
        numbers = (4 + 2 * len(slots), at, *(self.place.get(slot, 0) for slot in slots))
        self.vtable = Struct(f"<{len(numbers)}H").pack(*numbers)


class Writer:
    """Writes one message, whose root table comes first. `at` is where the offset to what is written stands."""

    def __init__(self) -> None:
        self._out = bytearray(4)
        self._vtables: dict[Layout, int] = {}
        self._payloads: list[tuple[int, int, int]] = []

    def table(self, layout: Layout, at: int = 0) -> int:
        """A table of zeros; where it lies."""
        vtable = self._vtables.get(layout)
        if vtable is None:
            self._align(2)
            vtable = self._vtables[layout] = len(self._out)
            self._out += layout.vtable
        start = self._link(at, _WORD)
        self._out += _I32.pack(start - vtable)
        self._out += bytes(layout.size - 4)
        return start

    def byte(self, at: int, number: int) -> None:
        """A uint8, within a table."""
        self._out[at] = number

    def long(self, at: int, number: int) -> None:
        """An int64, within a table."""
        _I64.pack_into(self._out, at, number)

    def string(self, at: int, text: bytes) -> None:
        """A string, with the NUL behind it that C needs."""
        self._link(at, 4)
        self._out += _U32.pack(len(text))
        self._out += text
        self._out.append(0)

    def longs(self, at: int, numbers: tuple[int, ...]) -> None:
        """A vector of int64."""
        self._link(at, _WORD, 4)
        self._out += Struct(f"<I{len(numbers)}q").pack(len(numbers), *numbers)

    def links(self, at: int, count: int) -> range:
        """A vector of offsets; the places where each is."""
        self._link(at, 4)
        self._out += _U32.pack(count)
        start = len(self._out)
        self._out += bytes(4 * count)
        return range(start, len(self._out), 4)

    def strings(self, at: int, texts: tuple[bytes, ...]) -> None:
        """A vector of strings."""
        for place, text in zip(self.links(at, len(texts)), texts, strict=True):
            self.string(place, text)

    def payload(self, at: int, count: int, size: int) -> None:
        """A vector of `count` elements in `size` bytes, to be written last."""
        self._payloads.append((at, count, size))

    def gaps(self) -> tuple[bytes, ...]:
        """The message but for its payloads: each of them follows one of these.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED, the message has 2 GiB.
        """
        end = len(self._out)
        lengths = []
        for at, count, size in self._payloads:
            start = _aligned(end + 4, _ALIGNMENT)
            if start + size >= _MOST:
                raise refusal(Reason.TOO_LARGE, "a GraphPipe message must be smaller than 2 GiB")
            _U32.pack_into(self._out, at, start - 4 - at)
            lengths.append(bytes(start - 4 - end) + _U32.pack(count))
            end = start + size
        whole = bytes(self._out)
        return (whole + lengths[0], *lengths[1:]) if lengths else (whole,)

    def _link(self, at: int, alignment: int, shift: int = 0) -> int:
        """Link what comes next, whose byte `shift` is to be aligned, and tell where it lies."""
        self._align(alignment, shift)
        start = len(self._out)
        _U32.pack_into(self._out, at, start - at)
        return start

    def _align(self, alignment: int, shift: int = 0) -> None:
        end = len(self._out) + shift
        self._out += bytes(_aligned(end, alignment) - end)


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment
