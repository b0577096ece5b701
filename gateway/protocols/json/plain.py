"""Handles JSON that msgspec does not read in the way that the gateway requires: plain JSON in a body (the values of
`$_`, `$params` and `$message`), duplicate keys, and NaN.

msgspec decodes a body by its type. It keeps the last of several equal keys, and skips members that the type does not
declare. This module checks these members.

Python servers write NaN, Infinity and -Infinity. JSON does not define these literals, and msgspec rejects them, but the
gateway accepts them in tensors. Before msgspec reads the text a second time, `reading` replaces each literal with a
string that has a prefix, the mark. In tensors, `places` then restores the literals. Elsewhere, it rejects them.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from gateway.core.errors import DecodeError
from gateway.core.json import INT64_MAX, INT64_MIN, MAX_DEPTH, Json, write
from gateway.core.tensors import ParameterValue

_decode = msgspec.json.Decoder().decode
# A string (with its colon, if it is a key), or a brace. The pattern never backtracks, because its quantifiers are
# possessive, and because an unterminated string extends to the end of the text.
_TOKEN = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)(?:"([ \t\r\n]*+:)?|\\?\Z)|[{}]', re.DOTALL)
_DEEPEST = 1024
"""Maximum nesting depth of objects that `members_of` follows. msgspec skips fewer levels."""


def too_many(values: int) -> DecodeError:
    """Return the error for a body that contains too many values."""
    return DecodeError(f"more than {values} JSON values outside tensor data; limits.json_values is the limit")


def read_plain(text: bytes, values: int) -> tuple[Json, int]:
    """Return the value of a JSON text that contains at most `values` values. Also return the number of members in its
    objects, which the caller uses to find duplicate keys.

    Raises:
        DecodeError: the text is not JSON, contains too many values, or is nested too deeply.
    """
    # each value except the first value follows a comma or an opening bracket
    if len(text) > values and text.count(b",") + text.count(b"[") + text.count(b"{") > 2 * values:
        raise too_many(values)
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise DecodeError(f"nested deeper than {MAX_DEPTH}") from error
    if type(value) not in (dict, list):
        return value, 0
    counted, members = _counted(value, 1)
    if counted > values:
        raise too_many(values)
    return value, members


def _counted(value: Any, level: int) -> tuple[int, int]:
    """Return the number of values, and the number of members, in a list or an object."""
    if level > MAX_DEPTH:
        raise DecodeError(f"nested deeper than {MAX_DEPTH}")
    members = len(value) if type(value) is dict else 0
    values = 1 + len(value)
    for each in value.values() if type(value) is dict else value:
        if type(each) in (dict, list):
            inner, inner_members = _counted(each, level + 1)
            values, members = values + inner - 1, members + inner_members
    return values, members


def members_of(text: bytes, most: int) -> int:
    """Return the number of members in all objects of a JSON text.

    Raises:
        DecodeError: an object contains a duplicate key, or the text contains more than `most` members or is nested too
            deeply.
    """
    members, open_objects = 0, list[set[bytes]]()
    for token in _TOKEN.finditer(text):
        key, colon = token.groups()
        if key is None:
            if token[0] == b"{":
                if len(open_objects) > _DEEPEST:
                    raise DecodeError(f"nested deeper than {MAX_DEPTH}")
                open_objects.append(set())
            elif open_objects:
                open_objects.pop()
        elif colon is not None and open_objects:
            members += 1
            if members > most:
                raise too_many(most)
            name = _unescaped(key)
            if name in open_objects[-1]:
                raise DecodeError(f"key {name.decode('utf-8', 'replace')!r} occurs twice in one object")
            open_objects[-1].add(name)
    return members


def _unescaped(key: bytes) -> bytes:
    return str(_decode(b'"%b"' % key)).encode("utf-8", "surrogatepass") if b"\\" in key else key


def to_parameter(value: Json) -> ParameterValue:
    """Return a JSON value as a parameter.

    Scalars stay unchanged, except null. null, any other JSON, and integers that do not fit in 64 bits become text."""
    if isinstance(value, str | bool | float) or (isinstance(value, int) and INT64_MIN <= value <= INT64_MAX):
        return value
    return write(value).decode()


# --- NaN, Infinity and -Infinity ---

_MARK = b'"\x7f'
_QUOTE = ord('"')
_LITERALS = (b"NaN", b"-NaN", b"Infinity", b"-Infinity")
# The pattern also matches strings, to skip the literals in them. An unterminated string extends to the end of the text,
# so the pattern never backtracks.
_LITERAL = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-?(?:NaN|Infinity)\b', re.DOTALL)
_MARKED = re.compile(rb'"\x7f(-?(?:NaN|Infinity))"')


def mark_literals(text: bytes) -> bytes | None:
    """Return `text` with each literal replaced by a marked string. Return None if the text contains no literal, or
    already contains the mark."""
    if (b"NaN" not in text and b"Infinity" not in text) or has_marked_literals(text):
        return None
    return replaced_outside_strings(_LITERAL, lambda literal: b'%b%b"' % (_MARK, literal), text)


def replaced_outside_strings(pattern: "re.Pattern[bytes]", replacement: Callable[[bytes], bytes], text: bytes) -> bytes:
    """Return `text` with a `replacement` for each match of `pattern` that is not a string.

    The pattern also matches strings, which stay unchanged. `re.sub` would use a hundred bytes of memory for each match
    until it returns."""
    result, at = bytearray(), 0
    for found in pattern.finditer(text):
        start = found.start()
        if text[start] != _QUOTE:
            result += text[at:start]
            result += replacement(found[0])
            at = found.end()
    result += text[at:]
    return bytes(result)


def restore_literals(text: bytes) -> bytes:
    """Return the text with its original literals instead of the marked strings."""
    if _MARK in text:
        for literal in _LITERALS:
            text = text.replace(b'%b%b"' % (_MARK, literal), literal)
    return text


def has_marked_literals(text: bytes) -> bool:
    """Return True if the original text contained a literal."""
    return _MARK in text and _MARKED.search(text) is not None
