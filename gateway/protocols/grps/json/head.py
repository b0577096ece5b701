"""Finds the head of a GrpsMessage in JSON without decoding its data.

The head is the model name in a request, and the success or failure status in a response. `rest/relay.py` needs only the
head.

The module does not parse a large body. Instead, it searches the body, at memory speed, for the few characters and words
that would change its meaning.
"""

import re

from msgspec import UNSET, MsgspecError, Struct, UnsetType
from msgspec.json import Decoder

from gateway.core.messages import Buffer
from gateway.core.offload import LARGE
from gateway.core.words import find_byte, has_any, has_byte


class _Named(Struct):
    """The member of a GrpsMessage that contains the model name."""

    model: str | UnsetType = UNSET


_read = Decoder(_Named).decode

_PARSED = 2048
"""Maximum size of a body for which parsing costs less than searching, in bytes."""
_END = 512
"""Number of bytes at the beginning and at the end of a body to search for the model's name."""

_FIRST = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"model"[ \t\r\n]*:[ \t\r\n]*"([^"\\]*)"[ \t\r\n]*[,}]')
_LAST = re.compile(rb',[ \t\r\n]*"model"[ \t\r\n]*:[ \t\r\n]*"([^"\\]*)"[ \t\r\n]*\}[ \t\r\n]*\Z')
_SUCCESS = re.compile(
    rb'\s*\{\s*"status"\s*:\s*\{\s*"code"\s*:\s*200\s*,\s*"msg"\s*:\s*"OK"\s*,\s*"status"\s*:\s*"SUCCESS"\s*\}\s*[,}]'
)
"""The beginning of almost every response from both servers and the gateway."""

# Each word is paired with the position of a letter in it that is rare in bodies.
_MODEL = (b'"model"', 1)
_ALIAS = re.compile(rb'"(?=[fsb])(?:flat_double|flat[A-Z][A-Za-z0-9]+|strData|binData|s(?:[SBFD]|I32|I64))"')
"""Members that the gateway reads and a real server skips: names in lowerCamelCase, and the specification's own name for
`flat_float64`."""
_STRINGS = 64
"""Maximum number of strings in a body for which checking each string for an alias costs less than searching the
body."""
_BARE = ((b"NaN", 0), (b"Infinity", 7))
"""Numbers that real servers read only in quotes."""

_ESCAPE = re.compile(rb"\\u00[2-7]")
"""Escapes that can represent a letter of a member name."""


def find_model(body: Buffer, flag: str, flags: int = 0) -> str | None:
    """Return the model name in a client's message. Return an empty name if `model` is missing.

    Return None if the gateway must decode the message, because

    - two servers could find different names,
    - the message has the member `flag` more than `flags` times, or
    - it has members that the gateway reads and real servers do not.
    """
    begin = bytes(body[:_END])
    # A zero byte means UTF-16 or UTF-32, which some servers read.
    if not begin.lstrip(b" \t\r\n").startswith(b"{") or b"\0" in begin[:4]:
        return None
    member = b'"%b"' % flag.encode()
    name = _found(body, begin, member) if len(body) > _PARSED else None
    if name is None:
        name = _parsed(bytes(body), member, flags) if len(body) <= LARGE else None
    try:
        return None if name is None else name.decode()
    except UnicodeDecodeError:
        return None


def _found(body: Buffer, begin: bytes, member: bytes) -> bytes | None:
    """Return the name if `model` is the first or last member, or is missing, and nothing in the body changes its
    meaning.

    Return None if finding the name needs parsing."""
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


def _parsed(body: bytes, member: bytes, flags: int) -> bytes | None:
    """Parse the body, and return the same result as `find_model`."""
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


def tells_success(body: Buffer) -> bool:
    """Return whether the message in `body` begins with a success status in the form that servers write."""
    return _SUCCESS.match(body) is not None
