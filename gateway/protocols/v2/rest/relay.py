"""Relays inferences from a V2 REST client to a V2 REST server without decoding them (`core.protocol.Relay`).

The path contains the model's name, so the router does not need the body. The gateway decodes a body if it contains a
parameter that the gateway itself acts on, or that the server would ignore.
"""

import re
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from gateway.core.messages import JSON_HEADERS, Buffer, Message, post
from gateway.core.messages import reply as reply_to_client
from gateway.core.offload import LARGE
from gateway.core.operations import INFER, STREAM, Operation
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import CLASSIFICATION, Head, Request
from gateway.core.server_sent_events import HEADERS as EVENT_HEADERS
from gateway.core.words import has_any, has_byte, has_word
from gateway.protocols.v2.extensions import SCHEDULE_POLICY, has_extension
from gateway.protocols.v2.flavors import BINARY, KSERVE, MLSERVER, OPENVINO, PLAIN, TRITON
from gateway.protocols.v2.rest.binary import HEADER_LENGTH_FIELD, binary_headers, header_length
from gateway.protocols.v2.rest.client import decode_response
from gateway.protocols.v2.rest.paths import backend_path
from gateway.protocols.v2.rest.server import PATTERNS, is_of_infer

_Words: TypeAlias = tuple[tuple[bytes, int], ...]

_ACTED_UPON: _Words = (
    (b"sequence_", 2),
    (b"shared_memory_", 12),
    (b'"timeout"', 3),
    (b"triton_enable_empty_final_response", 14),
)
"""Parameters that require decoding, with the position of a rare letter in each parameter. The gateway sends all
requests of a sequence to the same server, rejects shared memory, and sets a deadline from `timeout`. Triton rejects the
last parameter over REST."""
_PARAMETERS: _Words = ((b"parameters", 4), (b"\\u00", 0))
"""The member that contains parameters. An escape could hide its name."""
_ESCAPE = re.compile(rb"\\u00[567]")
"""Escapes that can represent a letter of a parameter's name."""

_INFER, _INFER_STREAM = "/infer", "/infer_stream"


class _Call(NamedTuple):
    """A path that runs a model: the end of the path, the operation, and whether it is a `generate` path."""

    suffix: str
    operation: Operation
    generates: bool


_CALLS = {
    pattern: _Call(suffix, STREAM if suffix.endswith("_stream") else INFER, suffix not in (_INFER, _INFER_STREAM))
    for pattern in PATTERNS
    if (suffix := pattern[pattern.rfind("/") :]) in (_INFER, _INFER_STREAM, "/generate", "/generate_stream")
}


# --- requests ---


def head(message: Message, listener: ListenerSettings) -> Head | None:
    """Return the Head of a call, read from its path. The Head's `found` contains the JSON of the body, and whether the
    JSON can contain parameters.

    Return None if the gateway must decode the body.

    Raises:
        DecodeError: Inference-Header-Content-Length is not a number, is 0, or exceeds the body.
    """
    call = _CALLS.get(message.pattern)
    body = message.body
    if call is None or not len(body):
        return None
    length = message.headers.first.get(HEADER_LENGTH_FIELD)
    text = body if length is None else _json_of(body, length)
    # In a body of `generate`, parameters are also members next to the inputs.
    has_parameters = call.generates or has_any(text, _PARAMETERS)
    if has_parameters and _may_have(_ACTED_UPON, text):
        return None
    captures = message.captures
    schemaless = call.generates and not is_of_infer(message)
    found = (text, has_parameters)
    return Head(call.operation, captures["model"], captures.get("version", ""), found, None, None, schemaless)


def _json_of(body: Buffer, length: bytes) -> Buffer:
    """Return the JSON before binary tensors. The function does not copy long JSON, because it stays in memory until the
    response arrives. Raise the errors of `head`."""
    text = memoryview(body)[: header_length(length, len(body))]
    return text if len(text) > LARGE else bytes(text)


def _may_have(words: _Words, text: Buffer) -> bool:
    """Return True if JSON contains one of `words`, or an escape that could hide a word."""
    return has_any(text, words) or (has_byte(text, b"\\") and _ESCAPE.search(text) is not None)


def request(message: Message, request: Request, target: Target) -> Message | None:
    """Return the message for a server that accepts the client's body unchanged. Return None for any other server.

    Raises:
        GatewayError: the errors of `backend_path`.
    """
    call, flavor = _CALLS[message.pattern], target.flavor
    if call.suffix != _INFER and not _has_path(call, message, request, target):
        return None
    assert request.unread is not None
    text, has_parameters = request.unread.found
    is_binary = HEADER_LENGTH_FIELD in message.headers.first
    if (is_binary and flavor in _WITHOUT_BINARY) or not _has_all(text, has_parameters, target):
        return None
    if flavor in _BINARY_ALONE and _has_16_bits(text) and not (is_binary and _asks_for_binary(text)):
        return None
    headers = binary_headers(len(text)) if is_binary else JSON_HEADERS
    return post(backend_path(request, target, call.suffix), headers, message.parts, request.deadline)


_WITHOUT_BINARY = frozenset({MLSERVER, PLAIN})
_BINARY_ALONE = frozenset({TRITON, KSERVE})
"""Server types that accept and send FP16 and BF16 only in binary."""


def _has_path(call: _Call, message: Message, request: Request, target: Target) -> bool:
    """Return True if the server has the client's path, with the same meaning."""
    flavor = target.flavor
    if request.operation is not call.operation or flavor in (KSERVE, OPENVINO, PLAIN):
        return False
    if flavor == BINARY:  # another gateway
        return True
    return flavor == (TRITON if request.schemaless else MLSERVER)


def _asks_for_binary(text: Buffer) -> bool:
    """Return True if the JSON requests all outputs in binary."""
    asks = has_any(text, ((b'"binary_data"', 7), (b'"binary_data_output"', 7)))
    return asks and not has_word(text, b"false", 0)


def _has_16_bits(text: Buffer) -> bool:
    return has_word(text, b"FP16", 0) or has_word(text, b"BF16", 0)


def _has_all(text: Buffer, has_parameters: bool, target: Target) -> bool:
    """Return True if the server supports everything that the JSON `text` might request."""
    flavor = target.flavor
    if flavor == KSERVE and (has_word(text, b"BF16", 0) or not has_word(text, b'"id"', 2)):
        return False  # KServe does not support this datatype, and fails without an id
    return not (has_parameters and (ignored := _ignored(flavor, target.extensions)) and _may_have(ignored, text))


@lru_cache(256)
def _ignored(flavor: str, extensions: frozenset[str] | None) -> _Words:
    """Return the parameters that request an extension that the server does not support."""
    names = {CLASSIFICATION: (b"classification", 11), SCHEDULE_POLICY: (b'"priority"', 9)}
    words = [word for name, word in names.items() if not has_extension(name, flavor, extensions)]
    return (*words, (b"binary_data", 6)) if flavor in _WITHOUT_BINARY else tuple(words)


# --- responses ---


def reply(reply: Message, request: Request, target: Target) -> Message | None:
    """Return the response for the client if the server's response is valid V2 without changes. Return None if the
    gateway must decode the response.

    Raises:
        DecodeError, GatewayError: the errors of `client.decode_response`.
    """
    if reply.status != 200:
        decode_response(reply, request, target)  # this call raises the error, because every other status is an error
    if request.operation is STREAM:
        return None if b'"error"' in bytes(reply.body) else reply_to_client(EVENT_HEADERS, reply.parts, 200)
    headers = reply.headers.first
    length = headers.get(HEADER_LENGTH_FIELD)
    if length is not None:
        size = header_length(length, len(reply.body))
        return reply_to_client(binary_headers(size), reply.parts, 200)
    is_json = headers.get(b"content-type", b"").startswith(b"application/json")
    # tritonclient cannot read null, which KServe writes for missing parameters.
    if not is_json or (target.flavor == KSERVE and has_word(reply.body, b"null", 0)):
        return None
    return reply_to_client(JSON_HEADERS, reply.parts, 200)


RELAY = Relay(head, request, reply)
