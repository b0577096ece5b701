"""The key `backends.*.placement`: which of a backend's servers have which models, and models that are loaded on demand.

Its times, sizes and counts may be written with their units: `10m`, `20GiB`, `1..3`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler, Strict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gateway.config.fields import VALUE, Keys, Name, Names, Period, Seconds, Secret, Size, Written, refusal
from gateway.core.frozen import frozen
from gateway.core.redis import redis_url

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, **{f"{letter}iB": 2 ** (10 * power) for power, letter in enumerate("KMGT", 1)}}
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]+)")
_RANGE = re.compile(r"([0-9]{1,6})(?:\.\.([0-9]{1,6}))?")


def _quantity(text: str, units: Mapping[str, float], example: str) -> float:
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2] not in units:
        raise refusal(f"expected a number, or one with a unit ({', '.join(units)}) such as {example}, got {VALUE}")
    return float(found[1]) * units[found[2]]


def _seconds(given: Any) -> Any:
    return _quantity(given, _SECONDS, "10m") if isinstance(given, str) else given


def _bytes(given: Any) -> Any:
    return int(_quantity(given, _BYTES, "20GiB")) if isinstance(given, str) else given


@frozen
class Copies:
    """How many servers hold a model that is in use: at least `least`, at most `most`."""

    least: int = 1
    most: int = 1


def _copies(given: int | str) -> Copies:
    """`2` as 2 to 2 copies, `1..3` as 1 to 3."""
    found = _RANGE.fullmatch(str(given))
    if found is None:
        raise refusal(f"expected a number from 1 on, or a range such as 1..3, got {VALUE}")
    least = int(found[1])
    copies = Copies(least, int(found[2] or least))
    if not 1 <= copies.least <= copies.most:
        raise refusal(f"expected at least 1, and the larger number last, as in 1..3, got {VALUE}")
    return copies


class _OrText:
    """The JSON Schema of a number that may be a text with a unit."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), {"type": "string", "pattern": self._pattern}]}


_TIME = _OrText(r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h|d)$")
_AMOUNT = _OrText(r"^[0-9]+(\.[0-9]+)? ?([KMGT]i)?B$")

Time = Annotated[Period, BeforeValidator(_seconds), _TIME]
"""Seconds, more than 0, as a number or as a text such as `10m`."""
TimeOrNever = Annotated[Seconds, BeforeValidator(_seconds), _TIME]
"""The same, or 0."""
Bytes = Annotated[Size, BeforeValidator(_bytes), _AMOUNT]
"""Bytes, at least 1, as a number or as a text such as `20GiB`."""
CopiesKey = Annotated[Copies, Written(Annotated[int, Strict()] | str, _copies)]


class AgreementConfig(Keys):
    """Where gateways in front of the same servers agree who loads a model. Without it each chooses by itself, by
    rendezvous hashing on names: two may load the same model for as long as an `interval`."""

    url: Annotated[Secret, AfterValidator(redis_url)]
    """The URL of a Redis or Valkey server, such as `redis://host:6379/0`. Needs the package `redis`:
    `pip install "modelglot[redis]"`."""
    name: Name
    """The same name in all gateways in front of these servers, and in no other."""


class PlacementConfig(Keys):
    """Which of the backend's servers have which models. Each server is asked what it has, and requests go to those only
    that have the model."""

    by: Literal["model"] = "model"
    """What is placed: models, by their names in the backend."""
    interval: Time = 30
    """Seconds between two questions to a server what it has, with a jitter of a tenth; also such as `1m`. It is asked
    besides when it joins, when it comes back, and when it does not have a model that it was believed to have."""
    load: Literal["never", "on_demand"] = "never"
    """`on_demand`: a model that no server has is loaded by the first request for it, if a server's repository lists it
    (V2 servers with the model repository extension). With `never` models are only looked for."""
    most: Size | None = None
    """The most models that are loaded on one server. Without it only `memory` bounds them."""
    memory: Bytes | None = None
    """The bytes that the models on one server may have together, by `sizes`; also such as `20GiB`."""
    sizes: Mapping[Name, Bytes] = {}
    """`{GLOB: BYTES}`: the sizes of models, which servers do not tell. The first glob that matches counts."""
    copies: CopiesKey = Field(1, validate_default=True)
    """On how many servers a model is loaded, such as `2` or `1..3`: at least the first number, and up to the second
    while more calls are in flight than its copies take."""
    idle: TimeOrNever = 0
    """Seconds without a call after which a model is unloaded; also such as `10m`. 0: only to make room."""
    pinned: Names = ()
    """Globs of the models that stay where they are loaded: they make no room for others, and are not unloaded when
    idle."""
    least_stay: TimeOrNever = 0
    """Seconds that a model stays at least after it was loaded, before it makes room for another one; also such as
    `1m`."""
    share: Annotated[float, Strict(), Field(gt=0, le=1)] = 1
    """The share of a server's room that one client (a principal, else an address) can take from others: beyond it, a
    model that is loaded for its calls takes the place of a model that it alone has called. 1: all of it."""
    timeout: Time = 600
    """Seconds that a server may take to load or to unload a model; also such as `10m`."""
    redis: AgreementConfig | None = None
    """Where several gateways in front of the same servers agree who loads a model."""

    @property
    def loads(self) -> bool:
        """Whether models are loaded on demand."""
        return self.load == "on_demand"


OF_LOADING = ("most", "memory", "sizes", "copies", "idle", "pinned", "least_stay", "share", "timeout", "redis")
"""The keys that say something only where models are loaded."""
