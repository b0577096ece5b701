"""`GrpsMessage` in protobuf's form, as gRPC and baidu_std carry it."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct

from gateway.core.datatypes import Datatype
from gateway.core.errors import unsupported
from gateway.core.frozen import replace
from gateway.core.types import Buffer, Tensor
from gateway.protobuf.wire import LENGTH, Field, fields, key, varint
from gateway.protocols.grps.gmap import TEXT
from gateway.protocols.grps.message import GrpsMessage
from gateway.protocols.grps.protobuf.fields import Room, check_wire_type, read_text, write_field, write_text
from gateway.protocols.grps.protobuf.generic_tensor import read_tensor
from gateway.protocols.grps.protobuf.gmap import read_maps, write_maps
from gateway.protocols.grps.protobuf.small_messages import SMALL, read_small
from gateway.protocols.grps.protobuf.status import read_status, write_status
from gateway.protocols.grps.protobuf.write_tensors import Parts, write_tensors
from gateway.protocols.grps.schema import Kind

_STATUS, _MODEL = 1, 2
_TENSORS = 1

_KINDS = {3: Kind.BIN_DATA, 4: Kind.STR_DATA, 5: Kind.GTENSORS, 6: Kind.NDARRAY, 7: Kind.GMAP}
"""The members of `data_oneof` by number."""
_KEYS = {kind: key(number) for number, kind in _KINDS.items()}

_MESSAGES = frozenset({Kind.GTENSORS, Kind.NDARRAY, Kind.GMAP})
_LENGTH = Struct("<I")


def read_message(body: Buffer, limit: int) -> GrpsMessage:
    """The message in `body`; where it is large, FP32 and FP64 are views on it. `limit` is in bytes of all tensors.

    Raises:
        DecodeError: not a GrpsMessage, or one whose tensors are not what they say.
        GatewayError: RESOURCE_EXHAUSTED, beyond the limit.
    """
    small = read_small(body, limit) if len(body) <= SMALL else None
    return read_large(body, limit) if small is None else small


def read_large(body: Buffer, limit: int) -> GrpsMessage:
    """As `read_message`, by hand: each field is found where it lies."""
    message, room = memoryview(body), Room(limit)
    model, kind = "", None
    status: list[memoryview] = []
    data: list[memoryview] = []
    for field in fields(message):
        number, value = field.number, message[field.value : field.end]
        room.spend(field.value - field.start if number in _KINDS else field.end - field.start)
        if number in _KINDS:
            check_wire_type(field, LENGTH, _KINDS[number].value)
            # of the members of a oneof the last one counts; a message that comes in pieces is their concatenation
            if kind is not _KINDS[number] or kind not in _MESSAGES:
                data.clear()
            data.append(value)
            kind = _KINDS[number]
        elif number == _STATUS:
            check_wire_type(field, LENGTH, "status")
            status.append(value)
        elif number == _MODEL:
            check_wire_type(field, LENGTH, "model")
            model = read_text(value, "model")
    tensors = _READERS[kind](_joined(data), room) if kind else ()
    return GrpsMessage(model, read_status(_joined(status)) if status else None, kind, tensors)


def check_message(body: Buffer) -> None:
    """Whether `body` is a GrpsMessage at all, whatever its tensors say: its fields, and those of its tensors and maps,
    end where they should. Of very many only the first are looked at.

    Raises:
        DecodeError: it is none.
    """
    message, left = memoryview(body), [_MOST_CHECKED]
    for outer in _some(fields(message), left):
        if outer.wire_type == LENGTH and _KINDS.get(outer.number) in (Kind.GTENSORS, Kind.GMAP):
            nested = message[outer.value : outer.end]
            for each in _some(fields(nested), left):
                if each.wire_type == LENGTH:
                    deque(_some(fields(nested[each.value : each.end]), left), maxlen=0)


_MOST_CHECKED = 100_000


def _some(found: Iterable[Field], left: list[int]) -> Iterator[Field]:
    """Those of `found` for which there is something `left`."""
    for each in found:
        if not left[0]:
            return
        left[0] -= 1
        yield each


def _joined(pieces: list[memoryview]) -> memoryview:
    return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))


def _read_tensors(message: memoryview, room: Room) -> tuple[Tensor, ...]:
    tensors: list[Tensor] = []
    for field in fields(message):
        room.spend(field.value - field.start)
        if field.number == _TENSORS:
            check_wire_type(field, LENGTH, "gtensors: tensors")
            tensors.append(read_tensor(message[field.value : field.end], len(tensors), room))
    return tuple(tensors)


def _read_bytes(element: memoryview, room: Room) -> tuple[Tensor, ...]:
    room.take(len(element), Kind.BIN_DATA.value)
    return (Tensor("", Datatype.BYTES, (1,), b"".join((_LENGTH.pack(len(element)), element))),)


def _read_text(element: memoryview, room: Room) -> tuple[Tensor, ...]:
    read_text(element, Kind.STR_DATA.value)
    (tensor,) = _read_bytes(element, room)
    return (replace(tensor, content_type=TEXT),)


def _read_ndarray(message: memoryview, room: Room) -> tuple[Tensor, ...]:
    """Its numbers exist in JSON only; here it is always empty."""
    return ()


_READERS: dict[Kind, Callable[[memoryview, Room], tuple[Tensor, ...]]] = {
    Kind.BIN_DATA: _read_bytes,
    Kind.STR_DATA: _read_text,
    Kind.GTENSORS: _read_tensors,
    Kind.NDARRAY: _read_ndarray,
    Kind.GMAP: read_maps,
}


def write_message(message: GrpsMessage) -> tuple[Buffer, ...]:
    """`message` in parts, of which tensors of FP32 and FP64, bin_data and str_data are the data themselves. Its tensors
    fit its kind (`requests.encode`, `responses.encode`).

    Raises:
        GatewayError: INVALID_ARGUMENT naming the tensor that has no form on the wire; UNIMPLEMENTED, an ndarray.
    """
    head = b"" if message.status is None else write_field(_STATUS, write_status(message.status))
    if message.model:
        head += write_text(_MODEL, message.model, "the model's name")
    if message.kind is None:
        return (head,)
    (first, *rest), size = _WRITERS[message.kind](message.tensors)
    return (b"".join((head, _KEYS[message.kind], varint(size), first)), *rest)


def _write_element(tensors: Sequence[Tensor]) -> tuple[Parts, int]:
    [tensor] = tensors
    element = memoryview(tensor.data)[_LENGTH.size :]
    return (b"", element), len(element)


def _write_maps(tensors: Sequence[Tensor]) -> tuple[Parts, int]:
    written = write_maps(tensors)
    return (written,), len(written)


def _refuse_to_write(tensors: Sequence[Tensor]) -> tuple[Parts, int]:
    raise unsupported("ndarray holds its numbers in JSON only, expected gtensors")


_WRITERS: dict[Kind, Callable[[Sequence[Tensor]], tuple[Parts, int]]] = {
    Kind.BIN_DATA: _write_element,
    Kind.STR_DATA: _write_element,
    Kind.GTENSORS: write_tensors,
    Kind.NDARRAY: _refuse_to_write,
    Kind.GMAP: _write_maps,
}
"""Each gives the parts, of which the first is small, and how many bytes they are."""
