"""What a request must be for a route to take it."""

from fnmatch import fnmatchcase

from gateway.core.frozen import frozen
from gateway.core.operations import Operation
from gateway.core.types import Request


@frozen
class RoutingKey:
    """What a routing decision depends on."""

    listener: str
    protocol: str
    model: str
    version: str
    operation: Operation


@frozen
class Conditions:
    """`match` of a route; an empty one holds for everything. `model` is exact or a glob, `path` exact or with a
    trailing `*`; `headers` are pairs of lower-case name and value."""

    listener: str = ""
    protocol: str = ""
    path: str = ""
    model: str = ""
    version: str = ""
    operation: Operation | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def per_request(self) -> bool:
        """Whether a decision cannot be remembered by names alone."""
        return bool(self.path or self.headers)

    def holds(self, request: Request) -> bool:
        """Whether the parts that cannot be remembered hold."""
        return _path_matches(self.path, request.path) and all(
            request.headers.get(name) == text for name, text in self.headers
        )

    def names(self, key: RoutingKey, model: str, operation: Operation) -> bool:
        """Whether the parts that can be remembered hold."""
        return (
            self.listener in ("", key.listener)
            and self.protocol in ("", key.protocol)
            and self.version in ("", key.version)
            and self.operation in (None, operation)
            and (not self.model or (model != "" and fnmatchcase(model, self.model)))
        )

    @property
    def exact(self) -> bool:
        """Whether the model is one name."""
        return bool(self.model) and not any(mark in self.model for mark in "*?[")


def _path_matches(wanted: str, path: str) -> bool:
    if wanted.endswith("*"):
        return path.startswith(wanted[:-1])
    return wanted in ("", path)
