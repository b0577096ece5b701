"""Relays inferences from a MIP client to a MIP server without decoding them (`core.protocol.Relay`).

The listener sets the model. The gateway checks only the positions of the TLVs in a payload. This check is necessary
because kubemo's server does not check TLV sizes: it would wait for bytes that the packet does not contain, and
meanwhile serve no other client.
"""

from gateway.core.messages import Message
from gateway.core.operations import INFER
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import Head, Request
from gateway.protocols.mip.client import decode_response
from gateway.protocols.mip.packets import COUNTS, HEADER, count_tlvs, encode_packet
from gateway.protocols.mip.schema import PacketKind, Subtype

_MOST_TLVS = 4096
"""Maximum number of TLVs in a payload that is relayed without decoding.

Finding this number of TLVs takes less than a millisecond."""


def head(message: Message, listener: ListenerSettings) -> Head | None:
    """Return the request of an inference.

    Return None if the gateway must decode the packet because it is a ping, has an empty batch, or has a payload whose
    TLVs do not match its counts."""
    header, body = message.parts
    _, kind, subtype, _, _ = HEADER.unpack(header)
    if kind != PacketKind.INFERENCE or subtype != Subtype.REQUEST or len(body) < COUNTS.size:
        return None
    inputs, _, batch = COUNTS.unpack_from(body)
    expected = inputs * batch
    if not batch or expected > _MOST_TLVS or count_tlvs(body, expected) != expected:
        return None
    return Head(INFER, listener.model)


def request(message: Message, request: Request, target: Target) -> Message:
    """Return the packet for a server, with the client's payload."""
    return encode_packet(PacketKind.INFERENCE, Subtype.REQUEST, message.parts[1:])


def reply(reply: Message, request: Request, target: Target) -> Message | None:
    """Return the packet for the client.

    Return None if the gateway must decode the packet because its batch size differs from the batch size of the request,
    or because its TLVs do not match its counts. kubemo's server sends wrong counts if a model's numbers of inputs and
    outputs differ.

    Raises:
        DecodeError, GatewayError: the errors of `client.decode_response`.
    """
    header, body = reply.parts
    _, kind, subtype, _, _ = HEADER.unpack(header)
    if (kind, subtype) != (PacketKind.INFERENCE, Subtype.RESPONSE):
        decode_response(reply, request, target)
    if len(body) < COUNTS.size:
        return None
    assert request.unread is not None
    _, _, asked = COUNTS.unpack_from(request.unread.message.parts[1])
    _, outputs, batch = COUNTS.unpack_from(body)
    expected = outputs * batch
    if batch != asked or expected > _MOST_TLVS or count_tlvs(body, expected) != expected:
        return None
    return encode_packet(PacketKind.INFERENCE, Subtype.RESPONSE, (body,))


RELAY = Relay(head, request, reply)
