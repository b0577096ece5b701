"""Converts request packets to canonical Requests, and Answers to response packets (client side)."""

from collections.abc import Iterator

from gateway.core.errors import DecodeError, Reason, invalid_output, refusal, unsupported
from gateway.core.messages import Message
from gateway.core.models import NotReady
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import Answer, Request, Response, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.mip.json_examples import STRINGS
from gateway.protocols.mip.packets import (
    COUNTS,
    HEADER,
    Column,
    Payload,
    decode_payload,
    encode_packet,
    encode_payload,
    reserved_byte,
)
from gateway.protocols.mip.schema import MAX_TENSORS, NAN, CallsAtOnce, PacketKind, Subtype, TlvType
from gateway.protocols.mip.tensors import Style, decode_column, encode_column


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """Return the canonical Request of one packet.

    A ping asks whether the gateway is ready. In an inference, the first dimension of every input is the number of
    examples in the batch. `origin` keeps only the counts of the payload, or the header of a ping.

    Like kubemo's server, the gateway ignores n-output and the reserved byte of inferences.

    Raises:
        DecodeError: the packet is not a request, or its payload is malformed.
        GatewayError: UNIMPLEMENTED if the packet kind is unknown.
    """
    header, body = message.parts
    _, kind, subtype, _, _ = HEADER.unpack(header)
    if subtype != Subtype.REQUEST:
        raise DecodeError(f"subtype {subtype} is not a request; expected {Subtype.REQUEST.value}")
    if kind == PacketKind.PING:
        return Request(Operation.READY, listener.model, origin=Message(parts=(bytes(header),)))
    if kind != PacketKind.INFERENCE:
        raise unsupported(f"kind {kind} is not supported; expected 1 (ping) or 2 (inference)")
    payload = decode_payload(body, listener.limits.json_values)
    inputs = tuple(_inputs(payload, listener))
    counts = Message(parts=(bytes(body[: COUNTS.size]),))
    return Request(Operation.INFER, listener.model, inputs=inputs, origin=counts)


def _inputs(payload: Payload, listener: ListenerSettings) -> Iterator[Tensor]:
    if not payload.batch:
        raise DecodeError("the batch is empty, expected at least one example")
    expected = payload.inputs * payload.batch
    if len(payload.data) != expected:
        counts = f"{payload.batch} examples of {payload.inputs} inputs"
        raise DecodeError(f"{len(payload.data)} TLVs, expected {expected} for {counts}")
    for at, (type_, examples) in enumerate(payload.columns(payload.inputs, "input")):
        yield decode_column(type_, examples, f"input {at}", listener.limits.json_values)


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the response to a Request that `decode_request` returned.

    Outputs use the TLV types of the inputs. The gateway sends numbers as .npy files if an input was a .npy file. It
    sends BYTES as JSON strings if an input was a JSON string and no input was TEXT.

    Raises:
        GatewayError: INTERNAL if an output does not have one row for each example, or the response has more than
            MAX_TENSORS outputs; INVALID_ARGUMENT if a TLV type cannot represent an output; UNAVAILABLE if the gateway
            is not ready.
    """
    if request.operation is Operation.READY:
        if answer is not True:
            raise refusal(Reason.NOT_READY, answer.text if isinstance(answer, NotReady) else "the gateway is not ready")
        reserved = CallsAtOnce.UNSAID if request.origin is None else reserved_byte(request.origin)
        return encode_packet(PacketKind.PING, Subtype.RESPONSE, reserved=reserved)
    assert isinstance(answer, Response)
    assert request.origin is not None
    inputs, _, batch = COUNTS.unpack(request.origin.parts[0])
    outputs = answer.outputs
    if len(outputs) > MAX_TENSORS:
        raise invalid_output(f"{len(outputs)} outputs, but MIP carries at most {MAX_TENSORS}")
    style = _style(request, translate)
    columns = [_column(output, at, batch, style) for at, output in enumerate(outputs)]
    payload = encode_payload(inputs, len(outputs), batch, columns)
    return encode_packet(PacketKind.INFERENCE, Subtype.RESPONSE, payload)


def _style(request: Request, translate: Translate) -> Style:
    content_types = {tensor.content_type for tensor in request.inputs}
    return Style(
        translate.nan or NAN,
        TlvType.NPY if "npy" in content_types else TlvType.JSON,
        TlvType.JSON if STRINGS in content_types and "text" not in content_types else TlvType.TEXT,
    )


def _column(output: Tensor, at: int, batch: int, style: Style) -> Column:
    what = f"output {output.name!r}" if output.name else f"output {at}"
    if not output.shape or output.shape[0] != batch:
        expected = f"expected a first dimension of {batch}, one row for each example"
        raise invalid_output(f"{what} has shape {list(output.shape)}, {expected}")
    return encode_column(output, style, what)
