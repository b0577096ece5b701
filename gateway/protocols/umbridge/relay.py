"""Relays calls from a UM-Bridge client to a UM-Bridge server without decoding them (`core.protocol.Relay`).

The body contains the model name, so the gateway scans a request member by member, and skips each vector at memory speed
without reading its numbers. It forwards a request unchanged if the request contains each member once, in a form that
every server accepts. It decodes all other requests, and writes them in this form. It also decodes responses that
contain anything except finite numbers.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from gateway.core.messages import JSON_HEADERS, Buffer, Message, post
from gateway.core.messages import reply as reply_to_client
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import Head, Request
from gateway.core.words import find_byte, has_byte
from gateway.protocols.umbridge.client import decode_response
from gateway.protocols.umbridge.schema import CALLS, KEYS, PATHS

_BLANK = rb"[ \t\r\n]*+"


def _pattern(*tokens: bytes) -> re.Pattern[bytes]:
    """Return a pattern that matches these JSON tokens, with optional blanks between them."""
    return re.compile(_BLANK.join(tokens))


_MEMBER = _pattern(b"", rb"([{,])", rb'"([A-Za-z0-9]++)"', b":", b"")
_END = _pattern(b"", rb"\}", rb"\Z")
_NAME = re.compile(rb'"[^"\\\x00-\x1f]++"')
_INDEX = re.compile(rb"-?(?:0|[1-9][0-9]{0,8}+)")
_PLAIN = rb'[^"\\{}\[\]]++|"[^"\\]*+"'
_DEEPEST_CONFIG = 4


def _nested(levels: int) -> bytes:
    """Return a pattern that matches the contents of an object or a list. The pattern also matches mismatched brackets,
    which no parser accepts."""
    inner = rb"|[{\[]%b[}\]]" % _nested(levels - 1) if levels else b""
    return rb"(?:%b%b)*+" % (_PLAIN, inner)


_CONFIG = re.compile(rb"\{%b\}" % _nested(_DEEPEST_CONFIG - 1))
_VECTORS = _pattern(rb"\[", rb"([\[\]])")
_AFTER_VECTOR = _pattern(b"", rb"(?:(,)" + _BLANK + rb"\[|\])")

_LONGEST_TEXT = 64 * 2**10
"""Maximum size of a name or a `config` that the scan skips, in bytes."""
_MOST_VECTORS = 64
"""Maximum number of vectors of `input` that the scan skips.

Models have few vectors, and decoding short vectors is equally fast."""

_End: TypeAlias = Callable[[Buffer, int], int]
"""A function that finds the end of the value that begins at a position. It returns -1 if some servers reject the
value."""


# --- requests ---


def head(message: Message, listener: ListenerSettings) -> Head | None:
    """Return the request of a call.

    Return None if the gateway must decode the message because it is not a call, or because some servers would reject it
    unchanged."""
    operation = _OPERATIONS.get(message.pattern)
    if operation is None:
        return None
    found = _members(message.body, _ENDS[operation])
    if found is None:
        return None
    size = found[b"config"].stop - found[b"config"].start
    if size > listener.limits.config:
        return None
    try:
        return Head(operation, bytes(message.body[found[b"name"]])[1:-1].decode(), "", size)
    except UnicodeDecodeError:
        return None


def _members(body: Buffer, ends: Mapping[bytes, _End]) -> dict[bytes, slice] | None:
    """Return the positions of the values of an object's members.

    Return None unless the object has exactly the members in `ends`, each once and with the expected kind of value."""
    found: dict[bytes, slice] = {}
    end = 0
    while member := _MEMBER.match(body, end):
        separator, name = member.groups()
        find_end = ends.get(name)
        if find_end is None or name in found or separator != (b"," if found else b"{"):
            return None
        start = member.end()
        end = find_end(body, start)
        if end < 0:
            return None
        found[name] = slice(start, end)
    return found if len(found) == len(ends) and _END.match(body, end) else None


def _of(pattern: re.Pattern[bytes]) -> _End:
    """Return a function that finds the end of a value that matches `pattern`, or returns -1 for any other value."""

    def find_end(body: Buffer, start: int) -> int:
        found = pattern.match(body, start, start + _LONGEST_TEXT)
        return -1 if found is None else found.end()

    return find_end


def _end_of_vector(body: Buffer, start: int) -> int:
    """Return the end of a list.

    The closing bracket that the function finds might be inside a string or another list. In that case, the remaining
    text is not valid JSON, and no server accepts the body."""
    if body[start : start + 1] != b"[":
        return -1
    return find_byte(body, b"]", start) + 1 or -1


def _end_of_vectors(body: Buffer, start: int) -> int:
    """Return the end of a list of vectors, or -1 for any other value.

    The MATLAB client writes a list of one number as a number."""
    opening = _VECTORS.match(body, start)
    if opening is None:
        return -1
    at = opening.end()
    if opening[1] == b"]":
        return at
    for _ in range(_MOST_VECTORS):
        end = _end_of_vector(body, at - 1)
        after = _AFTER_VECTOR.match(body, end) if end > 0 else None
        if after is None:
            return -1
        at = after.end()
        if after[1] is None:
            return at
    return -1


_OPERATIONS = {f"POST /{call}": operation for call, operation in CALLS.items()}
_EVALUATE: dict[bytes, _End] = {b"name": _of(_NAME), b"input": _end_of_vectors, b"config": _of(_CONFIG)}
_ENDS: Mapping[Operation, Mapping[bytes, _End]] = {
    operation: {
        KEYS[name].encode(): _of(_INDEX) if name in INDEX_TENSORS else _end_of_vector
        for name in DERIVATIVES.get(operation, ())
    }
    | _EVALUATE
    for operation in CALLS.values()
}
"""The members of each call."""


def request(message: Message, request: Request, target: Target) -> Message | None:
    """Return the message for a server, or None if its `config` is longer than the backend's limit."""
    assert request.unread is not None
    size_of_config: int = request.unread.found
    if size_of_config > target.limits.config:
        return None
    return post(PATHS[request.operation], JSON_HEADERS, message.parts, request.deadline)


# --- responses ---

_OUTPUT = _pattern(b"", rb"\{", b'"output"', b":", rb"\[")
_NO_NUMBERS = b'"anu'
"""A set of bytes. Every additional member, and every value that is not a finite number, contains at least one of them.
This also applies to Python's notation: NaN, nan, inf, Infinity, null, None, true, False, np.float64(1.5)."""


def reply(reply: Message, request: Request, target: Target) -> Message | None:
    """Return the response for the client. Like `client.decode_response`, the function accepts any Content-Type.

    Return None if the response contains anything except numbers.

    Raises:
        GatewayError: the error that the status reports, as in `client.decode_response`.
    """
    if not 200 <= reply.status < 300:
        decode_response(reply, request, target)
    output = _OUTPUT.match(reply.body)
    if output is None or has_byte(reply.body, _NO_NUMBERS, output.end()):
        return None
    return reply_to_client(JSON_HEADERS, reply.parts, 200)


RELAY = Relay(head, request, reply)
