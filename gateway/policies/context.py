"""The data that a policy receives about its owner (a backend or a route), and the state that its Handlers share.
`assembly.policing` creates this data."""

from collections.abc import Awaitable, Callable
from copy import copy
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from gateway.core.frozen import frozen
from gateway.core.models import Signature
from gateway.core.operations import CALLS, CONTROL_OPERATIONS
from gateway.core.protocol import DEFAULT_LIMITS, Limits, Rows
from gateway.core.requests import Request
from gateway.core.transport import Handler

T = TypeVar("T")


@frozen
class OtherBackend:
    """A backend in addition to the route's own backend, with the additional backend's names for models and tensors.
    None means the same name as in the route's own backend.

    `inputs` and `outputs` are pairs of a tensor's name for clients and its name in the backend."""

    name: str
    model: str | None = None
    version: str | None = None
    inputs: tuple[tuple[str, str], ...] | None = None
    outputs: tuple[tuple[str, str], ...] | None = None


@frozen
class MessageReach:
    """The parts of a client's message that reach the servers in addition to the canonical request.

    - `headers`: the names of headers that are forwarded.
    - `forms`: the client protocols in which tensors have several formats (payloads) and servers receive the client's
      format.
    - `is_unfitted`: the policy sees untranslated client requests and responses, which depend on the client's protocol.
    """

    headers: tuple[str, ...] = ()
    forms: frozenset[str] = frozenset()
    is_unfitted: bool = False


Beside: TypeAlias = Callable[[OtherBackend], Handler]
"""Returns a Handler that sends requests to another backend, adapted to that backend like the route's own requests."""


def _never(watcher: Callable[[], None]) -> None:
    """Ignore `watcher`, because the servers always have the same models."""


def _nothing_beside(backend: OtherBackend) -> Handler:
    raise LookupError(f"cannot reach backend {backend.name!r} from here; only routes can")


async def _unknown(model: str, version: str) -> Signature:
    return Signature()


@frozen
class KnownModels:
    """Data about a backend's models and the format of their requests, for the backend's policies.

    - `signature`: returns the signature of a model and version, by the backend's names; empty if the signature is
      unknown. Signatures are cached. Raises GatewayError like the backend.
    - `rows`: the way in which the tensors in a call contain the rows of a batch.
    - `have_config`: True if the backend's servers might report a model's configuration (Operation.CONFIG).
    - `forward_headers`: names, in lower case, of the client headers that are forwarded.
    """

    signature: Callable[[str, str], Awaitable[Signature]] = _unknown
    rows: Rows = Rows.FREE
    have_config: bool = False
    forward_headers: tuple[str, ...] = ()
    limits: Limits = DEFAULT_LIMITS


class PolicyContext:
    """Describes the backend or route to which a list of `policies` belongs.

    - `owner`: the owner's name in log lines, such as `backend 'triton'`.
    - `safe`: True if calls that run a model are idempotent, and the gateway can therefore repeat them.
    - `endpoints`: returns the number of endpoints to which a call can go.
    - `clock`: returns the time in seconds, for intervals.
    - `reach`: the parts of a client's message that reach the servers in addition to the canonical request.
    - `on_new_models`: registers a function to call when the servers might have different models.
    - `beside`: provides access to other backends, for the clients of the wrapped Handler. Only for policies of routes.
    - `models`: data about the models. Only for policies of backends.
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
        """Return a state that only the Handlers of one item in the list of policies use. `make` creates the state for
        the first Handler. The state ends with this context. For a state that `/status` shows, see ShownStates.

        A route has many Handlers (for each client protocol, for streams, ...), and `wrap` runs for each of them.
        `settings` identifies the item."""
        if id(settings) not in self._hidden_states:
            self._hidden_states[id(settings)] = settings, make()
        made: T = self._hidden_states[id(settings)][1]
        return made

    def with_beside(self, beside: Beside) -> "PolicyContext":
        """Return a copy of this context for the Handler of some clients. `beside` can send their requests to other
        backends."""
        context = copy(self)
        context.beside = beside
        return context

    def may_repeat(self, request: Request) -> bool:
        """Return True if the gateway can send `request` again even if a server might have received it.

        Calls that run a model are repeatable only if `safe` is True and they do not belong to a sequence, whose state
        they change. Queries, for example for metadata, are always repeatable. Operations that change a server
        (CONTROL_OPERATIONS) are never repeatable."""
        if request.operation in CALLS:
            has_sequence = request.unread is None and request.parameters.get("sequence_id")
            return self.safe and not has_sequence
        return request.operation not in CONTROL_OPERATIONS
