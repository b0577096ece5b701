"""Protocol Buffers by a table of fields: documents of plain Python values to bytes and back.

A document is a dict by field name: numbers, str, bytes, lists, dicts for messages and maps, names for enum values
that have one. Independent of the gateway and of the protobuf package, so that a fault of theirs shows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
Schema = Mapping[int, "Field"]

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
PACKED = {"float": "f", "double": "d"}
SIGNED = {"int32": 32, "int64": 64}
DEFAULTS: tuple[object, ...] = (0, "", b"", [], {}, None)


@dataclass(frozen=True)
class Field:
    name: str
    kind: str = "message"
    """A scalar type of .proto files, `enum`, or `message`."""
    schema: Schema | None = None
    """Of a message."""
    values: tuple[str, ...] = ()
    """Names of an enum, by number from 0."""
    repeated: bool = False
    is_map: bool = False
    oneof: bool = False
    """One of the message's only oneof: written when present, and it drives out the others."""
    explicit: bool = False
    """Written when present, even if it is the default: proto2, and members of a oneof."""

    @property
    def wire_type(self) -> int:
        fixed = {"float": FIXED32, "double": FIXED64}
        return fixed.get(self.kind, DELIMITED if self.kind in ("string", "bytes", "message") else VARINT)

    @property
    def entry(self) -> Schema:
        """What a map's entry is on the wire."""
        return {1: Field("key", "string"), 2: Field("value", self.kind)}


def map_of(name: str, kind: str) -> Field:
    return Field(name, kind, is_map=True)


# --- Writing ---


def varint(number: int) -> bytes:
    """Negatives as 64-bit two's complement: 10 bytes."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def encode(document: Mapping[str, Any], schema: Schema) -> bytes:
    """The fields in the order of their numbers, as the originals write them. Raises ValueError for unknown names."""
    unknown = document.keys() - {field.name for field in schema.values()}
    if unknown:
        raise ValueError(f"no such field: {', '.join(sorted(unknown))}")
    return b"".join(
        _field(number, field, document[field.name])
        for number, field in sorted(schema.items())
        if field.name in document
    )


def _field(number: int, field: Field, value: Any) -> bytes:
    if field.is_map:
        return b"".join(_tagged(number, DELIMITED, _entry(field, key, each)) for key, each in value.items())
    if field.repeated and field.wire_type == DELIMITED:
        return b"".join(_tagged(number, DELIMITED, _scalar(field, each)) for each in value)
    if field.repeated:
        return _tagged(number, DELIMITED, b"".join(_scalar(field, each) for each in value)) if value else b""
    if value in DEFAULTS and not (field.oneof or field.explicit or field.schema):
        return b""
    return _tagged(number, field.wire_type, _scalar(field, value))


def _entry(field: Field, key: str, value: Any) -> bytes:
    """Keys and values of maps are written even where they are defaults."""
    return _tagged(1, DELIMITED, key.encode()) + _tagged(2, field.wire_type, _scalar(field, value))


def _tagged(number: int, wire_type: int, raw: bytes) -> bytes:
    size = varint(len(raw)) if wire_type == DELIMITED else b""
    return varint(number << 3 | wire_type) + size + raw


def _scalar(field: Field, value: Any) -> bytes:
    if field.schema is not None:
        return encode(value, field.schema)
    if field.kind == "string":
        return str(value).encode()
    if field.kind == "bytes":
        return bytes(value)
    if field.kind in PACKED:
        return struct.pack(f"<{PACKED[field.kind]}", value)
    return varint(field.values.index(value) if isinstance(value, str) else int(value))


# --- Reading ---


def decode(data: bytes, schema: Schema, into: Document | None = None) -> Document:
    """Unknown fields are skipped; packed and unpacked lists are both read. Raises ValueError for what is malformed."""
    document: Document = {} if into is None else into
    for number, wire_type, raw in split(data):
        if number in schema:
            _take(document, schema, schema[number], wire_type, raw)
    return document


def split(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type, and the varint's value or the bytes of each field."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if not number:
            raise ValueError("field number 0")
        if wire_type == VARINT:
            value, at = read_varint(data, at)
            yield number, wire_type, value
            continue
        size, at = _size(data, at, wire_type)
        if at + size > len(data):
            raise ValueError(f"field {number} ends behind the message")
        yield number, wire_type, data[at : at + size]
        at += size


def _size(data: bytes, at: int, wire_type: int) -> tuple[int, int]:
    if wire_type == DELIMITED:
        return read_varint(data, at)
    if wire_type in (FIXED32, FIXED64):
        return (4 if wire_type == FIXED32 else 8), at
    raise ValueError(f"wire type {wire_type}")


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("a varint ends behind the message")
        number |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return number & (1 << 64) - 1, at
    raise ValueError("a varint of more than 10 bytes")


def _take(document: Document, schema: Schema, field: Field, wire_type: int, raw: Any) -> None:
    if field.oneof:
        for other in schema.values():
            if other.oneof and other.name != field.name:
                document.pop(other.name, None)
    if field.is_map:
        entry = decode(_delimited(field, wire_type, raw), field.entry)
        document.setdefault(field.name, {})[entry.get("key", "")] = entry.get("value", _default(field))
    elif field.repeated and wire_type == DELIMITED and field.wire_type != DELIMITED:
        document.setdefault(field.name, []).extend(_unpack(field, raw))
    elif field.repeated:
        document.setdefault(field.name, []).append(_value(field, wire_type, raw, None))
    else:
        document[field.name] = _value(field, wire_type, raw, document.get(field.name))


def _value(field: Field, wire_type: int, raw: Any, before: Any) -> Any:
    if wire_type != field.wire_type:
        raise ValueError(f"{field.name}: wire type {wire_type}, not {field.wire_type}")
    if field.schema is not None:
        return decode(raw, field.schema, before)
    if field.kind == "string":
        return raw.decode()  # a UnicodeDecodeError is a ValueError, as for the original
    if field.kind == "bytes":
        return raw
    if field.kind in PACKED:
        return struct.unpack(f"<{PACKED[field.kind]}", raw)[0]
    return _integer(field)(raw)


def _unpack(field: Field, raw: bytes) -> list[Any]:
    if field.kind in PACKED:
        form = PACKED[field.kind]
        if len(raw) % struct.calcsize(form):
            raise ValueError(f"{field.name}: {len(raw)} bytes are no list of {field.kind}")
        return list(struct.unpack(f"<{len(raw) // struct.calcsize(form)}{form}", raw))
    numbers, at, read = [], 0, _integer(field)
    while at < len(raw):
        number, at = read_varint(raw, at)
        numbers.append(read(number))
    return numbers


def _integer(field: Field) -> Callable[[int], Any]:
    if field.kind == "enum":
        return lambda number: field.values[number] if number < len(field.values) else number
    if field.kind == "bool":
        return bool
    if field.kind == "uint32":
        return lambda number: number & 0xFFFFFFFF
    bits = SIGNED[field.kind]
    half = 1 << bits - 1
    return lambda number: ((number & (1 << bits) - 1) ^ half) - half


def _delimited(field: Field, wire_type: int, raw: Any) -> bytes:
    if wire_type != DELIMITED:
        raise ValueError(f"{field.name}: wire type {wire_type}, not {DELIMITED}")
    return bytes(raw)


def _default(field: Field) -> Any:
    defaults: dict[str, Any] = {"string": "", "bytes": b"", "float": 0.0, "double": 0.0, "bool": False}
    return defaults.get(field.kind, 0)
