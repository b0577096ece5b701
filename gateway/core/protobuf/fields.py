"""Functions and classes that read and write single protobuf fields, limit the total content of a message, and scan
messages with one tensor. These messages, such as TensorProto and GenericTensor, contain the elements in a list for
their datatype.
"""

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import TypeAlias

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.messages import Buffer
from gateway.core.protobuf.schema import not_utf8
from gateway.core.protobuf.wire import (
    LENGTH,
    VARINT,
    Allowance,
    Field,
    cut_short,
    fields,
    key,
    read_tag,
    read_varint,
    varint,
)


class MessageAllowance(Allowance):
    """The remaining allowance of a message for fields outside tensor data (`spend`), and for the memory of tensors
    (`spend_tensor`). The second limit is necessary because one encoded byte can become eight bytes of INT64."""

    __slots__ = ("_limit", "_tensor_bytes")

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = self._tensor_bytes = limit

    def spend_tensor(self, size: int, what: str) -> None:
        """Subtract `size` bytes for a tensor. Raises GatewayError (RESOURCE_EXHAUSTED) if the limit is exceeded."""
        self._tensor_bytes -= size
        if self._tensor_bytes < 0:
            text = f"{what} takes {size} bytes, which makes all tensors more than {self._limit} (limits.message)"
            raise refusal(Reason.TOO_LARGE, text)


class FieldCount:
    """The remaining number of fields, including fields of embedded messages, in a message whose fields become separate
    objects. In total, the objects take at most `limit` bytes of memory. The limit is necessary because an encoded field
    can have only two bytes."""

    BYTES = 128

    __slots__ = ("_left", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit // self.BYTES

    def fields(self, message: Buffer) -> Iterator[Field]:
        """Yield and count the fields of `message`.

        Raises:
            DecodeError: a field is malformed.
            GatewayError: RESOURCE_EXHAUSTED if the message has too many fields.
        """
        for each in fields(message):
            self._left -= 1
            if self._left < 0:
                raise self._spent()
            yield each

    def values(self, message: Buffer, number: int, wire_type: int = LENGTH) -> list[Buffer]:
        """Return the values of all fields with this `number` and `wire_type`. Raises the same errors as `fields`."""
        found, left = [], self._left
        for each, kind, _, value, end in fields(message):
            left -= 1
            if left < 0:
                raise self._spent()
            if each == number and kind == wire_type:
                found.append(message[value:end])
        self._left = left
        return found

    def _spent(self) -> GatewayError:
        text = f"the message has more than {self._limit // self.BYTES} fields, for which"
        text = f"{text} {self._limit} bytes of memory (limits.message) do not suffice"
        return refusal(Reason.TOO_LARGE, f"{text}; send less, or raise the limit")


def check_wire_type(wire_type: int, expected: int, what: str) -> None:
    """Raise DecodeError if a field does not have the expected wire type. By contrast, protobuf libraries ignore these
    fields."""
    if wire_type != expected:
        raise DecodeError(f"{what} has wire type {wire_type}, expected {expected}")


def read_text(value: Buffer, what: str) -> str:
    """Return the value of a string field as text. Raises DecodeError if the value is not UTF-8."""
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what} is not UTF-8") from error


def write_field(number: int, value: Buffer) -> bytes:
    """Return an encoded field with this `number`, whose value is bytes, a string or a small message."""
    return b"".join((key(number), varint(len(value)), value))


def write_text(number: int, text: str, what: str) -> bytes:
    """Return an encoded string field with this `number`. Raises GatewayError (INVALID_ARGUMENT) if `text` cannot be
    encoded as UTF-8."""
    try:
        value = text.encode()
    except UnicodeEncodeError as error:
        raise not_utf8(error, what) from error
    return write_field(number, value)


# --- The fields of a message that contains one tensor ---

# The elements stay in the received buffer, except strings, which are converted immediately to the raw format of BYTES.

_LENGTH = Struct("<I")


class TensorFields:
    """The fields of a message type, by number, with their names (for error messages) and wire types.

    A field with another wire type is an error, although protobuf libraries ignore it. `lists` contains the fields with
    elements. `strings` is the field for BYTES elements, which must be UTF-8 if `is_text` is True. `contents` contains
    the tags of fields with tensor data, which does not count against the allowance."""

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
"""The occurrences of each field by number (without empty pieces of lists), the strings in the raw format of BYTES, and
the number of strings.

`scan_tensor` returns this tuple."""


def scan_tensor(message: Buffer, kind: TensorFields, what: str, allowance: Allowance) -> Scanned:
    """Return the fields of `message`. Unknown fields are ignored, but count against `allowance`.

    Raises:
        DecodeError: a field is malformed or has another wire type, or an element that must be UTF-8 is not UTF-8.
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
    """Append the consecutive strings that start at `at` to `strings`, which contains `count` elements. Return the
    position after these strings, and the new number of elements. The last byte of `octets` is not part of the
    message."""
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
