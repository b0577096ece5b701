"""Facing clients: what they ask, and what they are answered."""

from collections.abc import Iterator

from gateway.core.errors import DecodeError, GatewayError, Reason, invalid_output, refusal, unsupported
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.types import Answer, Message, NotReady, Request, Response, Tensor, Translate
from gateway.protocols.mip import payload, tensors
from gateway.protocols.mip.json_examples import STRINGS
from gateway.protocols.mip.packets import HEADER, packet
from gateway.protocols.mip.payload import COUNTS, Column
from gateway.protocols.mip.schema import MOST_TENSORS, NAN, Form, Kind, Subtype


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """The question of one packet: a ping asks whether the gateway is ready. The first dimension of every tensor counts
    the examples of the batch. `origin` keeps the counts alone.

    The reserved byte and n-output are not looked at, as the real server does not.

    Raises:
        DecodeError: it is not a request, or the payload is not what its counts say.
        GatewayError: UNIMPLEMENTED, an unknown kind.
    """
    header, body = message.parts
    _, kind, subtype, _, _ = HEADER.unpack(header)
    if subtype != Subtype.REQUEST:
        raise DecodeError(f"subtype {subtype} is not a request, which has {Subtype.REQUEST.value}")
    if kind == Kind.PING:
        return Request(Operation.READY, listener.model)
    if kind != Kind.INFERENCE:
        raise unsupported(f"kind {kind} is not supported; expected 1 (ping) or 2 (inference)")
    inputs = tuple(_inputs(payload.read(body, listener.limits.json_values), listener))
    counts = Message(parts=(bytes(body[: COUNTS.size]),))
    return Request(Operation.INFER, listener.model, inputs=inputs, origin=counts)


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """The reply to a Request of decode_request. Numbers are .npy files if a number of the request was; texts are
    strings in JSON if those of the request were.

    Raises:
        GatewayError: INTERNAL, the outputs have no row for each example, or are too many; INVALID_ARGUMENT, a tensor
            that has no form on the wire; UNAVAILABLE, a ping before the gateway is ready.
    """
    if request.operation is Operation.READY:
        if answer is not True:
            raise refusal(Reason.NOT_READY, answer.text if isinstance(answer, NotReady) else "the gateway is not ready")
        return packet(Kind.PING, Subtype.RESPONSE)
    assert isinstance(answer, Response)
    assert request.origin is not None
    inputs, _, batch = COUNTS.unpack(request.origin.parts[0])
    outputs = answer.outputs
    if len(outputs) > MOST_TENSORS:
        raise invalid_output(f"{len(outputs)} outputs, but MIP carries at most {MOST_TENSORS}")
    given = {tensor.content_type for tensor in request.inputs}
    preferred = Form.NPY if "npy" in given else Form.JSON
    text = Form.JSON if STRINGS in given and "text" not in given else Form.TEXT
    found = [_column(tensor, at, batch, translate.nan or NAN, preferred, text) for at, tensor in enumerate(outputs)]
    return packet(Kind.INFERENCE, Subtype.RESPONSE, payload.write(inputs, len(outputs), batch, found))


def _inputs(found: payload.Examples, listener: ListenerSettings) -> Iterator[Tensor]:
    if not found.batch:
        raise DecodeError("the batch is empty, expected at least one example")
    expected = found.inputs * found.batch
    if len(found.contents) != expected:
        told = f"{found.batch} examples of {found.inputs} inputs"
        raise DecodeError(f"{len(found.contents)} TLVs, expected {expected} for {told}")
    for at, (form, contents) in enumerate(found.columns(found.inputs, "input")):
        yield tensors.stack(form, contents, f"input {at}", listener.limits.json_values)


def _column(tensor: Tensor, at: int, batch: int, nan: str, preferred: Form, text: Form) -> Column:
    what = f"output {tensor.name!r}" if tensor.name else f"output {at}"
    if not tensor.shape or tensor.shape[0] != batch:
        raise _rows(what, tensor, batch)
    return tensors.split(tensor, batch, tensor.shape[1:], nan, what, preferred, text)


def _rows(what: str, tensor: Tensor, batch: int) -> GatewayError:
    text = f"{what} has shape {list(tensor.shape)}, expected a first dimension of {batch}, one row for each example"
    return invalid_output(text)
