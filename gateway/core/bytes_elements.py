"""The raw format of BYTES tensors (V2, "Binary Tensor Data").

Each element is a little-endian u32 length, followed by its bytes.
"""

from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from itertools import chain
from struct import Struct, error, iter_unpack

import numpy as np

from gateway.core.errors import DecodeError
from gateway.core.messages import STEP, Buffer, as_bytes, steps

_LENGTH = Struct("<I")

PIECE = 2**14
"""Number of elements to create in one call into C.

The call blocks all other threads: for 15 million elements, it would block them for 0.6 s."""

_MIN_SIZE = 4096  # bytes; above this size, it is worth checking if all elements have the same length


def pack(elements: Iterable[Buffer]) -> bytes:
    """Return `elements` in the raw format."""
    length = _LENGTH.pack
    # joining a list of parts would take 200 bytes for each element, and three times as long
    packed = bytearray()
    for element in elements:
        size = len(element)
        packed += length(size)
        if size <= STEP:
            packed += element
            continue
        for step in steps(element):
            packed += step
    return as_bytes(packed)


def length_prefix(size: int) -> bytes:
    """Return the bytes before an element of `size` bytes."""
    return _LENGTH.pack(size)


def unpack(data: bytes | bytearray | memoryview) -> list[bytes]:
    """Return all elements of `data`, which is in the raw format.

    Raises:
        DecodeError: an element reaches past the end.
    """
    elements: list[bytes] = []
    for piece in pieces(data):
        elements += piece
    return elements


def pieces(data: bytes | bytearray | memoryview) -> Iterator[list[bytes]]:
    """Yield the elements of `data` in order, in lists of at most PIECE elements.

    Raises:
        DecodeError: an element reaches past the end.
    """
    common = _common_length(data)
    if common is not None:
        yield from _pieces_of_length(memoryview(data), common)
        return
    # slicing bytes costs half as much as copying each element out of a memoryview
    whole = as_bytes(data)
    end, at, found = len(whole), 0, 0
    length = _LENGTH.unpack_from
    while at < end:
        elements: list[bytes] = []
        add = elements.append
        try:
            for _ in range(PIECE):
                start = at + 4
                at = start + length(whole, at)[0]
                add(whole[start:at] if at - start <= STEP else as_bytes(memoryview(whole)[start:at]))
                if at >= end:
                    break
        except error as cut:
            raise _past_the_end(found + len(elements)) from cut
        found += len(elements)
        if at > end:
            raise _past_the_end(found - 1)
        yield elements


def _pieces_of_length(data: memoryview, length: int) -> Iterator[list[bytes]]:
    """Yield the elements of `data` like `pieces`. Each element has `length` bytes."""
    size = 4 + length
    if length > STEP:
        for at in range(0, len(data), size):
            yield [as_bytes(data[at + 4 : at + size])]
        return
    step = max(1, min(PIECE, STEP // size)) * size
    for at in range(0, len(data), step):
        yield list(chain.from_iterable(iter_unpack(f"<4x{length}s", data[at : at + step])))


def texts(element: bytes) -> Iterator[str]:
    """Yield an element in UTF-8 as text, in parts of at most STEP bytes.

    Raises:
        UnicodeDecodeError: the element is not UTF-8.
    """
    decoder = getincrementaldecoder("utf-8")()
    for step in steps(element):
        yield decoder.decode(bytes(step))
    yield decoder.decode(b"", final=True)


def count(data: bytes | bytearray | memoryview) -> int:
    """Return the number of elements of `data`, without creating them.

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


def offsets(data: bytes | bytearray | memoryview, step: int) -> list[int]:
    """Return the byte offset of every `step`-th element of `data`, and the end of the last element.

    Raises:
        DecodeError: an element reaches past the end, or the number of elements is not a multiple of `step`.
    """
    common = _common_length(data)
    if common is not None:
        found = list(range(0, len(data) + 1, step * (4 + common)))
    else:
        end, at, found = len(data), 0, [0]
        length = _LENGTH.unpack_from
        try:
            while at < end:
                for _ in range(step):
                    at += 4 + length(data, at)[0]
                found.append(at)
        except error:
            pass  # the last row is incomplete
    if found[-1] != len(data):
        count(data)  # raises the error if an element reaches past the end
        raise DecodeError(f"BYTES data of {len(data)} bytes is not a multiple of {step} elements")
    return found


def _common_length(data: bytes | bytearray | memoryview) -> int | None:
    """Return the length of the elements if all of them have the same length; None if the lengths differ or `data` is
    small."""
    if len(data) < _MIN_SIZE:
        return None
    length: int = _LENGTH.unpack_from(data)[0]
    elements, rest = divmod(len(data), 4 + length)
    if rest:
        return None
    lengths = np.ndarray((elements,), "<u4", data, strides=(4 + length,))
    return length if (lengths == length).all() else None


def _past_the_end(element: int) -> DecodeError:
    return DecodeError(f"BYTES element {element} reaches past the end of the data")
