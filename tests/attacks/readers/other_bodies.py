"""Bodies that are no JSON, and make many objects of few bytes: protobuf, flatbuffers, packets, tables and files."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.attacks.readers import json_bodies

Make = Callable[[int], bytes]
Bodies = Iterator[tuple[str, Make]]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_UNKNOWN = 15
"""The number of a field that most messages do not have."""
_NESTED = 4


def varint(number: int) -> bytes:
    octets = bytearray()
    while number > 127:
        octets.append(number & 127 | 128)
        number >>= 7
    return bytes([*octets, number])


def field(number: int, content: bytes) -> bytes:
    """A field of protobuf that has a length."""
    return varint(number << 3 | _LENGTH) + varint(len(content)) + content


def fields_of(message: bytes) -> list[tuple[int, int, bytes]] | None:
    """The number, the type and the content of each field; None if it is no message."""
    found, at = [], 0
    try:
        while at < len(message):
            key, at = _read(message, at)
            kind = key & 7
            if kind == _LENGTH:
                size, at = _read(message, at)
                end = at + size
            elif kind == _VARINT:
                _, end = _read(message, at)
            else:
                end = at + {_FIXED64: 8, _FIXED32: 4}[kind]
            if end > len(message) or key < 8:
                return None
            found.append((key >> 3, kind, message[at:end]))
            at = end
    except (IndexError, KeyError):
        return None
    return found


def _read(octets: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while octets[at] > 127:
        number |= (octets[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return number | octets[at] << shift, at + 1


def filled(piece: bytes, before: bytes = b"", after: bytes = b"") -> Make:
    """Bodies with as many of `piece` as their size holds, and one at least."""
    return lambda size: before + piece * max(1, size // len(piece)) + after


def listed(item: bytes, before: bytes = b"", after: bytes = b"") -> Make:
    """Bodies with a list of as many of `item`."""
    return lambda size: before + json_bodies.repeated(item, size) + after


def protobuf(valid: bytes, within: Callable[[bytes], bytes] = bytes, path: str = "") -> Bodies:
    """`valid` with more of each field at its end, and the same of the messages in it."""
    fields = fields_of(valid) or []
    for number in sorted({_UNKNOWN, *(number for number, _, _ in fields)}):
        where = f"field {path}{number}"
        yield f"empty {where}", _repeated(within, valid, field(number, b""))
        yield f"digits as {where}", _repeated(within, valid, varint(number << 3) + b"\1")
        yield f"octets in {where}", lambda size, number=number: within(valid + field(number, b"\1" * size))  # type: ignore[misc]
    seen = set()
    for number, kind, content in fields:
        whole = field(number, content)
        if kind != _LENGTH or number in seen or not content:
            continue
        seen.add(number)
        yield f"its own field {path}{number}", _repeated(within, valid, whole)
        if fields_of(content) is not None and path.count(".") < _NESTED and valid.count(whole) == 1:
            before, _, after = valid.partition(whole)

            def inside(changed: bytes, number: int = number, before: bytes = before, after: bytes = after) -> bytes:
                return within(before + field(number, changed) + after)

            yield from protobuf(content, inside, f"{path}{number}.")


def _repeated(within: Callable[[bytes], bytes], valid: bytes, piece: bytes) -> Make:
    return lambda size: within(valid + piece * (size // len(piece)))


def brpc(header: bytes, rest: bytes) -> Bodies:
    """Frames of baidu_std with the payloads of `protobuf`."""
    meta_size = int.from_bytes(header[8:12])
    meta, payload = rest[:meta_size], rest[meta_size:]

    def framed(meta: bytes, payload: bytes) -> bytes:
        return struct.pack("!4s2I", b"PRPC", len(meta) + len(payload), len(meta)) + meta + payload

    yield from protobuf(payload, lambda changed: framed(meta, changed))


def mip(header: bytes, rest: bytes) -> Bodies:
    """Packets of examples: text, JSON and others."""

    def packet(rows: int, tlvs: bytes) -> bytes:
        payload = struct.pack("!2BH", *((0, 1) if header[2] else (1, 0)), min(rows, 0xFFFF)) + tlvs
        return header[:4] + struct.pack("!L", len(payload)) + payload

    def tlvs(kind: int, content: bytes) -> Make:
        tlv = struct.pack("!2L", kind, len(content)) + content
        return lambda size: packet(size // len(tlv), tlv * (size // len(tlv)))

    for kind in (1, 2, 3, 0x4E505900, 7):
        yield f"empty examples of type {kind:#x}", tlvs(kind, b"")
    for content in (b"1", b"[]", b"{}", b'""', b"[1]"):
        yield f"examples {content.decode()}", tlvs(2, content)
        yield f"one example of {content.decode()}", _one_example(tlvs, content)
    yield "an .npy of octets", lambda size: tlvs(0x4E505900, npy_file(np.zeros(size, np.uint8)))(size + 1000)
    yield "an .npy of booleans", lambda size: tlvs(0x4E505900, npy_file(np.zeros((1, size), np.bool_)))(size + 1000)


def _one_example(tlvs: Callable[[int, bytes], Make], content: bytes) -> Make:
    def make(size: int) -> bytes:
        listed = b"[" + (content + b",") * (size // (len(content) + 1)) + content + b"]"
        return tlvs(2, listed)(len(listed) + 8)

    return make


def npy_file(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npy() -> Bodies:
    """Files of numpy."""
    yield "octets", lambda size: npy_file(np.zeros(size, np.uint8))
    yield "booleans", lambda size: npy_file(np.zeros(size, np.bool_))
    yield "big-endian numbers", lambda size: npy_file(np.zeros(size // 8, ">f8"))
    yield "columns first", lambda size: npy_file(np.zeros((2, size // 8), "<f4", order="F"))
    yield "a long head", lambda size: b"\x93NUMPY\2\0" + struct.pack("<L", size) + b"(" * size
    yield "a head of sizes", _npy_head_of_sizes


def _npy_head_of_sizes(size: int) -> bytes:
    head = b"{'descr':'|u1','fortran_order':False,'shape':(" + b"1," * (size // 2) + b")}"
    return b"\x93NUMPY\2\0" + struct.pack("<L", size + 60) + head.ljust(size + 59) + b"\n"


def flatbuffers(valid: bytes) -> Bodies:
    """`valid` with other counts, whose elements are all the same."""

    yield "its own bytes, then zeros", lambda size: valid + bytes(size)
    for at in range(0, len(valid) - 4, 4):
        (number,) = struct.unpack_from("<I", valid, at)
        if 0 < number < 64:
            yield (
                f"a count at byte {at}",
                lambda size, at=at: valid[:at] + struct.pack("<I", size // 4) + valid[at + 4 :] + bytes(size),  # type: ignore[misc]
            )


_CELLS = {
    "an empty text": b'""',
    "a quote": b'""""',
    "a line feed": b'"\n"',
    "a digit": b"1",
    "a letter": b"a",
    "a blank": b" ",
    "a truth": b"true",
}
_COLUMNS = 9_999
"""As many as a table that holds texts may have (`limits.json_values`)."""


def _row(cell: bytes, columns: int) -> bytes:
    return b",".join([cell] * columns) + b"\n"


def csv(columns: int = 1, header: bytes = b"") -> Bodies:
    """Tables."""
    for name, cell in _CELLS.items():
        yield f"rows of {name}", filled(_row(cell, columns), header)
    names = b",".join(b"%x" % at for at in range(_COLUMNS)) + b"\n" if header else b""
    for cell in (b"1", b"a", b'""'):
        yield f"{_COLUMNS} columns of {cell.decode()}", filled(_row(cell, _COLUMNS), names)
    yield "a cell of quotes", filled(b'""', header + b'"', b'"' + b',""' * (columns - 1) + b"\n")
    yield "one row of commas", filled(b",", header, b"\n")
    yield "one row of empty texts", filled(b'"",', header, b'""\n')
    yield "digits, then a letter beyond ASCII", filled(_row(b"1", columns), header, _row("é".encode(), columns))


def lines() -> Bodies:
    """Documents in lines."""
    for item in (b"{}", b"[]", b'""', b"1", b"[1]", b"null", b'{"a":1}', b"NaN", b""):
        yield f"lines of {item.decode() or 'nothing'}", filled(item + b"\n")
    yield "one line of empty lists", listed(b"[]", after=b"\n")


def form_data(boundary: bytes, names: tuple[str, ...]) -> Bodies:
    """Parts of form data."""
    end = b"\r\n--%b--\r\n" % boundary

    def head(name: str, more: bytes = b"") -> bytes:
        return b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n%b\r\n' % (boundary, name.encode(), more)

    def part(name: str) -> bytes:
        return head(name) + b"1\r\n"

    yield "empty parts", filled(head("a") + b"\r\n", after=end[2:])
    for name in names:
        rest = b"".join(part(other) for other in names if other != name) + head(name)
        for text in (b"\0", b'"', b"\xff", b"a"):
            yield f"a part of {text!r} at {name}", filled(text, rest, end)
        for item in (b"{}", b"[]", b'""', b"1", b"[1]"):
            yield f"a part of {item.decode()} at {name}", listed(item, rest, end)
        yield f"parts of the name {name}", filled(part(name), after=end[2:])
    yield "heads of parts", lambda size: head("x", b"a:\r\n" * (size // 4)) + b"1" + end
    yield "line ends", filled(b"\r\n", head("x"), end)
    yield "dashes", filled(b"\r\n--", head("x"), end)


def web_form(names: tuple[str, ...]) -> Bodies:
    """Fields of web forms."""
    yield "ampersands", filled(b"&")
    yield "empty fields", filled(b"=&")
    yield "fields of one name", filled(b"a=1&")
    yield "fields of many names", lambda size: b"&".join(b"%x=" % at for at in range(size // 7))
    for name in names:
        rest = "".join(f"&{other}=1" for other in names if other != name).encode()
        for text in (b"%00", b"%22", b"+", b"%", b"a"):
            yield f"{text.decode()} at {name}", filled(text, name.encode() + b"=", rest)
        for item in (b"{}", b"[]", b'""', b"1", b"[1]", b"%31"):
            yield f"elements {item.decode()} at {name}", listed(item, name.encode() + b"=", rest)


def octets() -> Bodies:
    """Bytes as they are."""
    for text in (b"\0", b"\xff", b"a", b"1,", "é".encode()):
        yield f"bytes {text!r}", filled(text)
