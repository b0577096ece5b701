"""Converts canonical Requests to request packets, and response packets to Answers (upstream side)."""

from collections.abc import Iterator

from gateway.core.datatypes import GATEWAY_DATATYPE
from gateway.core.errors import DecodeError, invalid_input, unsupported
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import Parameters, Tensor
from gateway.protocols.mip.errors import decode_error
from gateway.protocols.mip.packets import HEADER, Payload, decode_payload, encode_packet, encode_payload
from gateway.protocols.mip.schema import MAX_BATCH, MAX_TENSORS, NAN, OWN_TYPE, BatchMode, PacketKind, Subtype
from gateway.protocols.mip.tensors import Style, decode_column, encode_column

_PING_OPERATIONS = frozenset({Operation.LIVE, Operation.READY, Operation.MODEL_READY})


def encode_request(request: Request, target: Target) -> Message:
    """Return the packet for `request`. Inputs keep their order and lose their names.

    Raises:
        GatewayError: UNIMPLEMENTED if MIP does not support the operation; INVALID_ARGUMENT if the request has
            parameters, its inputs are not a batch, or a TLV type cannot represent an input.
    """
    if request.operation in _PING_OPERATIONS:
        return encode_packet(PacketKind.PING, Subtype.REQUEST)
    if request.operation is not Operation.INFER:
        raise unsupported(f"operation {request.operation.value!r} is not supported by MIP")
    inputs = request.inputs
    _refuse_parameters(request.parameters, *(tensor.parameters for tensor in inputs))
    if len(inputs) > MAX_TENSORS:
        raise invalid_input(f"{len(inputs)} inputs, but MIP carries at most {MAX_TENSORS}")
    batch, is_split = _batch(inputs, target), _is_split(target)
    style = Style(request.translate.nan or NAN)
    columns = [
        encode_column(_in_packet(tensor, is_split), style, _label(tensor, at)) for at, tensor in enumerate(inputs)
    ]
    return encode_packet(PacketKind.INFERENCE, Subtype.REQUEST, encode_payload(len(inputs), 0, batch, columns))


def _in_packet(tensor: Tensor, is_split: bool) -> Tensor:
    """Return `tensor` with the number of examples as its first dimension."""
    return tensor if is_split else replace(tensor, shape=(1, *tensor.shape))


def _refuse_parameters(*parameters: Parameters) -> None:
    names = [name for each in parameters for name in each if name not in (GATEWAY_DATATYPE, OWN_TYPE)]
    if names:
        raise invalid_input(f"parameters are not supported by MIP, got {', '.join(map(repr, names))}; remove them")


def _label(tensor: Tensor, at: int) -> str:
    return f"input {tensor.name!r}" if tensor.name else f"input {at}"


def _is_split(target: Target) -> bool:
    return target.batch in ("", BatchMode.SPLIT)


def _batch(inputs: tuple[Tensor, ...], target: Target) -> int:
    """Return the number of examples in the packet."""
    if not inputs or not _is_split(target):
        return 1
    rows = {tensor.shape[0] if tensor.shape else None for tensor in inputs}
    if len(rows) > 1 or None in rows:
        shapes = ", ".join(f"{_label(tensor, at)} {list(tensor.shape)}" for at, tensor in enumerate(inputs))
        text = f"the first dimension counts the examples and must be the same in all inputs, got {shapes}"
        raise invalid_input(f"{text}; `batch: whole` on backend {target.backend!r} sends the inputs unchanged")
    [batch] = rows
    assert batch is not None
    if not 1 <= batch <= MAX_BATCH:
        raise invalid_input(f"a batch of {batch} rows, but MIP carries 1 to {MAX_BATCH}; send another number of rows")
    return batch


def decode_response(message: Message, request: Request, target: Target) -> Answer:
    """Return the Answer in one packet: True for a ping, or else a Response whose outputs have no names.

    The gateway counts the outputs itself, because kubemo's server sends n-input as n-output.

    Raises:
        DecodeError: the packet is not a valid response to the request.
        GatewayError: the error that the backend reported.
    """
    header, body = message.parts
    _, kind, subtype, _, _ = HEADER.unpack(header)
    if kind == PacketKind.ERROR:
        raise decode_error(subtype, body)
    expected = PacketKind.INFERENCE if request.operation is Operation.INFER else PacketKind.PING
    if (kind, subtype) != (expected, Subtype.RESPONSE):
        wanted = f"kind {expected.value} ({expected.name.lower()}) and subtype {Subtype.RESPONSE.value} (response)"
        raise DecodeError(f"a packet of kind {kind} and subtype {subtype}, expected {wanted}")
    if expected is PacketKind.PING:
        return True
    payload = decode_payload(body, target.limits.json_values)
    outputs = tuple(_outputs(payload, request, target))
    if not _is_split(target):
        outputs = tuple([replace(tensor, shape=tensor.shape[1:]) for tensor in outputs])
    return Response(outputs, request.model, request.version, request.id)


def _outputs(payload: Payload, request: Request, target: Target) -> Iterator[Tensor]:
    batch = _batch(request.inputs, target)
    if payload.batch != batch:
        raise DecodeError(f"the response has a batch of {payload.batch}, expected {batch} as in the request")
    count, rest = divmod(len(payload.data), batch)
    if rest:
        raise DecodeError(f"{len(payload.data)} TLVs, expected as many for each of {batch} examples")
    for at, (type_, examples) in enumerate(payload.columns(count, "output")):
        yield decode_column(type_, examples, f"output {at}", target.limits.json_values)
