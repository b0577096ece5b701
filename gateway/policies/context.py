"""What a policy knows of the place where it stands, and the state that its Handlers share."""

from collections.abc import Callable
from copy import copy
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from gateway.core.operations import CALLS, CONTROL_OPERATIONS
from gateway.core.transport import Handler
from gateway.core.types import Request

T = TypeVar("T")

Beside: TypeAlias = Callable[[str, str | None, str | None], Handler]
"""Makes a Handler that sends requests to another backend, fitted to it as a route's requests are. The arguments are the
backend's name, and the model's name and version there; None: those that the route's own backend gets."""


def _nothing_beside(backend: str, model: str | None, version: str | None) -> Handler:
    raise LookupError(f"this place has no way to backend {backend!r}; only routes have")


class PolicyContext:
    """The place of a list of `policies`: a backend or a route.

    - `owner`: how log lines name it, such as `backend 'triton'`.
    - `safe`: calls that run a model may be repeated, because they have no side effects.
    - `endpoints`: the number of endpoints that a call can go to.
    - `clock`: seconds, for intervals.
    - `beside`: the way to other backends, for the clients of the Handler that is wrapped; only routes have one.
    """

    def __init__(
        self,
        owner: str,
        *,
        safe: bool = False,
        endpoints: Callable[[], int] = lambda: 1,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.owner = owner
        self.safe = safe
        self.endpoints = endpoints
        self.clock = clock
        self.beside: Beside = _nothing_beside
        self._shared: dict[int, tuple[object, Any]] = {}

    def shared(self, settings: object, make: Callable[[], T]) -> T:
        """What all Handlers of one item of the list share. `make` makes it when the first one asks.

        A route has many Handlers (for each client protocol, for streams, ...), and `wrap` is called for each.
        `settings` identifies the item.
        """
        if id(settings) not in self._shared:
            self._shared[id(settings)] = settings, make()
        made: T = self._shared[id(settings)][1]
        return made

    def with_beside(self, beside: Beside) -> "PolicyContext":
        """This place, for the Handler of some of its clients, with the way of their requests to other backends."""
        context = copy(self)
        context.beside = beside
        return context

    def may_repeat(self, request: Request) -> bool:
        """Whether `request` may be sent again after a server may have seen it.

        Calls that run a model need `safe`, and must not belong to a sequence, whose state they change. Questions, for
        metadata for instance, may always be repeated; changes of a server (CONTROL_OPERATIONS) never.
        """
        if request.operation in CALLS:
            return self.safe and not request.parameters.get("sequence_id")
        return request.operation not in CONTROL_OPERATIONS
