"""Inferences that pass unread between two sides of MIP (`core.protocol.Relay`).

The listener names the model. Of a payload only the places of its TLVs are looked at, for kubemo's server takes their
sizes as they are: it waits for bytes that a packet does not have, and serves nobody else meanwhile.
"""

from gateway.core.operations import INFER
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.types import Head, Message, Request
from gateway.protocols.mip.client import decode_response
from gateway.protocols.mip.packets import HEADER, encode_packet
from gateway.protocols.mip.payload import COUNTS, count_tlvs
from gateway.protocols.mip.schema import PacketKind, Subtype

_MOST_TLVS = 4096
"""TLVs of a payload that passes unread; to find so many takes less than a millisecond."""


def head(message: Message, listener: ListenerSettings) -> Head | None:
    """The request of an inference. None if the packet must be read: a ping, an empty batch, and a payload whose TLVs
    are not those that its counts tell."""
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
    """The packet to a server, with the client's payload."""
    return encode_packet(PacketKind.INFERENCE, Subtype.REQUEST, message.parts[1:])


def reply(reply: Message, request: Request, target: Target) -> Message | None:
    """The packet to the client. None if it must be read: one for another batch, and one whose TLVs are not those that
    its counts tell, as kubemo's server sends it for a model with another number of outputs than inputs.

    Raises:
        DecodeError, GatewayError: an error, or not a response, as `client.decode_response`.
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
