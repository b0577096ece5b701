"""Reading and writing single protobuf fields, and the limits on all that a message holds."""

from collections.abc import Iterator

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.protobuf.schema import not_utf8
from gateway.core.protobuf.wire import LENGTH, Allowance, Field, fields, key, varint
from gateway.core.types import Buffer


class MessageAllowance(Allowance):
    """The allowance that a message still has: fields outside tensor data (`spend`), and bytes of tensors as they are in
    memory (`spend_tensor`): one byte on the wire can become eight of INT64."""

    __slots__ = ("_limit", "_tensor_bytes")

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = self._tensor_bytes = limit

    def spend_tensor(self, size: int, what: str) -> None:
        """Account for a tensor of `size` bytes. Raises GatewayError, RESOURCE_EXHAUSTED, beyond the limit."""
        self._tensor_bytes -= size
        if self._tensor_bytes < 0:
            text = f"{what} takes {size} bytes, which makes all tensors more than {self._limit} (limits.message)"
            raise refusal(Reason.TOO_LARGE, text)


class FieldCount:
    """How many fields a message may still have, those of the messages in it included, where each becomes an object of
    its own: they take at most `limit` bytes of memory together. A field can be two bytes on the wire."""

    BYTES = 128

    __slots__ = ("_left", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit // self.BYTES

    def fields(self, message: Buffer) -> Iterator[Field]:
        """The fields of `message`, which are counted.

        Raises:
            DecodeError: one is malformed. GatewayError: RESOURCE_EXHAUSTED, there are more.
        """
        for each in fields(message):
            self._left -= 1
            if self._left < 0:
                raise self._spent()
            yield each

    def values(self, message: Buffer, number: int, wire_type: int = LENGTH) -> list[Buffer]:
        """The values of the fields with this `number` and `wire_type`. Raises as `fields`."""
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
        return refusal(Reason.TOO_LARGE, f"{text} {self._limit} bytes of memory (limits.message) do not suffice")


def check_wire_type(wire_type: int, expected: int, what: str) -> None:
    """Raises DecodeError where a field has another wire type. Protobuf libraries ignore such a field."""
    if wire_type != expected:
        raise DecodeError(f"{what} has wire type {wire_type}, expected {expected}")


def read_text(value: Buffer, what: str) -> str:
    """The value of a string field. Raises DecodeError where it is not UTF-8."""
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what} is not UTF-8") from error


def write_field(number: int, value: Buffer) -> bytes:
    """The field `number` of bytes, a string or a small message."""
    return b"".join((key(number), varint(len(value)), value))


def write_text(number: int, text: str, what: str) -> bytes:
    """The field `number` of a string. Raises GatewayError, INVALID_ARGUMENT, where it is not UTF-8."""
    try:
        value = text.encode()
    except UnicodeEncodeError as error:
        raise not_utf8(error, what) from error
    return write_field(number, value)
