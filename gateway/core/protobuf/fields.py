"""Read and write single protobuf fields, and limit the total content of a message."""

from collections.abc import Iterator

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.messages import Buffer
from gateway.core.protobuf.schema import not_utf8
from gateway.core.protobuf.wire import LENGTH, Allowance, Field, fields, key, varint


class MessageAllowance(Allowance):
    """The remaining allowance of a message: for fields outside tensor data (`spend`), and for the memory of tensors
    (`spend_tensor`), because one encoded byte can become eight bytes of INT64."""

    __slots__ = ("_limit", "_tensor_bytes")

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = self._tensor_bytes = limit

    def spend_tensor(self, size: int, what: str) -> None:
        """Subtract a tensor of `size` bytes. Raises GatewayError (RESOURCE_EXHAUSTED) if the limit is exceeded."""
        self._tensor_bytes -= size
        if self._tensor_bytes < 0:
            text = f"{what} takes {size} bytes, which makes all tensors more than {self._limit} (limits.message)"
            raise refusal(Reason.TOO_LARGE, text)


class FieldCount:
    """The remaining number of fields, including fields of embedded messages, in a message whose fields become separate
    objects. Together, the objects take at most `limit` bytes of memory. The limit is necessary because an encoded field
    can be as short as two bytes."""

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
        """Return the values of all fields with this `number` and `wire_type`. Raises the errors of `fields`."""
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
    """Raise DecodeError if a field does not have the expected wire type. Protobuf libraries ignore such fields."""
    if wire_type != expected:
        raise DecodeError(f"{what} has wire type {wire_type}, expected {expected}")


def read_text(value: Buffer, what: str) -> str:
    """Return the value of a string field. Raises DecodeError if it is not UTF-8."""
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what} is not UTF-8") from error


def write_field(number: int, value: Buffer) -> bytes:
    """Return an encoded field with this `number` whose value is bytes, a string or a small message."""
    return b"".join((key(number), varint(len(value)), value))


def write_text(number: int, text: str, what: str) -> bytes:
    """Return an encoded string field with this `number`. Raises GatewayError (INVALID_ARGUMENT) if `text` cannot be
    encoded as UTF-8."""
    try:
        value = text.encode()
    except UnicodeEncodeError as error:
        raise not_utf8(error, what) from error
    return write_field(number, value)
