"""Reads media types (RFC 9110, section 8.3.1), compares them, and finds the type that an Accept header prefers (section
12.5.1).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice

from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen, replace

# possessive, so no input causes backtracking
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_ESSENCE = re.compile(rf"[ \t]*+({_TOKEN})/({_TOKEN})")
_PARAMETER = re.compile(rf'[ \t]*+;[ \t]*+(?:({_TOKEN})=(?:({_TOKEN})|"((?:[^"\\]|\\.)*+)"))?+')
_END = re.compile(r"[ \t]*+(?:,|\Z)")
_WEIGHT = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")
_ESCAPED = re.compile(r"\\(.)")

_MOST_RANGES = 256  # browsers send about ten ranges


@frozen
class MediaType:
    """A media type, or a range of media types, in which the subtype, or both the type and the subtype, are `*`. Names
    are in lower case."""

    type: str
    subtype: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def essence(self) -> str:
        """The media type without its parameters."""
        return f"{self.type}/{self.subtype}"

    def matches(self, other: "MediaType") -> bool:
        """Return True if the two types can be the same.

        Their names must be equal or `*`. Parameters that both types have must be equal, ignoring case."""
        return (
            (self.type == other.type or "*" in (self.type, other.type))
            and (self.subtype == other.subtype or "*" in (self.subtype, other.subtype))
            and all(
                value.lower() == other.parameters[name].lower()
                for name, value in self.parameters.items()
                if name in other.parameters
            )
        )


def parse(text: str) -> MediaType | None:
    """Return the media type in a Content-Type header or in a form, or None if the type is missing or malformed."""
    found = _read(text, 0)
    return found[0] if found is not None and found[1] == len(text) and not text.endswith(",") else None


def declared(text: str) -> MediaType | None:
    """Return the media type that a form declares, or None if the type is malformed.

    CSV has no header unless the form declares it, so `text/csv` does not match a body with `header=present`."""
    found = parse(text)
    if found is not None and found.essence == "text/csv" and "header" not in found.parameters:
        return replace(found, parameters={**found.parameters, "header": "absent"})
    return found


def check_charset(given: MediaType) -> None:
    """Raise DecodeError if the media type `given` specifies a charset other than UTF-8 or ASCII."""
    charset = given.parameters.get("charset", "utf-8")
    if charset.lower() not in ("utf-8", "utf8", "us-ascii"):
        raise DecodeError(f"Content-Type has charset {charset!r}, expected utf-8")


def preferred(accept: str, offered: Sequence[MediaType]) -> int | None:
    """Return the index of the type in `offered` that the Accept header prefers, which is the first type with the
    highest weight. Return None if the header accepts no offered type. A header without a valid range accepts every
    type. Ranges after the 256th are ignored."""
    ranges = list(islice(_ranges(accept), _MOST_RANGES))
    if not ranges:
        return 0 if offered else None
    weights = [_weight(each, ranges) for each in offered]
    best = max(weights, default=0.0)
    return weights.index(best) if best else None


def _weight(offered: MediaType, ranges: list[tuple[MediaType, float]]) -> float:
    """Return the weight of the range that matches `offered` most specifically, or 0 if no range matches."""
    fitting = [(_specificity(each), weight) for each, weight in ranges if each.matches(offered)]
    return max(fitting)[1] if fitting else 0.0


def _specificity(each: MediaType) -> tuple[bool, bool, int]:
    return each.type != "*", each.subtype != "*", len(each.parameters)


def _ranges(accept: str) -> Iterator[tuple[MediaType, float]]:
    """Yield the media ranges of an Accept header with their weights. Malformed ranges are skipped."""
    at = 0
    while at < len(accept):
        found = _read(accept, at)
        if found is None:
            at = accept.find(",", at) + 1 or len(accept)
            continue
        each, at = found
        weight = each.parameters.get("q", "1")
        if _WEIGHT.fullmatch(weight):
            others = {name: value for name, value in each.parameters.items() if name != "q"}
            yield replace(each, parameters=others), float(weight)


def _read(text: str, at: int) -> tuple[MediaType, int] | None:
    """Return the media type at `at`, or None if it is malformed. Also return the start of the next media type."""
    essence = _ESSENCE.match(text, at)
    if essence is None:
        return None
    at, parameters = essence.end(), {}
    while (parameter := _PARAMETER.match(text, at)) is not None:
        at = parameter.end()
        name, token, quoted = parameter.groups()
        if name is None:
            continue
        if name.lower() in parameters:
            return None
        parameters[name.lower()] = _ESCAPED.sub(r"\1", quoted) if token is None else token
    end = _END.match(text, at)
    return None if end is None else (MediaType(essence[1].lower(), essence[2].lower(), parameters), end.end())
