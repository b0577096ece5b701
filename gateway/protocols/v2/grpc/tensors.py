"""Tensors as V2 gRPC writes them: name, datatype and shape in one place; the data raw, in the order of the tensors
behind them all, or typed in each."""

from collections.abc import Sequence
from typing import TypeAlias

from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen
from gateway.core.types import Buffer, ParameterValue, Tensor
from gateway.protobuf.schema import Protobuf, ProtobufClass, parse
from gateway.protobuf.wire import Allowance, cut, key, varint
from gateway.protocols.v2.grpc import schema
from gateway.protocols.v2.grpc.parameters import read_parameters, write_parameters
from gateway.protocols.v2.grpc.typed_contents import read_contents
from gateway.protocols.v2.parameters import refuse_shared_memory
from gateway.protocols.v2.tensors import check_raw, read_datatype, read_shape

Parts: TypeAlias = tuple[Buffer, ...]


@frozen
class Form:
    """Where the tensors of a ModelInferRequest or a ModelInferResponse are."""

    role: str
    message: ProtobufClass
    tensor: ProtobufClass
    tensors: str
    raw: str
    raw_number: int
    raw_key: bytes


REQUEST = Form("input", schema.ModelInferRequest, schema.InferInputTensor, "inputs", "raw_input_contents", 7, key(7))
REPLY = Form("output", schema.ModelInferResponse, schema.InferOutputTensor, "outputs", "raw_output_contents", 6, key(6))

TENSORS, _CONTENTS = 5, 5
"""The numbers of `inputs` and `outputs`, and of a tensor's `contents`."""

_SMALL = 2**17
"""Bytes. Up to here upb reads the whole in 3 us, and its copies are nothing; cutting costs 14."""


@frozen
class Inference:
    """An inference either way: its message, in which tensors and raw contents may be absent; each tensor's message with
    its typed contents (an InferTensorContents, empty if there is none); the raw contents."""

    message: Protobuf
    tensors: Sequence[tuple[Protobuf, Buffer]]
    raw: Sequence[Buffer]


def read_inference(body: Buffer, form: Form) -> Inference:
    """The parts of `body`. Typed contents, and tensor data of a large message, are left where they lie.

    Raises:
        DecodeError: not a message of `form`.
    """
    if len(body) <= _SMALL:
        message = parse(form.message, body)
        tensors = getattr(message, form.tensors)
        if not any(map(_is_typed, tensors)):
            return Inference(message, [(each, b"") for each in tensors], getattr(message, form.raw))
    return _cut_inference(body, form)


def _is_typed(tensor: Protobuf) -> bool:
    # MLServer sets an empty `contents` beside the raw ones of its replies
    return bool(tensor.HasField("contents") and tensor.contents.ByteSize())


def _cut_inference(body: Buffer, form: Form) -> Inference:
    allowance = Allowance()
    rest, taken = cut(memoryview(body), (TENSORS, form.raw_number), allowance)
    return Inference(
        parse(form.message, rest),
        [_cut_tensor(view, form, allowance) for number, view in taken if number == TENSORS],
        [view for number, view in taken if number == form.raw_number],
    )


def _cut_tensor(tensor: memoryview, form: Form, allowance: Allowance) -> tuple[Protobuf, Buffer]:
    rest, taken = cut(tensor, (_CONTENTS,), allowance)
    # a message that comes in pieces is their concatenation
    contents = taken[0][1] if len(taken) == 1 else b"".join(view for _, view in taken)
    return parse(form.tensor, rest), contents


def read_tensors(inference: Inference, form: Form, limit: int) -> tuple[Tensor, ...]:
    """The tensors, each once. `limit` is in bytes of one tensor.

    Raises:
        DecodeError: anything that the specification does not allow.
        GatewayError: RESOURCE_EXHAUSTED, beyond the limit.
    """
    tensors: dict[str, Tensor] = {}
    for position, (entry, contents) in enumerate(inference.tensors):
        name = entry.name
        if not name or name in tensors:
            raise DecodeError(f"{form.role} {position} {f'is a second {name!r}' if name else 'has no name'}")
        what = f"{form.role} {name!r}"
        parameters = _read_parameters(entry.parameters, form, what) if entry.parameters else {}
        datatype = read_datatype(entry.datatype, what)
        shape = read_shape(list(entry.shape), datatype, what)
        if inference.raw:
            data = _raw(inference, position, form, what)
            check_raw(data, datatype, shape, what)
        else:
            data = read_contents(contents, datatype, shape, limit, what)
        tensors[name] = Tensor(name, datatype, shape, data, parameters=parameters)
    if len(inference.raw) > len(tensors):
        raise DecodeError(f"{len(inference.raw)} {form.raw} for {len(tensors)} {form.role}s")
    return tuple(tensors.values())


def _read_parameters(given: Protobuf, form: Form, what: str) -> dict[str, ParameterValue]:
    parameters = read_parameters(given, what, reply=form is REPLY)
    if form is REQUEST:
        refuse_shared_memory(parameters, what)
    # KServe puts it on the outputs of its gRPC replies, too; it means something in REST only
    parameters.pop("binary_data_size", None)
    return parameters


def _raw(inference: Inference, position: int, form: Form, what: str) -> Buffer:
    if len(inference.tensors[position][1]):
        raise DecodeError(f"{what} has contents beside {form.raw}; a message holds one form or the other")
    if position >= len(inference.raw):
        raise DecodeError(f"{what} has no raw contents: {len(inference.raw)} {form.raw} for {len(inference.tensors)}")
    return inference.raw[position]


def write_inference(head: Protobuf, form: Form, tensors: Sequence[Tensor], flavor: str = "") -> Parts:
    """The message of `head` and `tensors`, whose data stay buffers of their own: raw, one entry a tensor, in order.

    Raises:
        GatewayError: INVALID_ARGUMENT naming what has no form on the wire.
    """
    entries = getattr(head, form.tensors)
    for tensor in tensors:
        entry = entries.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if tensor.parameters:
            write_parameters(entry.parameters, tensor.parameters, flavor, f"{form.role} {tensor.name!r}")
    written: bytes = head.SerializeToString()
    parts: list[Buffer] = []
    for tensor in tensors:
        size = len(tensor.data)
        written += form.raw_key + varint(size)
        if size:
            parts += (written, tensor.data)
            written = b""
    return (*parts, written) if written else tuple(parts)
