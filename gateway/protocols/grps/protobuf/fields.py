"""What tensors, maps and the message around them share in protobuf's form."""

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.types import Buffer
from gateway.protobuf.schema import not_utf8
from gateway.protobuf.wire import Allowance, Field, key, varint


class Room(Allowance):
    """What a message may still hold outside tensor data, and the bytes that its tensors may still take: one of the wire
    becomes eight of INT64."""

    __slots__ = ("_limit", "_room")

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = self._room = limit

    def take(self, size: int, what: str) -> None:
        """Take a tensor of `size` bytes away. Raises GatewayError, RESOURCE_EXHAUSTED, where too little is left."""
        self._room -= size
        if self._room < 0:
            text = f"{what} takes {size} bytes, which makes all tensors more than {self._limit} (limits.message)"
            raise refusal(Reason.TOO_LARGE, text)


def check_wire_type(field: Field, expected: int, what: str) -> None:
    """Raises DecodeError where `field` is of another wire type: protobuf would ignore it."""
    if field.wire_type != expected:
        raise DecodeError(f"{what} has wire type {field.wire_type}, expected {expected}")


def read_text(value: Buffer, what: str) -> str:
    """`value` as the text that a string of protobuf is. Raises DecodeError where it is not UTF-8."""
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what} is not UTF-8") from error


def write_field(number: int, octets: Buffer) -> bytes:
    """The field `number` of bytes, a string or a small message."""
    return b"".join((key(number), varint(len(octets)), octets))


def write_text(number: int, content: str, what: str) -> bytes:
    """The field `number` of a string. Raises GatewayError, INVALID_ARGUMENT, where it is not UTF-8."""
    try:
        octets = content.encode()
    except UnicodeEncodeError as error:
        raise not_utf8(error, what) from error
    return write_field(number, octets)
