"""The part of a gateway that a process runs. With one worker, the process is the complete gateway. With several, one
process owns the backends' state and serves the ports that are not listeners, and each worker serves the listeners."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from gateway.core.frozen import frozen
from gateway.core.protocol import Protocol
from gateway.policies.places import Numbers
from gateway.routing.endpoint import Endpoint
from gateway.routing.slots import LocalSlots, Slots


@frozen
class ProcessLoad:
    """The load of processes: the bytes of message bodies, and the maximum delay of an event loop in seconds."""

    memory: int
    lag: float


def _always() -> bool:
    return True


@frozen
class GatewayPart:
    """The part of a gateway's work that a process does."""

    serves: bool = True
    """It binds the listeners."""
    has_references: bool = True
    """It runs the sample servers of the configuration (`reference`)."""
    has_ports: bool = True
    """It binds the health port and the status API."""
    probes: bool = True
    """It probes the endpoints of backends."""
    slots: Callable[[LocalSlots, Protocol], Slots] | None = None
    """Makes the Slots of a backend of this protocol that another part controls, from local data about its endpoints;
    None: this part controls them."""
    endpoint: Callable[..., Endpoint] = Endpoint
    """Makes the endpoints, with the arguments of the class."""
    prepare: Callable[[Any], None] | None = None
    """Called with each new Assembly."""
    is_ready: Callable[[], bool] = _always
    """Returns True if the other parts are ready."""
    gather: Callable[[], Awaitable[None]] | None = None
    """Fetches the counts of the other parts before they are reported."""
    load: Callable[[], ProcessLoad] | None = None
    """The load of all processes together; None: of this one."""
    workers: Callable[[], tuple[int, int]] | None = None
    """The number of running workers, and the number of restarts."""
    process: Any = None
    """A Prometheus Collector instead of the one for this process."""
    policies: Callable[[], Sequence[tuple[str, str, Mapping[str, object]]]] | None = None
    """Place, name and state of the policies of the other parts."""
    principal_states: Callable[[str], Sequence[tuple[str, str, Mapping[str, object]]]] | None = None
    """Place, policy, and the state of one principal, of the policies whose state all parts share."""
    policy_numbers: Callable[[], Numbers] | None = None
    """The numbers of the policies' metrics, with the counts of processes that have ended."""
    clear_caches: Callable[[str], Awaitable[None]] | None = None
    """Clears the caches of the other parts: the caches at this place, or all if it is empty."""
    tell_drained: Callable[[], Awaitable[None]] | None = None
    """Makes the other parts send no more calls to the endpoints that this part has drained, and send calls again to
    other endpoints."""
    has_calls: Callable[[str, str], Awaitable[bool]] | None = None
    """Returns True if one of the other parts has calls in flight to the endpoint with this protocol and address."""
    shedding: Callable[[], Any] | None = None
    """Refuses work for the other parts, like a Shedding; None: this process does."""


WHOLE = GatewayPart()
"""The only process of a gateway."""
