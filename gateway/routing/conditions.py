"""The conditions of a route: `match` in the configuration.

Those on listener, protocol, model, version and operation depend on names alone, so that the router can cache its
decisions by RoutingKey. Those on path and headers are checked for each request.
"""

from fnmatch import fnmatchcase

from gateway.core.frozen import frozen
from gateway.core.operations import Operation
from gateway.core.types import Request


@frozen
class RoutingKey:
    """The names that a routing decision depends on."""

    listener: str
    protocol: str
    model: str
    version: str
    operation: Operation


@frozen
class Conditions:
    """`match` of a route. Empty fields hold for every request.

    `model` is exact or a glob, `path` exact or with a `*` at its end; `headers` are pairs of lower-case name and value.
    """

    listener: str = ""
    protocol: str = ""
    path: str = ""
    model: str = ""
    version: str = ""
    operation: Operation | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def per_request(self) -> bool:
        """Whether it depends on more than names: on the path or on headers."""
        return bool(self.path or self.headers)

    def holds(self, request: Request) -> bool:
        """Whether the conditions on path and headers hold."""
        return _path_matches(self.path, request.path) and all(
            request.headers.get(name) == text for name, text in self.headers
        )

    def names(self, key: RoutingKey, model: str, operation: Operation) -> bool:
        """Whether the conditions on names hold for a request with this `key`, read as one for `model` and
        `operation`."""
        return (
            self.listener in ("", key.listener)
            and self.protocol in ("", key.protocol)
            and self.version in ("", key.version)
            and self.operation in (None, operation)
            and (not self.model or (model != "" and fnmatchcase(model, self.model)))
        )

    @property
    def exact(self) -> bool:
        """Whether `model` is a name and not a glob."""
        return bool(self.model) and not any(mark in self.model for mark in "*?[")


def _path_matches(wanted: str, path: str) -> bool:
    if wanted.endswith("*"):
        return path.startswith(wanted[:-1])
    return wanted in ("", path)
