"""Plain JSON in a body (the values of `$_`, `$params` and `$message`), and duplicate keys.

msgspec decodes a body by its type. It keeps the last of several equal keys, and skips members that the type does not
declare. This module checks those members.
"""

import re
from typing import Any

import msgspec

from gateway.core.errors import DecodeError
from gateway.core.json import INT64_MAX, INT64_MIN, MAX_DEPTH, Json, write
from gateway.core.tensors import ParameterValue

_decode = msgspec.json.Decoder().decode
# A string (with its colon, if it is a key), or a brace. The pattern never backtracks: its quantifiers are possessive,
# and an unterminated string extends to the end of the text, which is scanned only once.
_TOKEN = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)(?:"([ \t\r\n]*+:)?|\\?\Z)|[{}]', re.DOTALL)
_DEEPEST = 1024
"""Maximum nesting of objects that `members_of` follows. msgspec skips fewer levels."""


def too_many(values: int) -> DecodeError:
    """Return the error for a body that contains too many values."""
    return DecodeError(f"more than {values} JSON values outside tensor data; limits.json_values is the limit")


def read_plain(text: bytes, values: int) -> tuple[Json, int]:
    """Return the value of a JSON text that contains at most `values` values. Also return the number of members in its
    objects.

    Raises:
        DecodeError: the text is not JSON, contains too many values or a duplicate key, or is nested too deeply.
    """
    # each value except the first follows a comma or an opening bracket
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

    A scalar stays unchanged. Any other JSON, and an integer that does not fit in 64 bits, becomes text."""
    if isinstance(value, str | bool | float) or (isinstance(value, int) and INT64_MIN <= value <= INT64_MAX):
        return value
    return write(value).decode()
