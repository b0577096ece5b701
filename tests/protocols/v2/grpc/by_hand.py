"""Protobuf written by hand."""

import struct

# an InferParameter's field and its value
INT64_MIN = bytes((2 << 3,)) + b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"
UINT64_MAX = bytes((5 << 3,)) + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
HALF = bytes((4 << 3 | 1,)) + struct.pack("<d", 0.5)


def field(number: int, content: bytes | str | int) -> bytes:
    """A field of bytes, of text or of a varint, each below 128 in length or value."""
    if isinstance(content, int):
        return bytes((number << 3, content))
    octets = content.encode() if isinstance(content, str) else content
    return bytes((number << 3 | 2, len(octets))) + octets


def shape(*dimensions: int) -> bytes:
    return field(3, bytes(dimensions))


def parameter(number: int, key: str, choice: bytes) -> bytes:
    return field(number, field(1, key) + field(2, choice))


def tensor(name: str, datatype: str, *dimensions: int, contents: bytes = b"", more: bytes = b"") -> bytes:
    """An entry of `inputs` or `outputs`."""
    content = field(1, name) + field(2, datatype) + shape(*dimensions) + more
    return field(5, content + (field(5, contents) if contents else b""))


def large(datatype: str, elements: int, contents: bytes) -> bytes:
    """A request whose only input has these contents, of any size."""
    size = len(contents)
    head = field(1, "x") + field(2, datatype) + b"\x18" + varint(elements)
    content = head + b"\x2a" + varint(size) + contents
    return b"\x2a" + varint(len(content)) + content


def varint(number: int) -> bytes:
    octets = b""
    while number > 127:
        octets += bytes((number % 128 + 128,))
        number //= 128
    return octets + bytes((number,))


def packed(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + varint(len(content)) + content
