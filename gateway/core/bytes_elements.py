"""BYTES tensors in V2's raw form: each element a little-endian u32 length and that many bytes."""

from collections.abc import Iterable, Iterator
from itertools import chain
from struct import Struct, error, iter_unpack

import numpy as np

from gateway.core.errors import DecodeError

_LENGTH = Struct("<I")

PIECE = 2**14
"""Elements. What makes objects of more in one call of C keeps all other threads waiting: 15 million take 0.6 s."""

_MANY = 4096  # bytes from which looking for elements of one length pays


def pack(elements: Iterable[bytes]) -> bytes:
    """The raw form of `elements`."""
    length = _LENGTH.pack
    # not joined from a list of pieces, which would take 200 bytes for each, and three times as long
    packed = bytearray()
    for element in elements:
        packed += length(len(element))
        packed += element
    return bytes(packed)


def unpack(data: bytes | bytearray | memoryview) -> list[bytes]:
    """The elements of a raw form.

    Raises:
        DecodeError: an element reaches past the end.
    """
    elements: list[bytes] = []
    for some in pieces(data):
        elements += some
    return elements


def pieces(data: bytes | bytearray | memoryview) -> Iterator[list[bytes]]:
    """The elements of a raw form, in lists of at most PIECE.

    Raises:
        DecodeError: an element reaches past the end.
    """
    common = _common_length(data)
    if common is not None:
        view, step = memoryview(data), PIECE * (4 + common)
        for at in range(0, len(view), step):
            yield list(chain.from_iterable(iter_unpack(f"<4x{common}s", view[at : at + step])))
        return
    # slices of bytes are bytes, at half the price of copying each out of a view
    whole = bytes(data)
    end, at, found = len(whole), 0, 0
    length = _LENGTH.unpack_from
    while at < end:
        elements: list[bytes] = []
        add = elements.append
        try:
            for _ in range(PIECE):
                start = at + 4
                at = start + length(whole, at)[0]
                add(whole[start:at])
                if at >= end:
                    break
        except error as cut:
            raise _past_the_end(found + len(elements)) from cut
        found += len(elements)
        if at > end:
            raise _past_the_end(found - 1)
        yield elements


def count(data: bytes | bytearray | memoryview) -> int:
    """How many elements a raw form holds, without making them.

    Raises:
        DecodeError: an element reaches past the end.
    """
    common = _common_length(data)
    if common is not None:
        return len(data) // (4 + common)
    end, at, found = len(data), 0, 0
    length = _LENGTH.unpack_from
    try:
        while at < end:
            at += 4 + length(data, at)[0]
            found += 1
    except error as cut:
        raise _past_the_end(found) from cut
    if at > end:
        raise _past_the_end(found - 1)
    return found


def _common_length(data: bytes | bytearray | memoryview) -> int | None:
    """The length that all elements of a large raw form have, if they have."""
    if len(data) < _MANY:
        return None
    length: int = _LENGTH.unpack_from(data)[0]
    elements, rest = divmod(len(data), 4 + length)
    if rest:
        return None
    lengths = np.ndarray((elements,), "<u4", data, strides=(4 + length,))
    return length if (lengths == length).all() else None


def _past_the_end(element: int) -> DecodeError:
    return DecodeError(f"BYTES element {element} reaches past the end of the data")
