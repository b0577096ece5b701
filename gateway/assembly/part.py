"""The part of a gateway that a process runs.

If there is one worker, the process is the complete gateway. If there are several workers, one process owns the
backends' state and serves the ports that are not listeners, and each worker serves the listeners.
"""

import typing
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from gateway.core.frozen import frozen
from gateway.core.protocol import Protocol
from gateway.policies.places import Numbers, ReportedStates
from gateway.routing.endpoint import Endpoint
from gateway.routing.slots import LocalSlots, Slots
from gateway.transports.shedding import SheddingState

if typing.TYPE_CHECKING:
    from prometheus_client.registry import Collector


@frozen
class ProcessLoad:
    """The load of processes: the bytes of message bodies, and the maximum delay of an event loop in seconds."""

    memory: int
    lag: float


class WorkerTotals(typing.Protocol):
    """The sums of the reports of all workers."""

    @property
    def graph_steps(self) -> Mapping[tuple[str, str], Counter[str]]:
        """The counts of each step of a graph, by the names of both."""

    def load(self) -> ProcessLoad:
        """The load of all workers together."""

    def shedding(self) -> SheddingState | None:
        """The load shedding of all workers together; None if load shedding is not configured."""

    def policies(self) -> ReportedStates:
        """The place, name and state of the policies of all workers."""

    def policy_numbers(self) -> Numbers:
        """The numbers of the policies' metrics, with the counts of workers that have ended."""


class Workers(typing.Protocol):
    """The workers of a supervisor.

    The supervisor's own part of the gateway reports about them, and passes on to them the actions of operators."""

    @property
    def totals(self) -> WorkerTotals:
        """The sums of their reports."""

    @property
    def process(self) -> "Collector":
        """The statistics of their processes and of the supervisor's, for Prometheus."""

    def is_one_ready(self) -> bool:
        """Return True if a worker is ready."""

    def numbers(self) -> tuple[int, int]:
        """The number of running workers, and the number of restarts."""

    def principal_states(self, name: str) -> ReportedStates:
        """For the policies whose state all workers share: the place, the policy, and the state of one principal."""

    async def gather(self) -> None:
        """Fetch the counts of the workers before they are reported."""

    async def clear_caches(self, place: str) -> None:
        """Clear the caches of the workers at `place`, or all of their caches if `place` is empty."""

    async def tell_drained(self) -> None:
        """Make the workers send no more calls to the endpoints that are drained now, and send calls again to other
        endpoints."""

    async def has_calls(self, protocol: str, address: str) -> bool:
        """Return True if a worker has calls in flight to the endpoint with this protocol and address."""


@frozen
class GatewayPart:
    """The part of a gateway's work that a process does."""

    serves: bool = True
    """True if it binds the listeners."""
    has_references: bool = True
    """True if it runs the sample servers of the configuration (`reference`)."""
    has_ports: bool = True
    """True if it binds the health port and the status API."""
    probes: bool = True
    """True if it probes the endpoints of backends."""
    slots: Callable[[LocalSlots, Protocol], Slots] | None = None
    """Makes the Slots of a backend of this protocol that another part controls, from local data about its endpoints.

    If it is None, this part controls them."""
    endpoint: Callable[..., Endpoint] = Endpoint
    """Makes the endpoints, with the arguments of the class."""
    prepare: Callable[[Any], None] | None = None
    """A function that is called with each new Assembly."""
    workers: Workers | None = None
    """The workers that this part starts. If it is None, this part reports and acts only for its own process."""


WHOLE = GatewayPart()
"""The part of the only process of a gateway."""
