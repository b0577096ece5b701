"""BYTES tensors in V2's raw form: each element a little-endian u32 length and that many bytes."""

from collections.abc import Iterable
from struct import Struct

from gateway.core.errors import DecodeError

_LENGTH = Struct("<I")
MAX_ELEMENT = 2**32 - 1


def pack(elements: Iterable[bytes]) -> bytes:
    """The raw form of `elements`."""
    length = _LENGTH.pack
    pieces: list[bytes] = []
    for element in elements:
        pieces.append(length(len(element)))
        pieces.append(element)
    return b"".join(pieces)


def unpack(data: bytes | bytearray | memoryview) -> list[bytes]:
    """The elements of a raw form.

    Raises:
        DecodeError: an element reaches past the end.
    """
    view, end, at = memoryview(data), len(data), 0
    elements: list[bytes] = []
    length = _LENGTH.unpack_from
    while at < end:
        if at + 4 > end:
            raise DecodeError(f"BYTES data ends inside the length of element {len(elements)}")
        start = at + 4
        at = start + length(view, at)[0]
        if at > end:
            raise DecodeError(f"BYTES element {len(elements)} of {at - start} bytes reaches past the end of the data")
        elements.append(bytes(view[start:at]))
    return elements


def count(data: bytes | bytearray | memoryview) -> int:
    """How many elements a raw form holds, without making them.

    Raises:
        DecodeError: an element reaches past the end.
    """
    end, at, found = len(data), 0, 0
    length = _LENGTH.unpack_from
    while at + 4 <= end:
        at += 4 + length(data, at)[0]
        found += 1
    if at != end:
        raise DecodeError(f"BYTES element {found - (at > end)} reaches past the end of the data")
    return found
