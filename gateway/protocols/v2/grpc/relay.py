"""Relays inferences from a V2 gRPC client to a V2 gRPC server without decoding them (`core.protocol.Relay`).

The gateway inspects only the top-level fields of a ModelInferRequest. It reads the model's name and version, and looks
for parameters that the gateway itself acts on. Raw contents cannot contain such parameters.
"""

from functools import lru_cache

from gateway.core.errors import DecodeError
from gateway.core.messages import NO_HEADERS, Buffer, Message, call
from gateway.core.messages import reply as reply_to_client
from gateway.core.offload import LARGE
from gateway.core.operations import INFER, STREAM
from gateway.core.protobuf.wire import LENGTH, fields, read_tag
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import CLASSIFICATION, Head, Request
from gateway.core.words import has_any
from gateway.protocols.v2.extensions import SCHEDULE_POLICY, has_extension
from gateway.protocols.v2.flavors import MLSERVER, TYPED, check_version
from gateway.protocols.v2.grpc.client import LACKING, decode_response
from gateway.protocols.v2.grpc.schema import MODEL_INFER, MODEL_STREAM_INFER
from gateway.protocols.v2.grpc.streams import ENABLE_EMPTY_FINAL, ERROR_MESSAGE
from gateway.protocols.v2.grpc.tensors import MODEL, REQUEST, VERSION

_ACTED_UPON = ((b"sequence_", 2), (b"shared_memory_", 12), (b"timeout", 2))
"""Parameters that require decoding, with the position of a rare letter in each parameter.

The gateway sends all requests of a sequence to the same server, rejects shared memory, and sets a deadline from
`timeout`."""
_ACTED_UPON_IN_STREAMS = (*_ACTED_UPON, (ENABLE_EMPTY_FINAL.encode(), 0))
"""The same parameters in streams. If a client sets the last parameter, it expects exactly one final response,
regardless of the server's responses (see `streams`)."""

MOST_FIELDS = 4096
"""Maximum number of top-level fields of a message that the gateway relays unread. The limit exists because each field
takes time on the event loop."""

_OPERATIONS = {MODEL_INFER: INFER, MODEL_STREAM_INFER: STREAM}


# --- requests ---


def head(message: Message, listener: ListenerSettings) -> Head | None:
    """Return the Head of an inference, which contains the message's bytes except raw contents.

    Return None if the gateway must decode the message because it calls another method, contains a parameter that the
    gateway acts on, or is malformed."""
    operation = _OPERATIONS.get(message.pattern)
    if operation is None:
        return None
    try:
        model, version, beside_raw = _names(message.body)
    except (IndexError, UnicodeDecodeError, DecodeError):
        return None
    if has_any(beside_raw, _ACTED_UPON if operation is INFER else _ACTED_UPON_IN_STREAMS):
        return None
    # Do not keep a long copy until the response arrives.
    return Head(operation, model, version, beside_raw if len(beside_raw) <= LARGE else b"")


def _names(body: Buffer) -> tuple[str, str, bytes]:
    """Return the model, its version, and the bytes of a ModelInferRequest except raw contents. If a field occurs
    several times, the last occurrence counts, as in protobuf's own readers.

    Raises:
        IndexError, UnicodeDecodeError, DecodeError: the message is malformed.
    """
    model: Buffer = b""
    version: Buffer = b""
    beside_raw: list[Buffer] = []
    at, end, raw_tag, kept, fields_left = 0, len(body), REQUEST.raw_tag, 0, MOST_FIELDS
    while at < end:
        fields_left -= 1
        if not fields_left:
            raise DecodeError("too many fields for a message that passes unread")
        tag, size, start = body[at], body[at + 1], at + 2
        stop = start + size
        if size > 0x7F or tag & 0x87 != LENGTH:  # a long field, or a field of another wire type
            tag, start, stop = read_tag(body, at)
        if tag == MODEL:
            model = body[start:stop]
        elif tag == VERSION:
            version = body[start:stop]
        elif tag == raw_tag:
            if kept < at:
                beside_raw.append(body[kept:at])
            kept = stop
        at = stop
    if at > end:
        raise IndexError
    if kept < end:
        beside_raw.append(body[kept:])
    return str(model, "utf-8"), str(version, "utf-8"), b"".join(beside_raw)


def request(message: Message, request: Request, target: Target) -> Message | None:
    """Return the message for a server that accepts the client's message unchanged. Return None for any other server.

    Raises:
        GatewayError: NOT_FOUND if this server type cannot have the version.
    """
    is_stream = message.pattern == MODEL_STREAM_INFER
    if (request.operation is STREAM) is not is_stream or (is_stream and target.flavor == MLSERVER):
        return None  # MLServer's streams consist of messages of another type
    if request.version:
        check_version(request.version, target)
    if target.flavor == TYPED and len(_names(message.body)[2]) < len(message.body):
        return None
    missing = _missing(target.flavor, target.extensions)
    if missing:
        assert request.unread is not None
        beside_raw = request.unread.found or _names(message.body)[-1]
        if has_any(beside_raw, missing):
            return None
    return call(message.pattern, message.parts)


@lru_cache(256)
def _missing(flavor: str, extensions: frozenset[str] | None) -> tuple[tuple[bytes, int], ...]:
    """Return the names of the parameters and datatypes that the server does not support, with the position of a rare
    letter in each name."""
    names = {CLASSIFICATION: (b"classification", 11), SCHEDULE_POLICY: (b"priority", 0)}
    words = [word for name, word in names.items() if not has_extension(name, flavor, extensions)]
    return (*words, *((each.value.encode(), 0) for each in LACKING.get(flavor, ())))


# --- responses ---


def reply(reply: Message, request: Request, target: Target) -> Message:
    """Return the response for the client.

    Raises:
        DecodeError, GatewayError: the errors of `client.decode_response`.
    """
    if reply.status or (request.operation is STREAM and _is_error(reply.body)):
        decode_response(reply, request, target)
    return reply_to_client(NO_HEADERS, reply.parts)


def _is_error(body: Buffer) -> bool:
    """Return True if a ModelStreamInferResponse contains an `error_message`."""
    return any(each.number == ERROR_MESSAGE and each.value < each.end for each in fields(body))


RELAY = Relay(head, request, reply)
