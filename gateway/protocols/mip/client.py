"""Facing servers: what they are asked, and what they answered."""

from collections.abc import Iterator

from gateway.core.datatypes import GATEWAY_DATATYPE
from gateway.core.errors import DecodeError, invalid_input, unsupported
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.types import Answer, Message, Parameters, Request, Response, Tensor
from gateway.protocols.mip import payload, tensors
from gateway.protocols.mip.errors import decode_error
from gateway.protocols.mip.packets import HEADER, packet
from gateway.protocols.mip.schema import MOST_ROWS, MOST_TENSORS, NAN, Batch, Kind, Subtype

_PINGS = frozenset({Operation.LIVE, Operation.READY, Operation.MODEL_READY})


def encode_request(request: Request, target: Target) -> Message:
    """The packet that asks. Inputs travel in their order, without names.

    Raises:
        GatewayError: UNIMPLEMENTED, an operation that MIP has no word for; INVALID_ARGUMENT, tensors that do not make a
            batch, or have no form on the wire.
    """
    if request.operation in _PINGS:
        return packet(Kind.PING, Subtype.REQUEST)
    if request.operation is not Operation.INFER:
        raise unsupported(f"MIP has no word for {request.operation.value}")
    inputs = request.inputs
    _refuse_parameters(request.parameters, *(tensor.parameters for tensor in inputs))
    if len(inputs) > MOST_TENSORS:
        raise invalid_input(f"{len(inputs)} inputs, but MIP carries at most {MOST_TENSORS}")
    batch, is_split = _batch(inputs, target), _is_split(target)
    nan = request.translate.nan or NAN
    found = [
        tensors.split(tensor, batch, tensor.shape[is_split:], nan, _label(tensor, at))
        for at, tensor in enumerate(inputs)
    ]
    return packet(Kind.INFERENCE, Subtype.REQUEST, payload.write(len(inputs), 0, batch, found))


def _refuse_parameters(*given: Parameters) -> None:
    names = [name for parameters in given for name in parameters if name != GATEWAY_DATATYPE]
    if names:
        raise invalid_input(f"MIP carries no parameters, got {', '.join(map(repr, names))}")


def decode_response(message: Message, request: Request, target: Target) -> Answer:
    """The server's answer to `request`: True to a ping, else a Response whose outputs have no names.

    How many outputs there are is counted: the real server repeats n-input as n-output.

    Raises:
        DecodeError: the reply is no answer to the request.
        GatewayError: the error that it tells.
    """
    header, body = message.parts
    _, kind, subtype, _, _ = HEADER.unpack(header)
    if kind == Kind.ERROR:
        raise decode_error(subtype, body)
    wanted = Kind.INFERENCE if request.operation is Operation.INFER else Kind.PING
    if (kind, subtype) != (wanted, Subtype.RESPONSE):
        raise DecodeError(f"a packet of kind {kind} and subtype {subtype}, expected a {wanted.name.lower()} response")
    if wanted is Kind.PING:
        return True
    return Response(tuple(_outputs(body, request, target)), request.model, request.version, request.id)


def _label(tensor: Tensor, at: int) -> str:
    return f"input {tensor.name!r}" if tensor.name else f"input {at}"


def _is_split(target: Target) -> bool:
    return target.batch in ("", Batch.SPLIT)


def _batch(inputs: tuple[Tensor, ...], target: Target) -> int:
    """How many examples the inputs are."""
    if not inputs or not _is_split(target):
        return 1
    rows = {tensor.shape[0] if tensor.shape else None for tensor in inputs}
    if len(rows) > 1 or None in rows:
        shapes = ", ".join(f"{_label(tensor, at)} {list(tensor.shape)}" for at, tensor in enumerate(inputs))
        text = f"the first dimension of all inputs counts the examples, but they are {shapes}"
        raise invalid_input(f"{text}; `batch: whole` on backend {target.backend!r} sends them as they are")
    [batch] = rows
    assert batch is not None
    if not 1 <= batch <= MOST_ROWS:
        raise invalid_input(f"a batch of {batch} rows, but MIP carries 1 to {MOST_ROWS}")
    return batch


def _outputs(body: "bytes | bytearray | memoryview", request: Request, target: Target) -> Iterator[Tensor]:
    found = payload.read(body, target.limits.json_values)
    batch = _batch(request.inputs, target)
    if found.batch != batch:
        raise DecodeError(f"a batch of {found.batch} for the {batch} that was sent")
    count, rest = divmod(len(found.contents), batch)
    if rest:
        raise DecodeError(f"{len(found.contents)} TLVs, expected as many for each of {batch} examples")
    for at, (form, contents) in enumerate(found.columns(count, "output")):
        tensor = tensors.stack(form, contents, f"output {at}", target.limits.json_values)
        yield tensor if _is_split(target) else replace(tensor, shape=tensor.shape[1:])
