"""Describes the part of a gateway that a process runs.

With one worker, the process is the complete gateway. With several workers, each worker serves the listeners, and the
supervisor manages the backends' state and serves the other ports.
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
    """The load of one or more processes: bytes of message bodies in memory, and maximum event-loop lag in seconds."""

    memory: int
    lag: float


class WorkerTotals(typing.Protocol):
    """The totals of all workers' reports."""

    @property
    def graph_steps(self) -> Mapping[tuple[str, str], Counter[str]]:
        """The counts of each graph step, by graph name and step name."""

    def load(self) -> ProcessLoad:
        """The load of all workers together."""

    def shedding(self) -> SheddingState | None:
        """The load shedding of all workers together, or None if load shedding is not configured."""

    def policies(self) -> ReportedStates:
        """The location, the name and the state of each policy in all workers."""

    def policy_numbers(self) -> Numbers:
        """The values of the policies' metrics, including the counts of workers that have ended."""


class Workers(typing.Protocol):
    """The workers of a supervisor.

    The supervisor's part of the gateway reports the workers' state, and forwards operator actions to the workers."""

    @property
    def totals(self) -> WorkerTotals:
        """The totals of the workers' reports."""

    @property
    def process(self) -> "Collector":
        """The statistics of the supervisor process and the worker processes, for Prometheus."""

    def is_one_ready(self) -> bool:
        """Return True if at least one worker is ready."""

    def numbers(self) -> tuple[int, int]:
        """Return the number of running workers, and the number of restarts."""

    def principal_states(self, name: str) -> ReportedStates:
        """For each policy whose state all workers share, return its location, its name, and the state of one
        principal."""

    async def gather(self) -> None:
        """Fetch the workers' current counts for a report."""

    async def clear_caches(self, place: str) -> None:
        """Clear the workers' caches at `place`, or all their caches if `place` is empty."""

    async def tell_drained(self) -> None:
        """Make the workers stop sending calls to endpoints that are now drained, and resume sending calls to the other
        endpoints."""

    async def has_calls(self, protocol: str, address: str) -> bool:
        """Return True if a worker has calls in flight to the endpoint with this protocol and address."""


@frozen
class GatewayPart:
    """The work that one process does for the gateway."""

    serves: bool = True
    """True if the process binds the listeners."""
    has_references: bool = True
    """True if the process runs the configured sample servers (`reference`)."""
    has_ports: bool = True
    """True if the process binds the health port and the status API."""
    probes: bool = True
    """True if the process probes the backends' endpoints."""
    slots: Callable[[LocalSlots, Protocol], Slots] | None = None
    """Creates the Slots for a backend whose slots another process controls, from local data about the backend's
    endpoints. If this field is None, this process controls the slots."""
    endpoint: Callable[..., Endpoint] = Endpoint
    """Creates endpoints, with the same arguments as the class Endpoint."""
    prepare: Callable[[Any], None] | None = None
    """A callback that receives each new Assembly."""
    workers: Workers | None = None
    """The workers that this process starts. If this field is None, reports and actions cover only this process."""


WHOLE = GatewayPart()
"""The part for a gateway with a single process."""
