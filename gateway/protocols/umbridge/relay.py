"""Calls that pass unread between two sides of UM-Bridge (`core.protocol.Relay`).

The model is named in the body. So a request is walked through from member to member, and each vector passed over at the
speed of memory, without a look at its numbers. What passes has each member once, in the form that every server takes;
every other request is read, and written in that form. So is a reply with anything but finite numbers.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.types import Buffer, Head, Message, Request, post
from gateway.core.types import reply as reply_to_client
from gateway.core.words import find_byte, has_byte
from gateway.protocols.umbridge.client import decode_response
from gateway.protocols.umbridge.schema import CALLS, JSON_HEADERS, KEYS, PATHS

_BLANK = rb"[ \t\r\n]*+"


def _pattern(*tokens: bytes) -> re.Pattern[bytes]:
    """The pattern of these tokens of JSON, with blanks between them."""
    return re.compile(_BLANK.join(tokens))


_MEMBER = _pattern(b"", rb"([{,])", rb'"([A-Za-z0-9]++)"', b":", b"")
_END = _pattern(b"", rb"\}", rb"\Z")
_NAME = re.compile(rb'"[^"\\\x00-\x1f]++"')
_INDEX = re.compile(rb"-?(?:0|[1-9][0-9]{0,8}+)")
_PLAIN = rb'[^"\\{}\[\]]++|"[^"\\]*+"'
_DEEPEST_CONFIG = 4


def _nested(levels: int) -> bytes:
    """The pattern of what is in an object or a list. Where its brackets do not match, no parser takes the message."""
    inner = rb"|[{\[]%b[}\]]" % _nested(levels - 1) if levels else b""
    return rb"(?:%b%b)*+" % (_PLAIN, inner)


_CONFIG = re.compile(rb"\{%b\}" % _nested(_DEEPEST_CONFIG - 1))
_VECTORS = _pattern(rb"\[", rb"([\[\]])")
_AFTER_VECTOR = _pattern(b"", rb"(?:(,)" + _BLANK + rb"\[|\])")

_LONGEST_TEXT = 64 * 2**10
"""Bytes of a name or a `config` that is passed over."""
_MOST_VECTORS = 64
"""Vectors of `input` that are passed over. Models have few, and short ones are read as fast."""

_End: TypeAlias = Callable[[Buffer, int], int]
"""Finds the end of the value that begins at a place; -1 if it is another value than every server takes."""


# --- requests ---


def head(message: Message, listener: ListenerSettings) -> Head | None:
    """The request for a call. None if it must be read: any other request, and a call that not every server would take
    as it is."""
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
    """The places of the values of an object's members; None if it has other members than `ends`, one of them twice, or
    another value."""
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
    """Finds the end of a value of this form."""

    def find_end(body: Buffer, start: int) -> int:
        found = pattern.match(body, start, start + _LONGEST_TEXT)
        return -1 if found is None else found.end()

    return find_end


def _end_of_vector(body: Buffer, start: int) -> int:
    """The end of a list. If the bracket found is that of something in the list, a string or another list, then no JSON
    ends or goes on with a member behind it, and nobody takes the body."""
    if body[start : start + 1] != b"[":
        return -1
    return find_byte(body, b"]", start) + 1 or -1


def _end_of_vectors(body: Buffer, start: int) -> int:
    """The end of a list of such lists. A number in place of a list of one, as MATLAB's client writes it, is none."""
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
    """The message to a server; None if its `config` is longer than the backend's limit."""
    assert request.unread is not None
    size_of_config: int = request.unread.found
    if size_of_config > target.limits.config:
        return None
    return post(PATHS[request.operation], JSON_HEADERS, message.parts, request.deadline)


# --- replies ---

_OUTPUT = _pattern(b"", rb"\{", b'"output"', b":", rb"\[")
_NO_NUMBERS = b'"anu'
"""A byte of every further member and of every value that is no finite number, also as Python writes it: NaN, nan, inf,
Infinity, null, None, true, False, np.float64(1.5)."""


def reply(reply: Message, request: Request, target: Target) -> Message | None:
    """The reply to the client, whatever its Content-Type, as in `client.decode_response`. None if it has something else
    than numbers.

    Raises:
        GatewayError: an error that its status tells, as `client.decode_response`.
    """
    if not 200 <= reply.status < 300:
        decode_response(reply, request, target)
    output = _OUTPUT.match(reply.body)
    if output is None or has_byte(reply.body, _NO_NUMBERS, output.end()):
        return None
    return reply_to_client(JSON_HEADERS, reply.parts, 200)


RELAY = Relay(head, request, reply)
