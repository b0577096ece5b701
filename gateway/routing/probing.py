"""Active probes of endpoints.

The gateway queries whether each endpoint is live or ready, with requests in the backend's protocol.

A probe takes no slot, passes through no policies, and does not count as client traffic. Its result affects the
endpoint's health. The gateway does not probe an endpoint that cannot respond during its current call
(`LocalSlots.is_busy`), because this endpoint is slow but not dead. For the same reason, a probe without a response does
not count if the endpoint has answered a call since the probe began, or is now busy with a call.
"""

import asyncio
import random
from collections.abc import Callable

from gateway.core.errors import DecodeError, GatewayError, Reason, TransportError
from gateway.core.frozen import frozen
from gateway.core.operations import Operation
from gateway.core.surviving import log_and_continue
from gateway.core.tasks import spawn
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint


@frozen
class Probes:
    """The settings for probing a backend.

    `operation` is LIVE or READY. `interval` and `timeout` are in seconds. `unhealthy` consecutive failed probes take an
    endpoint down; `healthy` consecutive passed probes bring it up again. `jitter` is the maximum fraction of `interval`
    by which each wait is randomly longer or shorter."""

    operation: Operation
    interval: float = 5.0
    timeout: float = 2.0
    unhealthy: int = 3
    healthy: int = 1
    jitter: float = 0.1


class Prober:
    """Probes the current endpoints of one backend. At most one probe per endpoint runs at a time.

    `randomly` returns random numbers from 0 to 1."""

    def __init__(
        self,
        backend: Backend,
        probes: Probes,
        clock: Callable[[], float],
        randomly: Callable[[], float] = random.random,
    ) -> None:
        backend.is_probed = True
        self._backend = backend
        self._probes = probes
        self._clock = clock
        self._random = randomly
        self._loop: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start probing, in a separate task."""
        self._loop = spawn(self._run())

    def cancel(self) -> None:
        """Stop starting probes, and cancel running probes."""
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Stop probing, and wait until running probes have ended."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _tasks(self) -> "list[asyncio.Task[None]]":
        return [*self._running, *([self._loop] if self._loop else [])]

    async def _run(self) -> None:
        while True:  # noqa: ASYNC110 - it waits for time to pass
            await asyncio.sleep(self.round())

    def round(self) -> float:
        """Start the probes that are due. Return the time until the next round, in seconds."""
        now = self._clock()
        following = now + self._probes.interval
        for endpoint in self._backend.endpoints:
            if endpoint.next_probe is None:
                # Spread the probes over this time, because many endpoints or gateways often start together.
                endpoint.next_probe = now + self._probes.interval * self._probes.jitter * self._random()
            if endpoint.next_probe <= now:
                endpoint.next_probe = now + self._wait()
                with log_and_continue(f"beginning a probe of {endpoint.address}"):
                    if endpoint.probe is None and not self._backend.local.is_busy(endpoint):
                        self._start(endpoint)
            following = min(following, endpoint.next_probe)
        return following - now

    def _wait(self) -> float:
        return self._probes.interval * (1 + self._probes.jitter * (2 * self._random() - 1))

    def _start(self, endpoint: Endpoint) -> None:
        task = endpoint.probe = spawn(self._probe_once(endpoint))
        self._running.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._running.discard(task)
            endpoint.probe = None

        task.add_done_callback(ended)

    async def _probe_once(self, endpoint: Endpoint) -> None:
        with log_and_continue(f"a probe of {endpoint.address}"):
            await self._probe(endpoint)

    async def _probe(self, endpoint: Endpoint) -> None:
        probes, answers = self._probes, endpoint.health.answers
        try:
            async with asyncio.timeout(probes.timeout):
                await self._backend.probe(probes.operation, endpoint)
        except TimeoutError:
            why, refused = f"no answer within {probes.timeout:g} s", False
        except GatewayError as error:
            why, refused = _text(error), error.reason is Reason.NOT_READY
        else:
            endpoint.probe_passed(probes.healthy)
            return
        if refused or not (endpoint.health.answers != answers or self._backend.local.is_busy(endpoint)):
            endpoint.probe_failed(f"probe: {why}", probes.unhealthy, refused=refused)


def _text(error: GatewayError) -> str:
    """Return the error message without the backend's name, which the log and `/status` add."""
    cause = error.__cause__
    return str(cause if isinstance(cause, TransportError | DecodeError) else error)
