"""Calls of Predict, Classify and Regress that pass unread between two sides of TensorFlow Serving's gRPC
(`core.protocol.Relay`).

Of a request only the ModelSpec is read.
"""

from gateway.core.errors import DecodeError
from gateway.core.operations import INFER
from gateway.core.protobuf.wire import LENGTH, read_tag
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.types import NO_HEADERS, Buffer, Head, Message, Request, call
from gateway.core.types import reply as reply_to_client
from gateway.protocols.tensorflow_serving.client import decode_response
from gateway.protocols.tensorflow_serving.model_spec import LATEST, read_any_spec
from gateway.protocols.tensorflow_serving.schema import CLASSIFY, PREDICT, REGRESS

_METHODS = frozenset({PREDICT, CLASSIFY, REGRESS})
_SPEC_TAG = 1 << 3 | LENGTH

_MOST_FIELDS = 1024
"""Fields of a request, mostly tensors, that are passed over: each takes 0.1 us, in which nobody else is served. A
request with more of them is read."""


def head(message: Message, listener: ListenerSettings) -> Head | None:
    """The request for an inference. None if the message must be read: one of another method, one whose model is not
    named in one place, one for version 0, and a malformed one."""
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
    """The ModelSpec in a request; None if there is not exactly one, since protobuf joins them, or too much beside it.

    Raises:
        IndexError, DecodeError: the message is malformed.
    """
    spec: Buffer | None = None
    at, end, fields_left = 0, len(body), _MOST_FIELDS
    while at < end:
        tag, size, start = body[at], body[at + 1], at + 2
        stop = start + size
        if size > 0x7F or tag & 0x87 != LENGTH or tag < 8:  # a long field, or one of another wire type
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
    """The message to a server."""
    return call(message.pattern, message.parts)


def reply(reply: Message, request: Request, target: Target) -> Message:
    """The reply to the client.

    Raises:
        GatewayError: the error in the reply, as `client.decode_response`.
    """
    if reply.status:
        decode_response(reply, request, target)
    return reply_to_client(NO_HEADERS, reply.parts)


RELAY = Relay(head, request, reply)
