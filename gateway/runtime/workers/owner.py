"""Backends whose state holds for all workers: the supervisor's side.

The supervisor's Backends send no calls. They choose endpoints, count slots and keep queues, as they do in a gateway of
one process; a slot is taken when a worker gets it, and given back when the worker says so or ends.

A worker changes to another configuration a moment after the supervisor, and its requests in flight end as they began.
So each call names the generation of the configuration that it began with, and the supervisor keeps the Backends of a
generation until the last worker has left it.
"""

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from gateway.assembly.in_flight import RequestsInFlight
from gateway.core.frozen import frozen
from gateway.core.operations import Operation
from gateway.core.queue_wait import queue_wait
from gateway.core.surviving import surviving
from gateway.core.types import Request, Tries
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.runtime.workers.slots import RelayedEndpoint

if TYPE_CHECKING:
    from gateway.runtime.app import Gateway


@frozen
class Generation:
    """The supervisor's Backends of one configuration. `users` keeps them in use."""

    number: int
    backends: Mapping[str, Backend]
    users: RequestsInFlight


class HeldSlots:
    """The slots that one worker holds, in the generations that it uses."""

    def __init__(self) -> None:
        self._generations: dict[int, Generation] = {}
        self._held: dict[int, tuple[Endpoint, Backend, float]] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._held)

    def join(self, generation: Generation) -> None:
        """The worker is about to use a generation."""
        if generation.number not in self._generations:
            self._generations[generation.number] = generation
            generation.users.began()

    def leave(self, number: int) -> None:
        """The worker has no more requests of this generation; nothing happens if it has left already."""
        if (left := self._generations.pop(number, None)) is not None:
            left.users.ended()

    def take(
        self,
        generation: int,
        name: str,
        operation: str,
        client: str,
        model: str,
        parameters: dict[str, Any],
        tried: Sequence[str],
        avoided: tuple[Sequence[str], bool] | None,
        is_kept: bool,
    ) -> Any:
        """The slot for a call of a generation, or an awaitable of it: its number, the address of the endpoint, and the
        place in the queue that the call had (0 if it did not wait). Without `is_kept` the slot is given back at once:
        only the endpoint was asked for, and the number is 0.

        Raises:
            GatewayError: as `Backend.__call__`.
        """
        backend = self._generations[generation].backends[name]
        tries = None if avoided is None else Tries(avoided=frozenset(avoided[0]), elsewhere=avoided[1])
        request = Request(Operation(operation), model, parameters=parameters, peer=f"{client}:0", tries=tries)
        endpoint = backend.free_slot(request, tuple(each for each in backend.endpoints if each.address in tried))
        if endpoint is None:
            return self._wait(backend, request)
        if not is_kept:
            endpoint.give_back()
            return 0, endpoint.address, 0
        return self._handed_out(backend, endpoint, 0)

    def give_back(self, slot: int, answered: bool) -> None:
        """Give a slot back. `answered`: the call was answered."""
        endpoint, backend, began = self._held.pop(slot)
        if answered:
            backend.waiting_calls.times.add(monotonic() - began)
        endpoint.give_back()

    def end(self) -> None:
        """Give back all slots, and leave all generations: the worker has ended."""
        held, self._held = self._held, {}
        for endpoint, *_ in held.values():
            with surviving("giving back the slots of a worker that has ended"):
                endpoint.give_back()
        for number in tuple(self._generations):
            self.leave(number)

    async def _wait(self, backend: Backend, request: Request) -> tuple[int, str, int]:
        endpoint = await backend.next_slot(request)
        waited = queue_wait.get()  # this runs in a task of its own, which waits for nothing else
        return self._handed_out(backend, endpoint, 1 if waited is None else waited.place)

    def _handed_out(self, backend: Backend, endpoint: Endpoint, place: int) -> tuple[int, str, int]:
        self._last += 1
        self._held[self._last] = endpoint, backend, monotonic()
        return self._last, endpoint.address, place


def endpoint_of(gateway: "Gateway", backend: str, address: str) -> RelayedEndpoint | None:
    """The endpoint of a backend with this address; None if there is none (any more)."""
    found = gateway.backends.get(backend)
    each = None if found is None else next((each for each in found.endpoints if each.address == address), None)
    return each if isinstance(each, RelayedEndpoint) else None
