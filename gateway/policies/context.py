"""The data that a policy has about the place where it stands, and the state that its Handlers share."""

from collections.abc import Awaitable, Callable
from copy import copy
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from gateway.core.frozen import frozen
from gateway.core.operations import CALLS, CONTROL_OPERATIONS
from gateway.core.protocol import DEFAULT_LIMITS, Limits, Rows
from gateway.core.transport import Handler
from gateway.core.types import Request, Signature

T = TypeVar("T")


@frozen
class OtherBackend:
    """A backend that a route does not name, and what its models are called there. None: as in the route's own.

    `inputs` and `outputs` are pairs of a tensor's name for clients and its name in the backend.
    """

    name: str
    model: str | None = None
    version: str | None = None
    inputs: tuple[tuple[str, str], ...] | None = None
    outputs: tuple[tuple[str, str], ...] | None = None


@frozen
class MessageReach:
    """The parts of a client's message that get to the servers beside the canonical request.

    - `headers`: the names of the headers that are forwarded.
    - `forms`: the clients' protocols in which tensors have several forms (payloads), and the servers get the client's.
    - `is_unfitted`: requests are as clients sent them, and answers as clients get them: their protocol matters.
    """

    headers: tuple[str, ...] = ()
    forms: frozenset[str] = frozenset()
    is_unfitted: bool = False


Beside: TypeAlias = Callable[[OtherBackend], Handler]
"""Makes a Handler that sends requests to another backend, fitted to it as a route's requests are."""


def _never(watcher: Callable[[], None]) -> None:
    """Servers that always have the same models."""


def _nothing_beside(backend: OtherBackend) -> Handler:
    raise LookupError(f"this place has no way to backend {backend.name!r}; only routes have")


async def _unknown(model: str, version: str) -> Signature:
    return Signature()


@frozen
class KnownModels:
    """The data that a policy of a backend has about its models, and of how requests are sent to them.

    - `signature`: that of a model and version, under the names that the backend has; without tensors if nobody knows
      it. It is remembered for a while. Raises GatewayError as the backend does.
    - `rows`: how the tensors of a call hold the rows of a batch.
    - `have_config`: the backend's servers may tell the configuration of a model (Operation.CONFIG).
    - `forward_headers`: names, in lower case, of the client headers that are passed on.
    """

    signature: Callable[[str, str], Awaitable[Signature]] = _unknown
    rows: Rows = Rows.FREE
    have_config: bool = False
    forward_headers: tuple[str, ...] = ()
    limits: Limits = DEFAULT_LIMITS


class PolicyContext:
    """The place of a list of `policies`: a backend or a route.

    - `owner`: how log lines name it, such as `backend 'triton'`.
    - `safe`: calls that run a model have no side effects (are idempotent), so the gateway may repeat them.
    - `endpoints`: the number of endpoints that a call can go to.
    - `clock`: seconds, for intervals.
    - `reach`: what of a client's message gets to the servers beside the canonical request.
    - `on_new_models`: has its argument called when the servers may have other models than before.
    - `beside`: the way to other backends, for the clients of the Handler that is wrapped; only routes have one.
    - `models`: what is known of the models; only of use on backends.
    """

    def __init__(
        self,
        owner: str,
        *,
        safe: bool = False,
        endpoints: Callable[[], int] = lambda: 1,
        clock: Callable[[], float] = monotonic,
        reach: MessageReach | None = None,
        on_new_models: Callable[[Callable[[], None]], None] = _never,
    ) -> None:
        self.owner = owner
        self.safe = safe
        self.endpoints = endpoints
        self.clock = clock
        self.reach = reach or MessageReach()
        self.on_new_models = on_new_models
        self.beside: Beside = _nothing_beside
        self.models = KnownModels()
        self._hidden_states: dict[int, tuple[object, Any]] = {}

    def hidden_state(self, settings: object, make: Callable[[], T]) -> T:
        """The state of one item of the list, which nobody but its Handlers knows; for one that `/status` shows see
        ShownStates. `make` makes it when the first Handler asks. It ends with this context.

        A route has many Handlers (for each client protocol, for streams, ...), and `wrap` is called for each.
        `settings` identifies the item.
        """
        if id(settings) not in self._hidden_states:
            self._hidden_states[id(settings)] = settings, make()
        made: T = self._hidden_states[id(settings)][1]
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
            has_sequence = request.unread is None and request.parameters.get("sequence_id")
            return self.safe and not has_sequence
        return request.operation not in CONTROL_OPERATIONS
