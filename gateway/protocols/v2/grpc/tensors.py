"""Tensors in V2 gRPC: a ModelInferRequest's `inputs` and a ModelInferResponse's `outputs`.

Each entry has a tensor's name, datatype and shape. The data of all tensors are either raw, one bytes field each behind
the entries and in their order (`raw_input_contents`, `raw_output_contents`), or typed, in each entry's `contents`.

Small messages are parsed whole. From large ones the fields with tensor data are cut out as views, so that the data are
not copied, and only the rest is parsed.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TypeAlias

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen
from gateway.core.types import Buffer, Message, Parameters, ParameterValue, RequestedOutput, Shape, Tensor
from gateway.protobuf.schema import Protobuf, ProtobufClass, not_utf8, parse
from gateway.protobuf.wire import LENGTH, Allowance, cut, fields, key, varint
from gateway.protocols.v2.grpc import schema
from gateway.protocols.v2.grpc.parameters import read_parameters, write_parameters
from gateway.protocols.v2.grpc.typed_contents import read_contents
from gateway.protocols.v2.parameters import refuse_shared_memory
from gateway.protocols.v2.tensors import check_raw, read_datatype, read_shape

Parts: TypeAlias = tuple[Buffer, ...]
"""A message in pieces, so that tensor data need not be copied into one buffer."""


@frozen
class MessageKind:
    """The fields of the two messages with tensors, ModelInferRequest and ModelInferResponse, that differ."""

    what: str
    """The message in the text of errors."""
    role: str
    """A tensor of it in the text of errors."""
    message: ProtobufClass
    tensor: ProtobufClass
    tensors: str
    """The name of the repeated field of tensors."""
    raw: str
    """The name, number and key (number and wire type) of the repeated field of raw contents."""
    raw_number: int
    raw_key: bytes


REQUEST = MessageKind(
    "the request",
    "input",
    schema.ModelInferRequest,
    schema.InferInputTensor,
    "inputs",
    "raw_input_contents",
    7,
    key(7),
)
RESPONSE = MessageKind(
    "the response",
    "output",
    schema.ModelInferResponse,
    schema.InferOutputTensor,
    "outputs",
    "raw_output_contents",
    6,
    key(6),
)
_KINDS = {kind.role: kind for kind in (REQUEST, RESPONSE)}

TENSORS, _CONTENTS = 5, 5
"""The field numbers of `inputs` and `outputs`, and of a tensor's `contents`."""

_SMALL = 2**17
"""Bytes up to which a message is parsed whole: upb takes 3 us for that, its copies included; cutting takes 14."""


@frozen
class InferenceFields:
    """The fields of a ModelInferRequest or ModelInferResponse that can be large, and the rest of it."""

    message: Protobuf
    """The message; its tensors and raw contents may be missing."""
    tensors: Sequence[tuple[Protobuf, Buffer]]
    """Each tensor's message and its typed contents: an InferTensorContents, empty if there are none."""
    raw: Sequence[Buffer]


def read_inference(body: Buffer, kind: MessageKind) -> InferenceFields:
    """The fields of `body`. The typed contents, and all tensor data of a large message, are views on it.

    Raises:
        DecodeError: not a message of `kind`.
    """
    if len(body) <= _SMALL:
        message = parse(kind.message, body)
        # Slices are lists. Iterating over a repeated field itself ends with an exception inside protobuf.
        tensors = getattr(message, kind.tensors)[:]
        if not any(map(_is_typed, tensors)):
            return InferenceFields(message, [(each, b"") for each in tensors], getattr(message, kind.raw)[:])
    return _cut_inference(body, kind)


def _is_typed(tensor: Protobuf) -> bool:
    # MLServer sets an empty `contents` in its replies, whose data are raw
    return bool(tensor.HasField("contents") and tensor.contents.ByteSize())


def _cut_inference(body: Buffer, kind: MessageKind) -> InferenceFields:
    allowance = Allowance()
    rest, taken = cut(memoryview(body), (TENSORS, kind.raw_number), allowance)
    return InferenceFields(
        parse(kind.message, rest),
        [_cut_tensor(view, kind, allowance) for number, view in taken if number == TENSORS],
        [view for number, view in taken if number == kind.raw_number],
    )


def _cut_tensor(tensor: memoryview, kind: MessageKind, allowance: Allowance) -> tuple[Protobuf, Buffer]:
    rest, taken = cut(tensor, (_CONTENTS,), allowance)
    # protobuf: a message field that occurs several times is the concatenation of its occurrences
    contents = taken[0][1] if len(taken) == 1 else b"".join(view for _, view in taken)
    return parse(kind.tensor, rest), contents


def read_tensors(inference: InferenceFields, kind: MessageKind, limit: int) -> tuple[Tensor, ...]:
    """The tensors, whose names must differ. `limit` is in bytes of one tensor.

    Raises:
        DecodeError: anything that the specification does not allow.
        GatewayError: RESOURCE_EXHAUSTED, beyond the limit.
    """
    tensors: dict[str, Tensor] = {}
    for position, (entry, contents) in enumerate(inference.tensors):
        name = entry.name
        if not name:
            raise DecodeError(f"{kind.role} {position} has no name")
        if name in tensors:
            raise DecodeError(f"{kind.role} {name!r} is given twice")
        what = f"{kind.role} {name!r}"
        parameters = _read_parameters(entry.parameters, kind, what) if entry.parameters else {}
        datatype = read_datatype(entry.datatype, what)
        shape = read_shape(entry.shape[:], datatype, what)
        if inference.raw:
            data = _raw_contents(inference, position, kind, what)
            check_raw(data, datatype, shape, what)
        else:
            data = read_contents(contents, datatype, shape, limit, what)
        tensors[name] = Tensor(name, datatype, shape, data, "", parameters)
    if len(inference.raw) > len(tensors):
        raise DecodeError(f"{len(inference.raw)} {kind.raw} for {len(tensors)} {kind.role}s")
    return tuple(tensors.values())


def _read_parameters(given: Protobuf, kind: MessageKind, what: str) -> dict[str, ParameterValue]:
    parameters = read_parameters(given, what, reply=kind is RESPONSE)
    if kind is REQUEST:
        refuse_shared_memory(parameters, what)
    # KServe puts it on the outputs of its gRPC replies, too, though it has a meaning in REST only
    parameters.pop("binary_data_size", None)
    return parameters


def _raw_contents(inference: InferenceFields, position: int, kind: MessageKind, what: str) -> Buffer:
    if len(inference.tensors[position][1]):
        raise DecodeError(f"{what} has contents beside {kind.raw}; a message must have only one of them")
    if position >= len(inference.raw):
        raise DecodeError(
            f"{what} has no raw contents: {len(inference.raw)} {kind.raw} for {len(inference.tensors)} tensors"
        )
    return inference.raw[position]


@frozen
class InferenceHead:
    """The fields of an inference beside its tensors. `outputs` are those that a request asks for."""

    model: str
    version: str
    id: str | None
    parameters: Parameters
    outputs: tuple[RequestedOutput, ...] = ()


def write_inference(head: InferenceHead, kind: MessageKind, tensors: Sequence[Tensor], *, newer: bool = True) -> Parts:
    """The message of `head` and `tensors`, whose data are raw: parts of their own that are not copied. `newer`: the
    reader has the newer types of parameters.

    Raises:
        GatewayError: INVALID_ARGUMENT naming a string that is not valid Unicode, or a parameter that the wire or the
            reader cannot carry.
    """
    try:
        written = _write_head(head, kind, tensors, newer)
    except UnicodeEncodeError as error:
        raise not_utf8(error, kind.what) from error
    parts: list[Buffer] = []
    for tensor in tensors:
        size = len(tensor.data)
        written += kind.raw_key + varint(size)
        if size:
            parts += (written, tensor.data)
            written = b""
    return (*parts, written) if written else tuple(parts)


def write_plain(kind: MessageKind, model: str, version: str, tensors: Sequence[Tensor]) -> Parts | None:
    """The message of one tensor without id, parameters and requested outputs, as `write_inference` writes it but in
    fewer steps; None if it is not as plain as that, or its names are long."""
    if len(tensors) != 1 or tensors[0].parameters:
        return None
    (tensor,) = tensors
    size = len(tensor.data)
    if not size or len(model) + len(version) + len(tensor.name) > _REMEMBERED:
        return None
    return _recalled_start(kind.role, model, version, tensor.name, tensor.datatype, tensor.shape, size), tensor.data


@lru_cache(256)
def _recalled_start(
    role: str, model: str, version: str, name: str, datatype: Datatype, shape: Shape, size: int
) -> bytes:
    kind = _KINDS[role]
    try:
        before, after = _plain_head(role, model, version, (), ((name, datatype, shape),))
    except UnicodeEncodeError as error:
        raise not_utf8(error, kind.what) from error
    return before + after + kind.raw_key + varint(size)


def _write_head(head: InferenceHead, kind: MessageKind, tensors: Sequence[Tensor], newer: bool) -> bytes:
    """All fields but the raw contents."""
    if head.parameters or any(map(_parameters_of, (*head.outputs, *tensors))):
        return _head_with_parameters(head, kind, tensors, newer)
    model, version, outputs = head.model, head.version, tuple([each.name for each in head.outputs])
    specs = tuple([(each.name, each.datatype, each.shape) for each in tensors])
    length = len(model) + len(version) + sum(map(len, outputs)) + sum([len(name) for name, _, _ in specs])
    is_short = length <= _REMEMBERED and len(specs) + len(outputs) <= _FEW
    write = _recalled_head if is_short else _plain_head
    before, after = write(kind.role, model, version, outputs, specs)
    if not head.id:
        return before + after
    text = head.id.encode()
    return b"".join((before, _ID_KEY, varint(len(text)), text, after))


_parameters_of = attrgetter("parameters")

_ID_KEY = key(3)
_REMEMBERED = 512
"""The largest number of characters in names that are remembered with their message."""
_FEW = 16
"""The largest number of tensors and requested outputs of such a message."""


def _plain_head(
    role: str, model: str, version: str, outputs: tuple[str, ...], specs: tuple[tuple[str, Datatype, Shape], ...]
) -> tuple[bytes, bytes]:
    """The fields before and after `id` of a message without parameters."""
    kind = _KINDS[role]
    before, after = kind.message(model_name=model, model_version=version), kind.message()
    entries = getattr(after, kind.tensors)
    for name, datatype, shape in specs:
        entries.add(name=name, datatype=datatype, shape=shape)
    for name in outputs:
        after.outputs.add(name=name)
    return before.SerializeToString(), after.SerializeToString()


# Clients send the same names, datatypes and shapes again and again; upb takes 5 us to write them.
_recalled_head = lru_cache(256)(_plain_head)


def _head_with_parameters(head: InferenceHead, kind: MessageKind, tensors: Sequence[Tensor], newer: bool) -> bytes:
    message = kind.message(model_name=head.model, model_version=head.version, id=head.id)
    write_parameters(message.parameters, head.parameters, kind.what, newer=newer)
    for output in head.outputs:
        entry = message.outputs.add(name=output.name)
        write_parameters(entry.parameters, output.parameters, f"output {output.name!r}", newer=newer)
    entries = getattr(message, kind.tensors)
    for tensor in tensors:
        entry = entries.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if tensor.parameters:
            write_parameters(entry.parameters, tensor.parameters, f"{kind.role} {tensor.name!r}", newer=newer)
    written: bytes = message.SerializeToString()
    return written


_FIELD_COST = 256
"""Bytes that take as long to decode as one field takes to skip."""
_MAX_COUNTED = 2**20


def size_beside_raw(message: Message) -> int:
    """The bytes of an inference that decoding looks at: all but the raw contents of numbers. Counts up to 1 MiB."""
    body = memoryview(message.body)
    raw = REQUEST.raw_number if message.pattern else RESPONSE.raw_number
    size = 0
    try:
        for number, wire_type, start, value, end in fields(message.body):
            is_raw = number == raw and wire_type == LENGTH
            if not is_raw and end - start <= _MAX_COUNTED and b"BYTES" in bytes(body[start:end]):
                return len(body)  # the elements of BYTES are looked at one by one
            size += _FIELD_COST + (value if is_raw else end) - start
            if size > _MAX_COUNTED:
                break
    except DecodeError:
        pass  # the decoder raises it again, as soon
    return size
