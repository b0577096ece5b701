"""The members of JSON objects. As protobuf requires, the reader accepts two spellings of every member: the name in
`grps.proto`, and the same name in lowerCamelCase."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.core.errors import DecodeError


def lower_camel_case(name: str) -> str:
    """Return the JSON name that protobuf gives to a field: `sI32` for `s_i32`."""
    first, *further = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in further)


def spellings(names: Iterable[str], aliases: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a map from every JSON spelling to the member's name. `aliases` are additional spellings."""
    known = {name: name for name in names} | dict(aliases or {})
    return {lower_camel_case(spelling): name for spelling, name in known.items()} | known


def read_members(
    entry: Mapping[str, Any], known: Mapping[str, str], what: str, *, more: bool = False
) -> dict[str, Any]:
    """Return the members of `entry` by their names in `grps.proto`.

    The result omits members with the value null, which means the default. If `more` is True, the result also omits
    members that are not `known`.

    Raises:
        DecodeError: a member is not `known`, or occurs in two spellings.
    """
    members: dict[str, Any] = {}
    for key, value in entry.items():
        name = known.get(key)
        if name is None:
            if more:
                continue
            expected = ", ".join(dict.fromkeys(filter(None, known.values())))
            raise DecodeError(f"{what}: there is no member {key!r}, expected one of {expected}")
        if value is None:
            continue
        if name in members:
            raise DecodeError(f"{what}: {name} is there in two spellings, expected {name} alone")
        members[name] = value
    return members


def read_integer(value: object) -> object:
    """Return `value` as an int if it is an integer in protobuf's JSON mapping, which allows quotes and the form `2.0`.
    Otherwise return it unchanged."""
    if isinstance(value, str) and len(value) <= _LONGEST and value.isascii() and value.removeprefix("-").isdigit():
        return int(value)
    return int(value) if type(value) is float and value.is_integer() else value


_LONGEST = 20
"""Maximum length of a 64-bit integer, in characters."""
