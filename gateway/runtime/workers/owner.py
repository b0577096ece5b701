"""Manages the state of backends that all workers share. The supervisor creates it.

The supervisor's Backends send no calls. Their Slots choose endpoints, count slots, manage queues, and track the models
on servers, as in a gateway with one process. A slot is in use from the moment a worker receives it until the worker
returns it or exits.

A worker changes to a new configuration slightly later than the supervisor, and the worker's requests in flight keep the
old one. Therefore, each call carries the generation number of its configuration, and the supervisor keeps the Backends
of a generation until the last worker has left the generation.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gateway.assembly.assembly import RequestsInFlight
from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen
from gateway.core.queue_wait import queue_wait
from gateway.core.requests import Request
from gateway.core.surviving import log_and_continue
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.slots import Ended
from gateway.runtime.workers.slots import (
    RelayedEndpoint,
    RequestValues,
    error_from_values,
    pickled_answer,
    request_from_values,
    unpickled_request,
)

if TYPE_CHECKING:
    from gateway.runtime.app import Gateway


@frozen
class Generation:
    """The supervisor's Backends for one configuration. `users` counts the workers that use them."""

    number: int
    backends: Mapping[str, Backend]
    users: RequestsInFlight


class HeldSlots:
    """The slots that one worker holds, in the generations that it uses."""

    def __init__(self) -> None:
        self._generations: dict[int, Generation] = {}
        self._held: dict[int, Ended] = {}
        """The functions to call at the end of a call, by slot number."""
        self._last = 0

    def join(self, generation: Generation) -> None:
        """Register that the worker will use a generation."""
        if generation.number not in self._generations:
            self._generations[generation.number] = generation
            generation.users.began()

    def leave(self, number: int) -> None:
        """Register that the worker has no more requests of this generation. If the worker has already left, do
        nothing."""
        if (left := self._generations.pop(number, None)) is not None:
            left.users.ended()

    def take(self, generation: int, name: str, asked: RequestValues, tried: Sequence[str], is_kept: bool) -> Any:
        """Return the slot for a request of a generation, or an awaitable for the slot.

        A slot consists of its number, the endpoint's address, and the request's position in the queue (0 if it did not
        wait). The number is 0 if the request takes no slot, or if `is_kept` is False, in which case this method returns
        the slot immediately.

        Raises:
            GatewayError: `Slots.free` or `Slots.wait` raised it.
        """
        backend, request = self._generations[generation].backends[name], request_from_values(asked)
        endpoints = _endpoints(backend, tried)
        endpoint = backend.slots.free(request, endpoints)
        if endpoint is None:
            return self._wait(backend, request, endpoints)
        if request.operation not in backend.local.with_slot:
            return 0, endpoint.address, 0
        if not is_kept:
            endpoint.give_back()
            return 0, endpoint.address, 0
        return self._handed_out(backend, request, endpoint, 0)

    async def again(
        self,
        generation: int,
        name: str,
        asked: RequestValues,
        failed: tuple[Any, ...],
        tried: Sequence[str],
        rounds: int,
    ) -> tuple[bool, list[str] | None] | None:
        """Decide whether to repeat a failed request, like `Slots.again`.

        Return None if the request must not be repeated. Otherwise, return a flag, which is True if the call can return
        to tried endpoints, and the addresses to avoid, or None."""
        backend, request = self._generations[generation].backends[name], request_from_values(asked)
        try:
            again = await backend.slots.again(request, error_from_values(failed), _endpoints(backend, tried), rounds)
        except GatewayError:
            return None
        if again is None or again is request or again.tries is None:
            return again is not None, None
        return True, list(again.tries.avoided)

    async def answer(self, generation: int, name: str, asked: bytes) -> bytes:
        """Return the response to a request that does not go to one endpoint.

        Raises:
            GatewayError: the function in `Slots.answers` raised it.
        """
        request, slots = unpickled_request(asked), self._generations[generation].backends[name].slots
        return pickled_answer(await slots.answers[request.operation](request))

    def give_back(self, slot: int, answered: bool) -> None:
        """Take back a slot. `answered` is True if the call received a response."""
        self._held.pop(slot)(answered)

    def end(self) -> None:
        """Take back all slots and leave all generations, because the worker has exited."""
        held, self._held = self._held, {}
        for ended in held.values():
            with log_and_continue("giving back the slots of a worker that has ended"):
                ended(False)
        for number in tuple(self._generations):
            self.leave(number)

    async def _wait(self, backend: Backend, request: Request, tried: Sequence[Endpoint]) -> tuple[int, str, int]:
        # A slot could have become free before this task began. In that case, nothing else would pass it on.
        endpoint = backend.slots.free(request, tried) or await backend.slots.wait(request, tried)
        waited = queue_wait.get()  # runs in its own task, which waits for nothing else
        place = 0 if waited is None else waited.place
        if request.operation not in backend.local.with_slot:
            return 0, endpoint.address, place
        return self._handed_out(backend, request, endpoint, place)

    def _handed_out(self, backend: Backend, request: Request, endpoint: Endpoint, place: int) -> tuple[int, str, int]:
        self._last += 1
        self._held[self._last] = backend.slots.began(request, endpoint)
        return self._last, endpoint.address, place


def _endpoints(backend: Backend, addresses: Sequence[str]) -> tuple[Endpoint, ...]:
    """Return a backend's endpoints with these addresses."""
    return tuple(each for each in backend.endpoints if each.address in addresses)


def endpoint_of(gateway: "Gateway", backend: str, address: str) -> RelayedEndpoint | None:
    """Return a backend's endpoint with this address, or None if it does not exist."""
    found = gateway.state.assembly.backends.get(backend)
    each = None if found is None else next((each for each in found.endpoints if each.address == address), None)
    return each if isinstance(each, RelayedEndpoint) else None
