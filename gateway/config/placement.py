"""The key `backends.*.placement`: backends whose servers have different models, and model loading on demand.

Times and sizes accept units (`10m`, `20GiB`), and counts can be ranges (`1..3`).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict

from gateway.config.document import Location
from gateway.config.fields import (
    VALUE,
    Bytes,
    Keys,
    Name,
    Names,
    OrText,
    Period,
    Seconds,
    Secret,
    Size,
    Written,
    refusal,
)
from gateway.config.problems import Finding
from gateway.core.frozen import frozen
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.redis import redis_url

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIME_WRITTEN = re.compile(rf"([0-9]{{1,15}}(?:\.[0-9]{{1,9}})?) ?({'|'.join(_SECONDS)})")
_RANGE = re.compile(r"([0-9]{1,6})(?:\.\.([0-9]{1,6}))?")


def _seconds(given: Any) -> Any:
    """Return a text such as `10m` as a number of seconds. Return other values unchanged; the type validates them."""
    if not isinstance(given, str):
        return given
    found = _TIME_WRITTEN.fullmatch(given)
    if found is None:
        raise refusal(f"expected a number, or one with a unit ({', '.join(_SECONDS)}) such as 10m, got {VALUE}")
    return float(found[1]) * _SECONDS[found[2]]


@frozen
class Copies:
    """Minimum and maximum number of servers with a copy of a model."""

    least: int = 1
    most: int = 1


def _copies(given: int | str) -> Copies:
    """Return the Copies for a number such as `2` (exactly 2 copies) or a range such as `1..3`."""
    found = _RANGE.fullmatch(str(given))
    if found is None:
        raise refusal(f"expected a number of at least 1, or a range such as 1..3, got {VALUE}")
    least = int(found[1])
    copies = Copies(least, int(found[2] or least))
    if not 1 <= copies.least <= copies.most:
        raise refusal(f"expected at least 1, and the larger number last, as in 1..3, got {VALUE}")
    return copies


_TIME = OrText(pattern=r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h|d)$")

Time = Annotated[Period, BeforeValidator(_seconds), _TIME]
"""Seconds, more than 0, as a number or as a text such as `10m`."""
TimeOrNever = Annotated[Seconds, BeforeValidator(_seconds), _TIME]
"""Seconds, 0 or more, as a number or as a text such as `10m`."""
CopiesKey = Annotated[Copies, Written(Annotated[int, Strict()] | str, _copies)]


class AgreementConfig(Keys):
    """Coordination of gateways with the same servers: it determines which gateway loads a model. If this key is absent,
    each gateway decides on its own, by rendezvous hashing of names, and two gateways can load the same model within one
    `interval`."""

    url: Annotated[Secret, AfterValidator(redis_url)]
    """URL of a Redis or Valkey server, such as `redis://host:6379/0`. Needs the package `redis`: `pip install
    "modelglot[redis]"`."""
    name: Name
    """Name that all gateways with the same servers share. Gateways with other servers must use a different name."""


class PlacementConfig(Keys):
    """Settings for servers with different models. The gateway queries each server for its models, and sends requests
    only to servers that have the requested model."""

    by: Literal["model"] = "model"
    """Unit of placement: the model, identified by its name in the backend."""
    interval: Time = 30
    """Interval between inventory queries to a server, in seconds, with a random variation of up to 10%. Units are
    allowed: `1m`. The gateway also queries a server when the server joins, recovers, or reports that an expected model
    is missing."""
    loading: Literal["never", "on_demand"] = "never"
    """`on_demand`: if no server has a model, the gateway loads the model from a server's repository at the first
    request (V2 servers with the model repository extension). `never`: the gateway uses only servers that already have
    the model."""
    max_models: Size | None = None
    """Maximum number of loaded models on one server. Default: limited only by `memory`."""
    memory: Bytes | None = None
    """Maximum total size of the models on one server, according to `sizes`, in bytes. Units are allowed: `20GiB`."""
    sizes: Mapping[Name, Bytes] = {}
    """`{GLOB: BYTES}`: model sizes, because servers do not report them. The first matching glob applies."""
    copies: CopiesKey = Field(1, validate_default=True)
    """Number of servers that load a model, such as `2` or `1..3` (minimum and maximum). The gateway loads more than the
    minimum only while more calls are in flight than the existing copies can handle."""
    idle: TimeOrNever = 0
    """Idle time after which the gateway unloads a model, in seconds. Units are allowed: `10m`. 0: the gateway unloads
    models only to free capacity."""
    pinned: Names = ()
    """Globs of models that stay loaded, even if they are idle or if capacity is needed."""
    min_stay: TimeOrNever = 0
    """Minimum time between loading a model and unloading it for another model, in seconds. Units are allowed: `1m`."""
    share: Annotated[float, Strict(), Field(gt=0, le=1)] = 1
    """Maximum fraction of a server's capacity that one client (a principal, otherwise an address) can take from other
    clients. Above this fraction, a new model for the client replaces a model that only this client has called. 1: the
    entire capacity."""
    timeout: Time = 600
    """Timeout for loading or unloading a model, in seconds. Units are allowed: `10m`."""
    redis: AgreementConfig | None = None
    """Coordination of several gateways that load models on the same servers."""

    @property
    def loads(self) -> bool:
        """True if the gateway loads models on demand."""
        return self.loading == "on_demand"

    def findings(self, location: Location, protocol: Protocol | None) -> Iterator[Finding]:
        """Find inconsistent keys, and keys that the protocol does not support; None if the protocol is unknown."""
        if protocol is not None:
            yield from self._unsupported(location, protocol)
        if not self.loads:
            for key in sorted(self.model_fields_set.intersection(_OF_LOADING)):
                text = "has an effect only with `loading: on_demand`; remove the key"
                yield Finding((*location, key), text, at_key=True)
            return
        if self.memory is not None and not self.sizes:
            text = 'this key needs `sizes`, such as `{"*": 2GiB}`: servers do not report model sizes'
            yield Finding((*location, "memory"), text, at_key=True)
        if self.sizes and self.memory is None:
            text = "has an effect only with `memory`, the limit for the total size; add `memory`"
            yield Finding((*location, "sizes"), text, at_key=True)
        for glob, size in self.sizes.items():
            if self.memory is not None and size > self.memory:
                text = "no server can load models of this size, which exceeds `memory`; raise `memory`"
                yield Finding((*location, "sizes", glob), text)

    def _unsupported(self, location: Location, protocol: Protocol) -> Iterator[Finding]:
        models = protocol.traits.models
        if not (models.named or models.may_be_named or models.one_at is not None):
            text = f"{protocol.name} requests do not name a model, which placement needs; remove the key"
            yield Finding(location, text, at_key=True)
        if self.loads and Operation.LOAD not in protocol.traits.servers.extensions:
            text = f"{protocol.name} servers cannot load models on demand; expected never, got on_demand"
            yield Finding((*location, "loading"), text)


_OF_LOADING = ("max_models", "memory", "sizes", "copies", "idle", "pinned", "min_stay", "share", "timeout", "redis")
"""Keys that have an effect only if the gateway loads models."""
