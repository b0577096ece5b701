"""The members of objects in JSON. Each has two spellings, as protobuf asks: the name in `grps.proto`, and that name in
lowerCamelCase."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.core.errors import DecodeError


def lower_camel_case(name: str) -> str:
    """The JSON name that protobuf gives to a field: `sI32` for `s_i32`."""
    first, *further = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in further)


def spellings(names: Iterable[str], aliases: Mapping[str, str] | None = None) -> dict[str, str]:
    """The name of each member by all that JSON may call it. `aliases` are further names."""
    known = {name: name for name in names} | dict(aliases or {})
    return {lower_camel_case(spelling): name for spelling, name in known.items()} | known


def read_members(
    entry: Mapping[str, Any], known: Mapping[str, str], what: str, *, more: bool = False
) -> dict[str, Any]:
    """The members of `entry` by their names in `grps.proto`, without those that are null: that is the default. With
    `more`, what is not `known` is left out.

    Raises:
        DecodeError: a member that is not `known`, or one in two spellings.
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
    """`value` as an int, if it is an integer as protobuf's mapping writes one, in quotes or as `2.0`; else `value`."""
    if isinstance(value, str) and len(value) <= _LONGEST and value.isascii() and value.removeprefix("-").isdigit():
        return int(value)
    return int(value) if type(value) is float and value.is_integer() else value


_LONGEST = 20
"""Characters of a 64-bit integer."""
