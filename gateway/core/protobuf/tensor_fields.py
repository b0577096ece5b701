"""Scan messages that contain one tensor in the list for its datatype, such as TensorProto and GenericTensor.

The elements stay in the received buffer, except strings, which are converted immediately to the raw format of BYTES.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import TypeAlias

from gateway.core.errors import DecodeError
from gateway.core.messages import Buffer
from gateway.core.protobuf.fields import read_text
from gateway.core.protobuf.wire import LENGTH, VARINT, Allowance, cut_short, read_tag, read_varint

_LENGTH = Struct("<I")


class TensorFields:
    """The fields of a message type, by number, with their names (for error messages) and wire types.

    A field with another wire type is an error, although protobuf libraries ignore it. `lists` are the fields that
    contain elements, and `strings` is the field for BYTES elements, which must be UTF-8 if `is_text` is True.
    `contents` are the tags of fields that contain tensor data, which do not count against the allowance."""

    def __init__(
        self,
        fields: Mapping[int, tuple[str, tuple[int, ...]]],
        *,
        lists: Iterable[int],
        contents: Iterable[int],
        strings: int,
        is_text: bool,
    ) -> None:
        self.fields = fields
        self.tags = {number << 3 | each: number for number, (_, wire_types) in fields.items() for each in wire_types}
        self.lists = frozenset(lists)
        self.contents = frozenset(number << 3 | LENGTH for number in contents)
        self.strings = strings
        self.string_key = strings << 3 | LENGTH
        self.is_text = is_text

    def name(self, number: int) -> str:
        """Return the name of a field, for error messages."""
        return self.fields[number][0]

    def check_unknown(self, tag: int, what: str) -> None:
        """Raise DecodeError if `tag`, which is not in `tags`, contains the number of a known field."""
        known = self.fields.get(tag >> 3)
        if known is not None:
            expected = " or ".join(map(str, known[1]))
            raise DecodeError(f"{what}: {known[0]} has wire type {tag & 7}, expected {expected}")


Scanned: TypeAlias = tuple[dict[int, list[Buffer]], bytearray, int]
"""The occurrences of each field, by number, without empty pieces of lists.

In addition, the strings in the raw format of BYTES, and the number of strings."""


def scan(message: Buffer, kind: TensorFields, what: str, allowance: Allowance) -> Scanned:
    """Return the fields of `message`. Unknown fields are ignored, but count against `allowance`.

    Raises:
        DecodeError: a field is malformed or has another wire type, or an element that must be UTF-8 is not.
        GatewayError: RESOURCE_EXHAUSTED if the message exceeds `allowance`.
    """
    found: dict[int, list[Buffer]] = {}
    strings, count, octets = bytearray(), 0, b""
    tags, contents, string_key = kind.tags, kind.contents, kind.string_key
    at, end, left, per_field = 0, len(message), allowance.left, allowance.PER_FIELD
    try:
        while at < end:
            tag = message[at]
            if tag == string_key:
                # one byte more than the message, so reading a length after a key in the last byte is safe
                octets = octets or b"\x00".join((message, b""))
                at, count = _read_strings(octets, at, strings, count, kind, what)
                continue
            size, start = message[at + 1], at + 2
            stop = start + size
            if tag & 0x87 == VARINT and size <= 0x7F and tag >= 8:
                start, stop = at + 1, at + 2
            elif size > 0x7F or tag & 0x87 != LENGTH or tag < 8:
                tag, start, stop = read_tag(message, at)
            if stop > end:
                raise cut_short(message, at)
            left -= per_field if tag in contents else per_field + stop - at
            if left < 0:
                raise allowance.spent()
            number = tags.get(tag)
            if number is None:
                kind.check_unknown(tag, what)
            elif number in found:
                found[number].append(message[start:stop])
            elif number == kind.strings:  # the key is longer than necessary
                value = message[start:stop]
                if kind.is_text:
                    read_text(value, f"{what}: element {count} of {kind.name(number)}")
                strings += _LENGTH.pack(len(value)) + value
                count += 1
            elif stop > start or number not in kind.lists:
                found[number] = [message[start:stop]]
            at = stop
    except IndexError as error:
        raise cut_short(message, at) from error
    allowance.left = left
    return found, strings, count


def _read_strings(
    octets: bytes, at: int, strings: bytearray, count: int, kind: TensorFields, what: str
) -> tuple[int, int]:
    """Append the consecutive strings that start at `at` to `strings`, which contains `count` elements. Return the end
    of the strings and the new number of elements. The last byte of `octets` is not part of the message."""
    end = len(octets) - 1
    pack, string_key, is_text = _LENGTH.pack, kind.string_key, kind.is_text
    try:
        while at < end and octets[at] == string_key:
            size, start = octets[at + 1], at + 2
            if size > 0x7F:
                size, start = read_varint(octets, at + 1)
            at = start + size
            element = octets[start:at]
            if is_text:
                element.decode()
            strings += pack(len(element))
            strings += element
            count += 1
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what}: element {count} of {kind.name(kind.strings)} is not UTF-8") from error
    if at > end:
        name = kind.name(kind.strings)
        raise DecodeError(f"{what}: element {count - 1} of {name} reaches past the end of the message")
    return at, count
