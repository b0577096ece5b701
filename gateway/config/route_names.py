"""Route names: the configured name, or a short text made from the route's `match`."""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated

from pydantic import AfterValidator, Field

from gateway.config.fields import VALUE, refusal
from gateway.config.matching import ANY_VALUE, InputMatchConfig, MatchConfig

OF_GRAPHS, OF_BACKENDS = "models.", "backends."
"""Prefixes for the names of graphs and backends in lists that also contain route names."""
LONGEST = 80
"""Maximum length of a route's name, in characters."""
EVERY_REQUEST = "any"
"""The name for a route with `match: {}`."""

_DIGITS = 6


def _usable(name: str) -> str:
    if name.startswith((OF_GRAPHS, OF_BACKENDS)):
        raise refusal(
            f"names that begin with {OF_GRAPHS} or {OF_BACKENDS} are reserved; choose another name, got {VALUE}"
        )
    if not name.isprintable() or name != name.strip():
        raise refusal(f"expected printable characters, without spaces at the beginning and the end, got {VALUE}")
    return name


RouteName = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(_usable)]


def name_of_match(match: MatchConfig) -> str:
    """Return the default name of a route with this match. The name contains the model, then the other conditions:
    `iris,protocol=v2-rest`.

    The name depends only on the match, so it stays the same when routes are added before the route. Clients can see
    names, so header values, which can be secrets, are replaced by digits of a hash. Names that are too long, or that
    contain unprintable characters, also end with these digits."""
    whole = ",".join(_parts(match)) or EVERY_REQUEST
    if whole.startswith((OF_GRAPHS, OF_BACKENDS)):
        whole = f"model={whole}"
    values = {name: value for name, value in match.header.items() if value != ANY_VALUE}
    text = "".join(each if each.isprintable() else "?" for each in whole)
    if not values and text == whole and len(text) <= LONGEST:
        return text
    digits = sha256(json.dumps([whole, values], sort_keys=True).encode()).hexdigest()[:_DIGITS]
    return f"{text[: LONGEST - _DIGITS - 1]}~{digits}"


def _parts(match: MatchConfig) -> Iterator[str]:
    operation = None if match.operation is None else match.operation.value
    if match.model is not None:
        yield match.model
    for key, value in (
        ("listener", match.listener),
        ("protocol", match.protocol),
        ("path", match.path),
        ("version", match.version),
        ("operation", operation),
        ("header", "+".join(match.header) or None),
        ("input", None if match.input is None else _input(match.input)),
    ):
        if value is not None:
            yield f"{key}={value}"


def _input(wanted: InputMatchConfig) -> str:
    """Return a text such as `image:UINT8[-1,3]`, without the parts that are not set."""
    datatype = "" if wanted.datatype is None else wanted.datatype.value
    shape = "" if wanted.shape is None else f"[{','.join(map(str, wanted.shape))}]"
    return ":".join(filter(None, (wanted.name, f"{datatype}{shape}")))
