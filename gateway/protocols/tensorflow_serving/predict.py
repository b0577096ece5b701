"""Reads and writes PredictRequest and PredictResponse, the messages with named tensors, in one pass.

| field of      | PredictRequest | PredictResponse |
|---------------|----------------|-----------------|
| model_spec    | 1              | 2               |
| tensors (map) | 2, `inputs`    | 1, `outputs`    |
| output_filter | 3              |                 |
"""

from collections.abc import Iterable
from typing import TypeAlias

from gateway.core.errors import DecodeError, unsupported
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Buffer, Message
from gateway.core.offload import LARGE
from gateway.core.protobuf.fields import read_text, write_field
from gateway.core.protobuf.schema import not_utf8
from gateway.core.protobuf.wire import LENGTH, cut_short, fields, read_tag
from gateway.core.requests import RequestedOutput
from gateway.core.tensors import Tensor
from gateway.protocols.tensorflow_serving import tensor_proto
from gateway.protocols.tensorflow_serving.model_spec import Servable, write_spec
from gateway.protocols.tensorflow_serving.schema import CLASSIFY, MULTI_INFERENCE, REGRESS
from gateway.protocols.tensorflow_serving.tensor_proto import (
    DataField,
    TensorAllowance,
    in_content,
    in_list,
    read_tensor,
    write_entry,
)

Parts: TypeAlias = tuple[Buffer, ...]
"""A message in pieces, which avoids copying tensor data into one buffer."""


@frozen
class PredictKind:
    """The differences between the two messages with tensors.

    - `role`: The word for the message's tensors in error messages.
    - `malformed`: The beginning of error messages, before a tensor's name.
    - `tensors`, `spec`: The field numbers of the tensors and of the ModelSpec.
    - `field`: The function that writes a tensor's data.
    """

    role: str
    malformed: str
    tensors: int
    spec: int
    field: DataField


REQUEST = PredictKind("input", "tensor parsing error: ", 2, 1, in_content)
TYPED_REQUEST = replace(REQUEST, field=in_list)
RESPONSE = PredictKind("output", "output ", 1, 2, in_list)
RAW_RESPONSE = replace(RESPONSE, field=in_content)
"""Most peers write the forms REQUEST and RESPONSE. TYPED_REQUEST and RAW_RESPONSE are the same messages in the other
form."""


class PredictMessage(Message, frozen=True):
    """The `origin` of a Request or Response that arrived in a message of `kind`. The kind records whether numbers were
    in lists or in `tensor_content`. If the other peer also speaks this protocol, the gateway sends it the same field,
    because some servers and clients read only one of the two."""

    kind: PredictKind = REQUEST


TYPED = PredictMessage(kind=TYPED_REQUEST)
"""The origin of a Request whose numbers are in typed lists."""
RAW = PredictMessage(kind=RAW_RESPONSE)
"""The origin of a Response whose numbers are in `tensor_content`."""

_FILTER = 3
_REFUSED = {5: "predict_streamed_options", 7: "request_options"}
"""Fields of newer requests that change the result. `client_id` (6) is not listed, because it only identifies the
client."""

_NAME_TAG, _TENSOR_TAG = 1 << 3 | LENGTH, 2 << 3 | LENGTH
_COPIED = 2**14
"""Maximum size of a message for which copying the tensor data costs less than creating views, in bytes."""


# --- Reading ---

PredictFields: TypeAlias = tuple[Buffer | None, tuple[Tensor, ...], tuple[RequestedOutput, ...], PredictMessage | None]
"""The ModelSpec (None if it is missing), the tensors, and the outputs in `output_filter`.

The last element is TYPED or RAW, or None if the message is in the usual form or contains numbers in both forms."""


def read_predict(body: Buffer, kind: PredictKind, limit: int) -> PredictFields:
    """Return the fields of `body`.

    The data of a large message's tensors are views of `body`. `limit` is the maximum size of all tensors together, in
    bytes.

    Raises:
        DecodeError: the body is not a message of `kind`, has a malformed or duplicate tensor, or requests an output
            twice.
        GatewayError: RESOURCE_EXHAUSTED if the tensors exceed the limit; UNIMPLEMENTED if the request has options.
    """
    body = bytes(body) if len(body) <= _COPIED else memoryview(body)
    allowance = TensorAllowance(limit, len(body))
    specs: list[Buffer] = []
    tensors: dict[str, Tensor] = {}
    outputs: dict[str, RequestedOutput] = {}
    tensors_tag, spec_tag = kind.tensors << 3 | LENGTH, kind.spec << 3 | LENGTH
    at, end = 0, len(body)
    try:
        while at < end:
            tag, size, start = body[at], body[at + 1], at + 2
            stop = start + size
            if size > 0x7F or tag & 0x87 != LENGTH or tag < 8:  # a long field, or a field of another wire type
                tag, start, stop = read_tag(body, at)
            if stop > end:
                raise cut_short(body, at)
            allowance.spend(start - at if tag == tensors_tag else stop - at)
            if tag == tensors_tag:
                tensor = _read_entry(body[start:stop], kind, allowance)
                if tensor.name in tensors:
                    raise DecodeError(f"{kind.role} {tensor.name!r} occurs twice")
                tensors[tensor.name] = tensor
            elif tag == spec_tag:
                specs.append(body[start:stop])
            elif kind is REQUEST:
                _read_option(tag >> 3, body[start:stop], outputs)
            at = stop
    except IndexError as error:
        raise cut_short(body, at) from error
    # in protobuf, a message field that occurs several times is the concatenation of its occurrences
    spec = None if not specs else specs[0] if len(specs) == 1 else b"".join(specs)
    origin = None
    if kind is REQUEST:
        origin = TYPED if allowance.lists and not allowance.contents else None
    elif allowance.contents and not allowance.lists:
        origin = RAW
    return spec, tuple(tensors.values()), tuple(outputs.values()), origin


def _read_option(number: int, value: Buffer, outputs: dict[str, RequestedOutput]) -> None:
    """Read a request field other than the ModelSpec and the tensors. The function ignores fields of later versions."""
    if number in _REFUSED and len(value):
        raise unsupported(f"{_REFUSED[number]} of PredictRequest is not supported")
    if number == _FILTER:
        name = read_text(value, "output_filter")
        if name in outputs:
            raise DecodeError(f"duplicate output tensor alias: {name}")
        outputs[name] = RequestedOutput(name)


def _read_entry(entry: Buffer, kind: PredictKind, allowance: TensorAllowance) -> Tensor:
    """Return the tensor in a map entry, which consists of a name and a TensorProto."""
    name: Buffer = b""
    values: list[Buffer] = []
    at, end = 0, len(entry)
    try:
        while at < end:
            tag, size, start = entry[at], entry[at + 1], at + 2
            stop = start + size
            if size > 0x7F or tag & 0x87 != LENGTH or tag < 8:
                tag, start, stop = read_tag(entry, at)
            if stop > end:
                raise cut_short(entry, at)
            allowance.spend(start - at if tag == _TENSOR_TAG else stop - at)
            if tag == _NAME_TAG:
                name = entry[start:stop]
            elif tag == _TENSOR_TAG:
                values.append(entry[start:stop])
            at = stop
    except IndexError as error:
        raise cut_short(entry, at) from error
    text = read_text(name, f"the name of an {kind.role}")
    if not text:
        raise DecodeError(f"an {kind.role} has no name")
    value = values[0] if len(values) == 1 else b"".join(values)
    return read_tensor(value, text, f"{kind.malformed}{text if kind is REQUEST else repr(text)}", allowance)


_WITH_EXAMPLES = frozenset({CLASSIFY, REGRESS, MULTI_INFERENCE})
_FIELD_COST = 128
"""The cost of finding a field, as the number of bytes that can be parsed in the same time."""


def parsed_size(message: Message) -> int:
    """Return the number of bytes of a message that must be parsed. All bytes of examples and their results count.
    Counting stops above LARGE."""
    if message.pattern in _WITH_EXAMPLES:
        return len(message.body)
    kind, body, size = REQUEST if message.pattern else RESPONSE, memoryview(message.body), 0
    try:
        for outer in fields(body):
            size += _FIELD_COST + outer.value - outer.start
            if outer[:2] == (kind.tensors, LENGTH):
                size += _entry_size(body[outer.value : outer.end])
            else:
                size += outer.end - outer.value
            if size > LARGE:
                break
    except DecodeError:
        pass  # the decoder raises the same error at the same point
    return size


def _entry_size(entry: memoryview) -> int:
    size = 0
    for number, wire_type, start, value, end in fields(entry):
        is_tensor = (number, wire_type) == (2, LENGTH)
        size += tensor_proto.FIELD_COST
        size += tensor_proto.parsed_size(entry[value:end]) if is_tensor else end - start
        if size > LARGE:
            break
    return size


# --- Writing ---


def write_predict(
    kind: PredictKind, servable: Servable, tensors: Iterable[Tensor], outputs: Iterable[str] = ()
) -> Parts:
    """Return the message in parts.

    The tensors' data are separate parts, which are not copied. `outputs` become an `output_filter`.

    Raises:
        GatewayError: INVALID_ARGUMENT if the message cannot represent a tensor or an output (the message says which);
            NOT_FOUND if the version does not fit in 64 bits.
    """
    spec = write_field(kind.spec, write_spec(servable))
    parts: list[Buffer] = []
    written = spec if kind.spec < kind.tensors else b""
    for tensor in tensors:
        head, *data = write_entry(kind.tensors, tensor, kind.field, kind.role)
        written = b"".join((written, head))
        if data:
            parts += (written, *data)
            written = b""
    written += b"".join(_write_output(name) for name in outputs)
    written += b"" if kind.spec < kind.tensors else spec
    return (*parts, written) if written or not parts else tuple(parts)


def _write_output(name: str) -> bytes:
    try:
        return write_field(_FILTER, name.encode())
    except UnicodeEncodeError as error:
        raise not_utf8(error, f"output {name!r}") from error
