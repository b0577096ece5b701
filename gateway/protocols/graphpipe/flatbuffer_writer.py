"""Writes flatbuffers front to back, so every object comes after the offset that points to it.

A message consists of the structure and the payloads, which are the tensor data:

    root | tables, names, shapes, ... | length, payload 0 | length, payload 1 | ...

The gateway sends the message in parts, alternating structure and data, so it never copies tensor buffers.
"""

from struct import Struct

from gateway.core.errors import Reason, refusal

_U32 = Struct("<I")
_I32 = Struct("<i")
_I64 = Struct("<q")

_WORD = 8
_PAYLOAD_ALIGNMENT = 64
"""The best alignment for vector instructions. Every reader accepts it."""
MAX_MESSAGE = 2**31
"""Maximum size of a message. An offset has 32 bits, and most readers treat it as a signed number."""
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

    The argument `at` of the methods is the position of a field, which contains the number itself or the offset to the
    written object."""

    def __init__(self) -> None:
        self._out = bytearray(4)
        self._vtables: dict[Layout, int] = {}
        self._payloads: list[tuple[int, int, int]] = []

    def table(self, layout: Layout, at: int = 0) -> int:
        """Write a table of zeros, and return its position."""
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
            GatewayError: RESOURCE_EXHAUSTED if the message has 2 GiB or more.
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
        """Point the offset at `at` to the end of the structure, and return this position. The byte `shift` bytes after
        it is aligned."""
        self._align(alignment, shift)
        start = len(self._out)
        _U32.pack_into(self._out, at, start - at)
        return start

    def _align(self, alignment: int, shift: int = 0) -> None:
        end = len(self._out) + shift
        self._out += bytes(_aligned(end, alignment) - end)


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment
