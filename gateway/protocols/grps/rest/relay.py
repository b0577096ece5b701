"""Relays inferences from a grps-rest client to a grps-rest server without decoding them (`core.protocol.Relay`). The
listener and the backend must have the same stream settings.

The relay needs only the head of a GrpsMessage: the model name in a request, and the success or failure status in a
response. The relay does not parse a large body. Instead, it searches the body, at memory speed, for the few characters
and words that would change the meaning of the head.
"""

import re
from functools import lru_cache, partial

from msgspec import UNSET, MsgspecError, Struct, UnsetType
from msgspec.json import Decoder

from gateway.core.messages import JSON_HEADERS, Buffer, Headers, Message
from gateway.core.messages import reply as reply_to_client
from gateway.core.offload import LARGE
from gateway.core.operations import INFER, STREAM
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import Head, Request
from gateway.core.words import find_byte, has_any, has_byte
from gateway.protocols.grps.client import model_and_version
from gateway.protocols.grps.rest.bodies import JSON_TYPE, OCTETS, OCTETS_TYPE, begins_object, media_type, stream_headers
from gateway.protocols.grps.rest.client import asked, decode_response
from gateway.protocols.grps.rest.streams import BODY, StreamControl
from gateway.protocols.grps.rest.urls import is_inference, read_query

_HEADERS = {JSON_TYPE: JSON_HEADERS, OCTETS_TYPE: OCTETS}


# --- requests ---


def head(message: Message, listener: ListenerSettings, control: StreamControl) -> Head | None:
    """Return the request of an inference.

    Return None if the gateway must decode the request because the path is not for inference, the client requests an
    ndarray, or `_find_model` returns None.

    Raises:
        DecodeError: the query is invalid, or the client requests a stream in a way that `control` does not allow.
    """
    body = message.body
    if not len(body) or not is_inference(message):
        return None
    query = read_query(message.query, control.key)
    if query.returns_ndarray:
        return None
    asks = control.asks(message, query)
    model: str | None = ""
    if not _is_octets(message):
        model = _find_model(body, control.key, 1 if asks and control.mode == BODY else 0)
        if model is None:
            return None
    return Head(STREAM if asks else INFER, model or query.model or listener.model)


def _is_octets(message: Message) -> bool:
    """Return whether a client's body is bin_data."""
    return media_type(message.headers.get("content-type")) == OCTETS_TYPE


def request(message: Message, request: Request, target: Target, control: StreamControl) -> Message | None:
    """Return the message for a server.

    Return None if either the client's message or `request`, but not both, requests a stream."""
    asks = request.operation is STREAM
    if asks is not control.asks(message, read_query(message.query, control.key)):
        return None
    headers = OCTETS if _is_octets(message) else JSON_HEADERS
    # The server uses the name in the query if the message contains no name. If the message contains a name, both names
    # are the same.
    return asked(request, control, headers, message.parts, model_and_version(request))


# --- responses ---


def reply(reply: Message, request: Request, target: Target, control: StreamControl) -> Message | None:
    """Return the response for the client, or one message of a stream. Return None if the gateway must decode the
    message.

    Raises:
        DecodeError, GatewayError: the errors of `client.decode_response`.
    """
    headers = _reply_headers(reply, request, control)
    if headers is None and reply.status == 200:
        return None
    if headers is None or not _is_success(reply.body, headers):
        if len(reply.body) > LARGE:
            return None
        decode_response(reply, request, target)
    return None if headers is None else reply_to_client(headers, reply.parts, 200)


def _reply_headers(reply: Message, request: Request, control: StreamControl) -> Headers | None:
    """Return the headers of the response for the client.

    Return None if grps does not use the content type, or if the status is not 200."""
    if reply.status != 200:
        return None
    given = reply.headers.get("content-type")
    if request.operation is STREAM:
        return stream_headers(control.content_type or given)
    return _HEADERS.get(media_type(given))


def _is_success(body: Buffer, headers: Headers) -> bool:
    """Return whether a body with these headers is bin_data, or begins with a success status."""
    return _tells_success(body) or (headers is not JSON_HEADERS and not begins_object(body))


@lru_cache(64)
def relay(control: StreamControl) -> Relay | None:
    """Return the Relay between a listener and a backend with the same `control`. Return None if the key of `control`
    has several spellings in JSON."""
    if not control.is_plain:
        return None
    return Relay(partial(head, control=control), partial(request, control=control), partial(reply, control=control))


# --- the head of a message ---


class _Named(Struct):
    """The member of a GrpsMessage that contains the model name."""

    model: str | UnsetType = UNSET


_read = Decoder(_Named).decode

_PARSED = 2048
"""Maximum size of a body for which parsing costs less than searching, in bytes."""
_END = 512
"""Number of bytes to search for the model's name at the beginning and at the end of a body."""

_FIRST = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"model"[ \t\r\n]*:[ \t\r\n]*"([^"\\]*)"[ \t\r\n]*[,}]')
_LAST = re.compile(rb',[ \t\r\n]*"model"[ \t\r\n]*:[ \t\r\n]*"([^"\\]*)"[ \t\r\n]*\}[ \t\r\n]*\Z')
_SUCCESS = re.compile(
    rb'\s*\{\s*"status"\s*:\s*\{\s*"code"\s*:\s*200\s*,\s*"msg"\s*:\s*"OK"\s*,\s*"status"\s*:\s*"SUCCESS"\s*\}\s*[,}]'
)
"""The beginning of almost every response from both servers and the gateway."""

# Each word is paired with the position of one of its letters that is rare in bodies.
_MODEL = (b'"model"', 1)
_ALIAS = re.compile(rb'"(?=[fsb])(?:flat_double|flat[A-Z][A-Za-z0-9]+|strData|binData|s(?:[SBFD]|I32|I64))"')
"""Members that the gateway reads but a real server skips: names in lowerCamelCase, and the specification's own name for
`flat_float64`."""
_STRINGS = 64
"""Maximum number of strings in a body for which checking each string for an alias costs less than searching the
body."""
_BARE = ((b"NaN", 0), (b"Infinity", 7))
"""Numbers that real servers read only in quotes."""

_ESCAPE = re.compile(rb"\\u00[2-7]")
"""Escapes that can represent a letter of a member name."""


def _find_model(body: Buffer, flag: str, flags: int = 0) -> str | None:
    """Return the model name in a client's message. Return an empty name if `model` is missing.

    Return None if the gateway must decode the message because:

    - two servers could find different names,
    - the message has the member `flag` more than `flags` times, or
    - the message has members that the gateway reads but real servers do not.
    """
    begin = bytes(body[:_END])
    # A zero byte means UTF-16 or UTF-32, which some servers read.
    if not begin.lstrip(b" \t\r\n").startswith(b"{") or b"\0" in begin[:4]:
        return None
    member = b'"%b"' % flag.encode()
    name = _found_name(body, begin, member) if len(body) > _PARSED else None
    if name is None:
        name = _parsed_name(bytes(body), member, flags) if len(body) <= LARGE else None
    try:
        return None if name is None else name.decode()
    except UnicodeDecodeError:
        return None


def _found_name(body: Buffer, begin: bytes, member: bytes) -> bytes | None:
    """Return the name if `model` is the first or last member, or is missing, and nothing else in the body affects the
    name.

    Return None if finding the name requires parsing."""
    view, name = memoryview(body), b""
    if found := _FIRST.match(begin):
        view, name = view[found.end() :], found[1]
    elif found := _LAST.search(bytes(view[-_END:])):
        view, name = view[: found.start() - len(found.string)], found[1]
    rest = bytes(view) if len(view) <= LARGE else view  # one call searches bytes; a view needs several
    # Text with a backslash can look like a member.
    if has_byte(rest, b"\\") or has_any(rest, (_MODEL, (member, len(member) // 2), *_BARE)) or _has_alias(rest):
        return None
    return name if name or not found else None


def _has_alias(body: Buffer) -> bool:
    at = -1
    for _ in range(_STRINGS):
        at = find_byte(body, b'"', at + 1)
        if at < 0:
            return False
        if _ALIAS.match(body, at):
            return True
    return _ALIAS.search(body, at) is not None


def _parsed_name(body: bytes, member: bytes, flags: int) -> bytes | None:
    """Parse the body, and return the same result as `_find_model`."""
    if (b"\\u00" in body and _ESCAPE.search(body)) or _ALIAS.search(body):
        return None
    if body.count(_MODEL[0]) > 1 or body.count(member) > flags:
        return None
    try:
        name = _read(body).model
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if name is UNSET:
        return b""
    return name.encode("utf-8", "surrogatepass") or None


def _tells_success(body: Buffer) -> bool:
    """Return whether the message in `body` begins with a success status in the form that servers write."""
    return _SUCCESS.match(body) is not None
