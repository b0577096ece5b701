"""Relays Predict, Classify and Regress from a client to a TensorFlow Serving gRPC server without decoding the calls
(`core.protocol.Relay`).

The gateway reads only the ModelSpec of a request.
"""

from gateway.core.errors import DecodeError
from gateway.core.messages import NO_HEADERS, Buffer, Message, call
from gateway.core.messages import reply as reply_to_client
from gateway.core.operations import INFER
from gateway.core.protobuf.wire import LENGTH, read_tag
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import Head, Request
from gateway.protocols.tensorflow_serving.client import decode_response
from gateway.protocols.tensorflow_serving.model_spec import LATEST, read_any_spec
from gateway.protocols.tensorflow_serving.schema import CLASSIFY, PREDICT, REGRESS

_METHODS = frozenset({PREDICT, CLASSIFY, REGRESS})
_SPEC_TAG = 1 << 3 | LENGTH

_MOST_FIELDS = 1024
"""Maximum number of request fields to skip. Most of them are tensors.

Skipping a field blocks the event loop for 0.1 us. The gateway decodes requests with more fields."""


def head(message: Message, listener: ListenerSettings) -> Head | None:
    """Return the request of an inference.

    Return None if the gateway must decode the message because it calls another method, does not have exactly one
    ModelSpec with a model name, requests version 0, or is malformed."""
    if message.pattern not in _METHODS:
        return None
    try:
        spec = _spec(message.body)
        servable = None if spec is None else read_any_spec(spec)
    except (IndexError, DecodeError):
        return None
    if servable is None or not servable.model or servable.version == LATEST:
        return None
    return Head(INFER, servable.model, servable.version)


def _spec(body: Buffer) -> Buffer | None:
    """Return the ModelSpec in a request.

    Return None if the request has too many other fields, or does not contain exactly one ModelSpec. Protobuf would
    merge several ModelSpecs.

    Raises:
        IndexError, DecodeError: the message is malformed.
    """
    spec: Buffer | None = None
    at, end, fields_left = 0, len(body), _MOST_FIELDS
    while at < end:
        tag, size, start = body[at], body[at + 1], at + 2
        stop = start + size
        if size > 0x7F or tag & 0x87 != LENGTH or tag < 8:  # a long field, or a field of another wire type
            tag, start, stop = read_tag(body, at)
        fields_left -= 1
        if fields_left < 0 or (tag == _SPEC_TAG and spec is not None):
            return None
        if tag == _SPEC_TAG:
            spec = body[start:stop]
        at = stop
    if at > end:
        raise IndexError
    return spec


def request(message: Message, request: Request, target: Target) -> Message:
    """Return the message for a server."""
    return call(message.pattern, message.parts)


def reply(reply: Message, request: Request, target: Target) -> Message:
    """Return the response for the client.

    Raises:
        GatewayError: the error in the response, as in `client.decode_response`.
    """
    if reply.status:
        decode_response(reply, request, target)
    return reply_to_client(NO_HEADERS, reply.parts)


RELAY = Relay(head, request, reply)
