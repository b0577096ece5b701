"""Reads untrusted flatbuffers, and writes flatbuffers.

    at 0: offset to the root table             table:  i32 offset back to its vtable, then the fields
    vtable: u16 size of the vtable, u16 size of the table, u16 position in the table of each field (0: absent)
    vector: u32 count, then the elements       string: a vector of bytes, followed by a NUL

Offsets are relative to their own position. The reader checks every offset before following it, and accepts any
alignment. Many offsets can point to the same bytes, so a small message could expand to a large one. Each message
therefore has a budget of twice its size. The reader charges the bytes of every table, vector and string that it visits
to this budget. Real writers share only vtables, and perhaps a few strings.

The writer writes front to back, so every object comes after the offset that points to it. A message consists of the
structure and the payloads, which are the tensor data:

    root | tables, names, shapes, ... | length, payload 0 | length, payload 1 | ...

The gateway sends the message in parts, alternating structure and data, so it never copies tensor buffers.
"""

from collections.abc import Iterable, Iterator
from struct import Struct, error

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.messages import Buffer
from gateway.core.tensors import MAX_RANK, Shape

# --- Reading ---

_U16_PAIR = Struct("<HH").unpack_from
_READ_I32 = Struct("<i").unpack_from
_READ_U32 = Struct("<I").unpack_from
_READ_I64 = Struct("<q").unpack_from
_MOST_FIELDS = 6
_VTABLES = [Struct(f"<{count}H").unpack_from for count in range(2 + _MOST_FIELDS + 1)]
"""Vtable formats, indexed by the number of 16-bit numbers in the vtable. No table of the schema has more fields."""
_LONG_VTABLE = 2 * len(_VTABLES)
_I64_TUPLES = [Struct(f"<{count}q").unpack_from for count in range(MAX_RANK + 1)]

_VISITS = 2
"""The budget of a message, as a multiple of the message size."""
_EXTRA_BUDGET = 1024
_STRING_CHARGE = 8
"""Bytes charged for a string in addition to its own bytes, because it becomes a Python object."""


class Flatbuffer:
    """The bytes of one message, and its remaining budget."""

    __slots__ = ("left", "size", "view")

    def __init__(self, body: Buffer) -> None:
        self.view = memoryview(body)
        self.size = len(body)
        self.left = _VISITS * self.size + _EXTRA_BUDGET

    def root(self) -> "Table":
        """Return the root table."""
        return Table(self, self.follow(0))

    def follow(self, at: int) -> int:
        """Return the position that the offset at `at` points to. The position can be beyond the end of the message."""
        try:
            return at + int(_READ_U32(self.view, at)[0])
        except error as end:
            raise self.past_the_end(at) from end

    def vector(self, at: int, width: int) -> tuple[int, int]:
        """Return the position of the first element of the vector at `at`, and the number of its elements, of `width`
        bytes each."""
        try:
            (count,) = _READ_U32(self.view, at)
        except error as end:
            raise self.past_the_end(at) from end
        self.visit(at, 4 + count * width)
        return at + 4, count

    def string(self, at: int) -> bytes:
        """Return the bytes of the string at `at`. The NUL after the string is optional: the Go server omits it."""
        start, size = self.vector(at, 1)
        self.left -= _STRING_CHARGE
        return bytes(self.view[start : start + size])

    def visit(self, at: int, size: int) -> None:
        """Charge `size` bytes at `at` to the budget.

        Raises:
            DecodeError: the bytes reach past the end of the message, or exceed the budget.
        """
        self.left -= size
        if self.left < 0 or at + size > self.size:
            raise self.refused(at, size)

    def refused(self, at: int, size: int) -> DecodeError:
        """Return the error for `size` bytes at `at` that reach past the end of the message or exceed the budget."""
        if at + size > self.size:
            return self.past_the_end(at, size)
        return DecodeError("the flatbuffer's offsets overlap: what they point to is larger than the message")

    def past_the_end(self, at: int, size: int = 4) -> DecodeError:
        """Return the error for `size` bytes at `at` that reach past the end of the message."""
        return DecodeError(f"the flatbuffer has {self.size} bytes, but needs {size} bytes at offset {at}")


class Table:
    """One table. A missing field is 0, empty or None, because every field is optional in this schema.

    Every method raises DecodeError if the field lies outside the table, or its target lies outside the message."""

    __slots__ = ("_at", "_buffer", "_vtable")

    def __init__(self, buffer: Flatbuffer, at: int) -> None:
        self._buffer = buffer
        self._at = at
        view = buffer.view
        try:
            vtable = at - _READ_I32(view, at)[0]
        except error as end:
            raise buffer.past_the_end(at) from end
        if not 0 <= vtable <= buffer.size - 4:
            raise DecodeError(
                f"the flatbuffer's table at offset {at} has its vtable at offset {vtable}, outside the message"
            )
        size, table_size = _U16_PAIR(view, vtable)
        if size < 4 or size % 2 or table_size < 4 or vtable + size > buffer.size:
            raise DecodeError(f"the flatbuffer's table at offset {at} has a malformed vtable")
        self._vtable = _VTABLES[size // 2 if size < _LONG_VTABLE else -1](view, vtable)
        buffer.left -= table_size
        if buffer.left < 0 or at + table_size > buffer.size:
            raise buffer.refused(at, table_size)

    def byte(self, slot: int) -> int:
        """Return a uint8."""
        at = self._field(slot, 1)
        return self._buffer.view[at] if at else 0

    def long(self, slot: int) -> int:
        """Return an int64."""
        at = self._field(slot, 8)
        return int(_READ_I64(self._buffer.view, at)[0]) if at else 0

    def table(self, slot: int) -> "Table | None":
        """Return a table."""
        at = self._target(slot)
        return Table(self._buffer, at) if at else None

    def string(self, slot: int) -> bytes:
        """Return a string."""
        start, size = self._vector(slot, 1)
        return bytes(self._buffer.view[start : start + size])

    def count(self, slot: int) -> int:
        """Return the length of a vector of offsets."""
        return self._vector(slot, 4)[1]

    def octets(self, slot: int) -> memoryview:
        """Return a vector of uint8, as a view of the message."""
        start, size = self._vector(slot, 1)
        return self._buffer.view[start : start + size]

    def shape(self, slot: int) -> Shape:
        """Return a shape, stored as a vector of int64."""
        start, count = self._vector(slot, 8)
        if count > MAX_RANK:
            raise DecodeError(f"a shape of {count} dimensions, at most {MAX_RANK} are allowed")
        numbers: tuple[int, ...] = _I64_TUPLES[count](self._buffer.view, start)
        return numbers

    def tables(self, slot: int) -> "Iterator[Table]":
        """Yield the tables in a vector."""
        start, count = self._vector(slot, 4)
        view = self._buffer.view
        for at in range(start, start + 4 * count, 4):
            yield Table(self._buffer, at + _READ_U32(view, at)[0])

    def strings(self, slot: int) -> Iterable[bytes]:
        """Return a vector of strings. A null offset, which the JavaScript client writes for every name, becomes an
        empty string."""
        start, count = self._vector(slot, 4)
        return self._strings(start, count) if count else ()

    def _strings(self, start: int, count: int) -> Iterator[bytes]:
        for at in range(start, start + 4 * count, 4):
            to = self._buffer.follow(at)
            yield b"" if to == at else self._buffer.string(to)

    def lengths(self, slot: int) -> Iterator[int]:
        """Yield the sizes of the strings in a vector."""
        start, count = self._vector(slot, 4)
        for at in range(start, start + 4 * count, 4):
            yield self._buffer.vector(self._buffer.follow(at), 1)[1]

    def elements(self, slot: int) -> tuple[int, Buffer]:
        """Return the length of a vector of strings, and the strings in the raw form of BYTES.

        Flatbuffers store strings in the same form: four bytes of length, then the bytes."""
        start, count = self._vector(slot, 4)
        raw, view, follow, vector = bytearray(), self._buffer.view, self._buffer.follow, self._buffer.vector
        for at in range(start, start + 4 * count, 4):
            to = follow(at)
            raw += view[to : to + 4 + vector(to, 1)[1]]
        return count, raw

    def _vector(self, slot: int, width: int) -> tuple[int, int]:
        """Return the position of the first element, and the number of elements, of the vector that a field points
        to."""
        # The code is inlined because every tensor has three vectors, and a method call takes a third of this function's
        # time.
        vtable, index, buffer = self._vtable, slot // 2, self._buffer
        if index >= len(vtable) or not (offset := vtable[index]):
            return 0, 0
        if offset < 4 or offset + 4 > vtable[1]:
            raise self._outside()
        at = self._at + offset
        to = _READ_U32(buffer.view, at)[0]
        if not to:
            return 0, 0
        start = at + to + 4
        if start > buffer.size:
            raise buffer.past_the_end(start - 4)
        count = _READ_U32(buffer.view, start - 4)[0]
        buffer.left -= 4 + count * width
        if buffer.left < 0 or start + count * width > buffer.size:
            raise buffer.refused(start - 4, 4 + count * width)
        return start, count

    def _target(self, slot: int) -> int:
        """Return the position that a field's offset points to, or 0 if the field is missing or the offset is null."""
        at = self._field(slot, 4)
        if not at:
            return 0
        offset: int = _READ_U32(self._buffer.view, at)[0]
        return at + offset if offset else 0

    def _field(self, slot: int, width: int) -> int:
        """Return the position of a field, or 0 if the field is missing."""
        vtable, index = self._vtable, slot // 2
        if index >= len(vtable) or not vtable[index]:
            return 0
        offset: int = vtable[index]
        if offset < 4 or offset + width > vtable[1]:
            raise self._outside()
        return self._at + offset

    def _outside(self) -> DecodeError:
        return DecodeError(f"the flatbuffer's table at offset {self._at} has a field outside the table")


# --- Writing ---

_U32 = Struct("<I")
_I32 = Struct("<i")
_I64 = Struct("<q")

_WORD = 8
_PAYLOAD_ALIGNMENT = 64
"""The best alignment for vector instructions, in bytes. Every reader accepts it."""
MAX_MESSAGE = 2**31
"""Maximum size of a message, in bytes. An offset has 32 bits, and most readers treat it as a signed number."""
TOO_LARGE = "a GraphPipe message must be smaller than 2 GiB"


SMALL_TENSORS, SMALL_TEXTS = 16, 512
"""Maximum number of tensors, and of text bytes, in a cached structure."""


class Layout:
    """The layout of a table with the given fields, which are pairs (slot in the vtable, size in bytes) in the order of
    their positions in the table. `offsets` maps each slot to the field's offset in the table."""

    def __init__(self, *fields: tuple[int, int]) -> None:
        self.offsets: dict[int, int] = {}
        at = 4
        for slot, size in fields:
            at = _aligned(at, size)
            self.offsets[slot] = at
            at += size
        self.size = at
        slots = range(4, max(self.offsets, default=2) + 2, 2)
        numbers = (4 + 2 * len(slots), at, *(self.offsets.get(slot, 0) for slot in slots))
        self.vtable = Struct(f"<{len(numbers)}H").pack(*numbers)


class Writer:
    """Writes one message, starting with the root table of its structure.

    The methods' argument `at` is the position of a field. The field contains the number itself or the offset to the
    written object."""

    def __init__(self) -> None:
        self._out = bytearray(4)
        self._vtables: dict[Layout, int] = {}
        self._payloads: list[tuple[int, int, int]] = []

    def table(self, layout: Layout, at: int = 0) -> int:
        """Write a table filled with zeros, and return its position."""
        vtable = self._vtables.get(layout)
        if vtable is None:
            self._align(2)
            vtable = self._vtables[layout] = len(self._out)
            self._out += layout.vtable
        start = self._begin(at, _WORD)
        self._out += _I32.pack(start - vtable)
        self._out += bytes(layout.size - 4)
        return start

    def byte(self, at: int, number: int) -> None:
        """Write a uint8 in a table."""
        self._out[at] = number

    def long(self, at: int, number: int) -> None:
        """Write an int64 in a table."""
        _I64.pack_into(self._out, at, number)

    def string(self, at: int, text: bytes) -> None:
        """Write a string, followed by the NUL that C programs need."""
        self._begin(at, 4)
        self._out += _U32.pack(len(text))
        self._out += text
        self._out.append(0)

    def longs(self, at: int, numbers: tuple[int, ...]) -> None:
        """Write a vector of int64."""
        self._begin(at, _WORD, 4)
        self._out += Struct(f"<I{len(numbers)}q").pack(len(numbers), *numbers)

    def vector_of_offsets(self, at: int, count: int) -> range:
        """Write a vector of `count` offsets, and return their positions."""
        self._begin(at, 4)
        self._out += _U32.pack(count)
        start = len(self._out)
        self._out += bytes(4 * count)
        return range(start, len(self._out), 4)

    def strings(self, at: int, texts: tuple[bytes, ...]) -> None:
        """Write a vector of strings."""
        for place, text in zip(self.vector_of_offsets(at, len(texts)), texts, strict=True):
            self.string(place, text)

    def payload(self, at: int, count: int, size: int) -> None:
        """Reserve a vector of `count` elements, `size` bytes long, after the structure."""
        self._payloads.append((at, count, size))

    def finish(self) -> tuple[bytes, ...]:
        """Return the structure in one piece per payload, or in a single piece if the caller added no payload.

        The caller sends each payload after its piece.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED if the message is 2 GiB or larger.
        """
        end = len(self._out)
        lengths = []
        for at, count, size in self._payloads:
            start = _aligned(end + 4, _PAYLOAD_ALIGNMENT)
            if start + size >= MAX_MESSAGE:
                raise refusal(Reason.TOO_LARGE, TOO_LARGE)
            _U32.pack_into(self._out, at, start - 4 - at)
            lengths.append(bytes(start - 4 - end) + _U32.pack(count))
            end = start + size
        structure = bytes(self._out)
        return (structure + lengths[0], *lengths[1:]) if lengths else (structure,)

    def _begin(self, at: int, alignment: int, shift: int = 0) -> int:
        """Point the offset at `at` to the end of the structure, and return the position of this end. The byte `shift`
        bytes after that position is aligned."""
        self._align(alignment, shift)
        start = len(self._out)
        _U32.pack_into(self._out, at, start - at)
        return start

    def _align(self, alignment: int, shift: int = 0) -> None:
        end = len(self._out) + shift
        self._out += bytes(_aligned(end, alignment) - end)


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment
