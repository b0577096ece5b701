"""Reads and writes a GrpsMessage and its Status. The reader never copies fields out of the buffer."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, unsupported
from gateway.core.frozen import replace
from gateway.core.messages import Buffer
from gateway.core.offload import COPIED, LARGE
from gateway.core.protobuf.fields import MessageAllowance, check_wire_type, read_text, write_field, write_text
from gateway.core.protobuf.wire import LENGTH, VARINT, Field, fields, key, read_varint, varint
from gateway.core.tensors import Tensor
from gateway.protocols.grps.errors import OK
from gateway.protocols.grps.gmap import TEXT
from gateway.protocols.grps.protobuf.tensors import (
    ELEMENTS,
    RAW,
    Parts,
    read_gmap,
    read_tensor,
    write_gmap,
    write_tensors,
)
from gateway.protocols.grps.schema import UNKNOWN, GrpsMessage, GrpsStatus, Payload

_STATUS, _MODEL = 1, 2
_TENSORS = 1
"""The field number of GenericTensorData."""

_PAYLOADS = {
    3: Payload.BIN_DATA,
    4: Payload.STR_DATA,
    5: Payload.GTENSORS,
    6: Payload.NDARRAY,
    7: Payload.GMAP,
}
"""The members of `data_oneof` by field number."""
_KEYS = {payload: key(number) for number, payload in _PAYLOADS.items()}

_SUBMESSAGES = frozenset({Payload.GTENSORS, Payload.NDARRAY, Payload.GMAP})
_LENGTH = Struct("<I")

_COPIED = 2**14
"""Maximum size of a message for which copies of its lists cost less than views, in bytes."""

_MAX_CHECKED_FIELDS = 100_000


# --- Reading ---


def read_message(body: Buffer, limit: int) -> GrpsMessage:
    """Return the message in `body`.

    FP32 and FP64 tensors of large messages are views of `body`. `limit` is the maximum number of bytes of all tensors.

    Raises:
        DecodeError: the body is not a GrpsMessage, or has an unknown field instead of data, or contains a tensor whose
            elements do not match its dtype and shape.
        GatewayError: RESOURCE_EXHAUSTED if the tensors exceed the limit.
    """
    message = bytes(body) if len(body) <= _COPIED else memoryview(body)
    allowance = MessageAllowance(limit)
    model, payload, unknown = "", None, 0
    status: list[Buffer] = []
    data: list[Buffer] = []
    for number, wire_type, start, begin, end in fields(message):
        member = _PAYLOADS.get(number)
        allowance.spend(begin - start if member else end - start)
        if member:
            if wire_type != LENGTH:
                check_wire_type(wire_type, LENGTH, member.value)
            # The last member of a oneof counts. If a submessage occurs several times, the occurrences are concatenated.
            if payload is not member or payload not in _SUBMESSAGES:
                data.clear()
            data.append(message[begin:end])
            payload = member
        elif number == _STATUS:
            check_wire_type(wire_type, LENGTH, "status")
            status.append(message[begin:end])
        elif number == _MODEL:
            check_wire_type(wire_type, LENGTH, "model")
            model = read_text(message[begin:end], "model")
        else:
            unknown = number
    if payload is None and unknown and not status:
        raise DecodeError(f"the message holds no data, but field {unknown}, which a GrpsMessage does not have")
    tensors = _READERS[payload](_joined(data), allowance) if payload else ()
    return GrpsMessage(model, _read_status(_joined(status)) if status else None, payload, tensors)


_MOST_FIELDS = 32
"""Maximum number of fields in a message whose head the gateway reads without decoding the rest. A GrpsMessage defines
three fields, but every field can occur several times."""


class MessageHead(NamedTuple):
    """The fields of a message that the gateway can read without decoding the data. `model` is empty if the message
    contains no model name."""

    model: str
    status: GrpsStatus | None
    has_data: bool


def read_head(body: Buffer) -> MessageHead | None:
    """Return the MessageHead of the message in `body`.

    Return None if the entire message must be decoded because it is malformed or has an ndarray.

    Like protobuf's own readers, the function uses the last of several model fields, and merges several status
    fields."""
    model, has_data = b"", False
    status: bytes | None = None
    try:
        for count, (number, wire_type, _, begin, end) in enumerate(fields(body)):
            payload = _PAYLOADS.get(number)
            if wire_type != LENGTH or count == _MOST_FIELDS or payload is Payload.NDARRAY:
                return None
            if number == _MODEL:
                model = bytes(body[begin:end])
            elif number == _STATUS:
                status = b"".join((status or b"", body[begin:end]))
            has_data = has_data or payload is not None
        return MessageHead(model.decode(), None if status is None else _read_status(status), has_data)
    except (DecodeError, UnicodeDecodeError):
        return None


def _joined(pieces: list[Buffer]) -> Buffer:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _read_gtensors(message: Buffer, allowance: MessageAllowance) -> tuple[Tensor, ...]:
    tensors: list[Tensor] = []
    for number, wire_type, start, value, end in fields(message):
        allowance.spend(value - start)
        if number == _TENSORS:
            check_wire_type(wire_type, LENGTH, "gtensors: tensors")
            tensors.append(read_tensor(message[value:end], len(tensors), allowance))
    return tuple(tensors)


def _read_bin_data(element: Buffer, allowance: MessageAllowance) -> tuple[Tensor, ...]:
    allowance.spend_tensor(len(element), Payload.BIN_DATA.value)
    return (Tensor("", Datatype.BYTES, (1,), b"".join((_LENGTH.pack(len(element)), element))),)


def _read_str_data(element: Buffer, allowance: MessageAllowance) -> tuple[Tensor, ...]:
    read_text(element, Payload.STR_DATA.value)
    (tensor,) = _read_bin_data(element, allowance)
    return (replace(tensor, content_type=TEXT),)


def _read_ndarray(message: Buffer, allowance: MessageAllowance) -> tuple[Tensor, ...]:
    """Return no tensors, because the numbers of an ndarray exist only in JSON."""
    return ()


_READERS: dict[Payload, Callable[[Buffer, MessageAllowance], tuple[Tensor, ...]]] = {
    Payload.BIN_DATA: _read_bin_data,
    Payload.STR_DATA: _read_str_data,
    Payload.GTENSORS: _read_gtensors,
    Payload.NDARRAY: _read_ndarray,
    Payload.GMAP: read_gmap,
}


def check_message(body: Buffer) -> None:
    """Raise DecodeError if `body` is not a GrpsMessage because a field of the message, a tensor or a map extends past
    the end of its message. The function checks no values, and only the first 100,000 fields."""
    message, remaining = memoryview(body), [_MAX_CHECKED_FIELDS]
    for outer in _at_most(remaining, fields(message)):
        if outer.wire_type == LENGTH and _PAYLOADS.get(outer.number) in (Payload.GTENSORS, Payload.GMAP):
            nested = message[outer.value : outer.end]
            for each in _at_most(remaining, fields(nested)):
                if each.wire_type == LENGTH:
                    deque(_at_most(remaining, fields(nested[each.value : each.end])), maxlen=0)


def _at_most(remaining: list[int], found: Iterable[Field]) -> Iterator[Field]:
    """Yield the items of `found` until the count in `remaining`, which all callers share, is zero."""
    for each in found:
        if not remaining[0]:
            return
        remaining[0] -= 1
        yield each


_FIELD_COST = 256
"""The cost of skipping a field, as the number of bytes that can be parsed in the same time."""
_COPIED_FIELDS = frozenset(ELEMENTS[datatype] for datatype in RAW)


def parsed_size(body: Buffer) -> int:
    """Return the number of bytes of a GrpsMessage that must be parsed: all bytes except packed FP32 and FP64 elements,
    which are at most copied. Counting stops above LARGE."""
    size = 0
    try:
        for number, length in _field_sizes(memoryview(body)):
            size += _FIELD_COST + (length // COPIED if number in _COPIED_FIELDS else length)
            if size > LARGE:
                break
    except DecodeError:
        pass  # the decoder raises the same error at the same point
    return size


def _field_sizes(message: memoryview) -> Iterator[tuple[int, int]]:
    """Yield the number and the size of each field of the tensors in gtensors.

    The number is 0 for a field that is not a packed list, a string or a message. Fields outside the tensors have the
    number 0."""
    for outer in fields(message):
        if outer.wire_type != LENGTH or _PAYLOADS.get(outer.number) is not Payload.GTENSORS:
            yield 0, outer.end - outer.start
            continue
        yield 0, outer.value - outer.start
        tensors = message[outer.value : outer.end]
        for each in fields(tensors):
            if each.wire_type != LENGTH or each.number != _TENSORS:
                yield 0, each.end - each.start
                continue
            yield 0, each.value - each.start
            for field in fields(tensors[each.value : each.end]):
                yield field.number if field.wire_type == LENGTH else 0, field.end - field.start


# --- Writing ---


def write_message(message: GrpsMessage) -> tuple[Buffer, ...]:
    """Return `message` in parts.

    The data of FP32 and FP64 tensors, bin_data and str_data are separate parts, which are not copied. The message comes
    from `client.encode_request` or `server.encode_response`, so its payload can hold the tensors.

    Raises:
        GatewayError: INVALID_ARGUMENT if grps cannot represent a tensor (the message says which); UNIMPLEMENTED if the
            payload is an ndarray.
    """
    head = b"" if message.status is None else write_field(_STATUS, _write_status(message.status))
    if message.model:
        head += write_text(_MODEL, message.model, "the model's name")
    if message.payload is None:
        return (head,)
    (first, *rest), size = _WRITERS[message.payload](message.tensors)
    return (b"".join((head, _KEYS[message.payload], varint(size), first)), *rest)


def _write_element(tensors: Sequence[Tensor]) -> tuple[Parts, int]:
    [tensor] = tensors
    element = memoryview(tensor.data)[_LENGTH.size :]
    return (b"", element), len(element)


def _write_gmap(tensors: Sequence[Tensor]) -> tuple[Parts, int]:
    written = write_gmap(tensors)
    return (written,), len(written)


def _refuse_ndarray(tensors: Sequence[Tensor]) -> tuple[Parts, int]:
    raise unsupported("ndarray holds its numbers in JSON only, expected gtensors")


_WRITERS: dict[Payload, Callable[[Sequence[Tensor]], tuple[Parts, int]]] = {
    Payload.BIN_DATA: _write_element,
    Payload.STR_DATA: _write_element,
    Payload.GTENSORS: write_tensors,
    Payload.NDARRAY: _refuse_ndarray,
    Payload.GMAP: _write_gmap,
}
"""The writer of each payload. A writer returns the payload in parts, of which the first is small, and the payload's
size in bytes."""


# --- Status ---

_CODE, _MSG, _FLAG = 1, 2, 3


def _read_status(message: Buffer) -> GrpsStatus:
    """Return the Status in `message`. The flag can be a number that the schema does not define. Raise DecodeError if
    `message` is not a Status."""
    if message == _OK:
        return OK
    code, text, flag = 0, "", UNKNOWN
    for field in fields(message):
        if field.number == _CODE:
            check_wire_type(field.wire_type, VARINT, "status: code")
            code = _int32(read_varint(message, field.value)[0])
        elif field.number == _MSG:
            check_wire_type(field.wire_type, LENGTH, "status: msg")
            text = read_text(message[field.value : field.end], "status: msg")
        elif field.number == _FLAG:
            check_wire_type(field.wire_type, VARINT, "status: status")
            flag = _int32(read_varint(message, field.value)[0])
    return GrpsStatus(code, text, flag)


def _int32(number: int) -> int:
    """Return a varint as protobuf reads an int32: the lowest 32 bits, signed."""
    return (number + 2**31) % 2**32 - 2**31


def _write_status(status: GrpsStatus) -> bytes:
    return _OK if status is OK else _write_members(status)


def _write_members(status: GrpsStatus) -> bytes:
    """Return the members. Like protobuf, omit values that are 0 or empty."""
    code = bytes((_CODE << 3,)) + varint(status.code % 2**64) if status.code else b""
    text = write_field(_MSG, status.text.encode("utf-8", "replace")) if status.text else b""
    return code + text + (bytes((_FLAG << 3,)) + varint(status.flag % 2**64) if status.flag else b"")


_OK = _write_members(OK)
"""The status of almost every response, encoded once."""
