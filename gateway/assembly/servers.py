"""Connects backends to the fleets (sets of started servers) that run their servers.

If a reload does not change a fleet, the fleet continues to run.
"""

import asyncio
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from gateway.config.backends import BackendConfig
from gateway.config.servers import ServersConfig, state_folder
from gateway.core.frozen import frozen, replace
from gateway.core.protocol import Target
from gateway.core.surviving import all_surviving
from gateway.core.tasks import spawn
from gateway.core.transport import Connector
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.on_demand import CountedEndpoint, StartedSlots
from gateway.routing.readiness import is_ready
from gateway.servers.consumer import Use
from gateway.servers.engine import Engine, EngineError, Resources
from gateway.servers.fleet import StartedServers, fitting
from gateway.servers.jobs import Jobs
from gateway.servers.settings import ServersSettings
from gateway.servers.state_file import StateFile

ASKED_SECONDS = 2.0
"""The time limit for a readiness query to a starting server, in seconds."""


@frozen
class Wiring:
    """The functions of an Assembly that the servers of one backend use.

    `endpoint` returns the Endpoint of an address, `release` releases an endpoint that the backend has lost, `connect`
    creates an unshared Connector, and `why_not` returns the reason why an address cannot belong to the backend."""

    endpoint: Callable[[str], Endpoint]
    release: Callable[[Endpoint], None]
    connect: Callable[[str], Connector]
    why_not: Callable[[str], str]


class ServedBackend:
    """A backend from the perspective of its fleet, including earlier backends of the same name that still have
    requests."""

    def __init__(
        self,
        backend: Backend,
        slots: StartedSlots,
        fleet: StartedServers,
        wiring: Wiring,
        target: Target,
        previous: "ServedBackend | None" = None,
    ) -> None:
        self._backend = backend
        self._slots = slots
        self._earlier = [] if previous is None else previous.in_use
        self._fleet = fleet
        self._wiring = wiring
        self._target = target
        self._endpoints: dict[str, CountedEndpoint] = {}

    @property
    def in_use(self) -> list[tuple[Backend, StartedSlots]]:
        """Return the backend with its slots, and the earlier backends that still have requests."""
        self._earlier = [each for each in self._earlier if not each[1].closed.is_set()]
        return [(self._backend, self._slots), *self._earlier]

    async def closed(self) -> None:
        """Return when the backend and the earlier backends of the same name accept no more requests."""
        for _, slots in self.in_use:
            await slots.closed.wait()

    @property
    def waiting(self) -> int:
        """Return the number of calls that wait for a server."""
        return sum(backend.waiting for backend, _ in self.in_use)

    @property
    def is_closed(self) -> bool:
        """Return True if the backend can receive no more requests."""
        return all(slots.closed.is_set() for _, slots in self.in_use)

    @property
    def slots(self) -> int:
        """Return the number of calls that one server runs in parallel; 0 means no limit."""
        return self._backend.max_in_flight

    @property
    def call_seconds(self) -> float | None:
        """Return the typical duration of a call, in seconds."""
        return self._slots.call_seconds

    def why_not(self, address: str) -> str:
        """Return the reason why this address cannot belong to the backend, or an empty string if it can."""
        return self._wiring.why_not(address)

    async def is_ready(self, address: str) -> bool:
        """Return True if the server at this address reports that it is ready."""
        connector = self._wiring.connect(address)
        try:
            async with asyncio.timeout(ASKED_SECONDS):
                return await is_ready(self._backend.protocol, connector, replace(self._target, address=address))
        except TimeoutError:
            return False
        finally:
            await connector.close()

    def add(self, address: str, use: Use | None = None) -> Use:
        """Start sending calls to this address. For a server that was in use before, `use` describes its previous
        use."""
        endpoint = self._wiring.endpoint(address)
        assert isinstance(endpoint, CountedEndpoint)
        self._endpoints[address] = endpoint
        if use is not endpoint:
            endpoint.renew(self._fleet.settings.calls_per_server)
            endpoint.note_answer()
        endpoint.on_limit = lambda: self._used_up(address)
        for backend, _ in self.in_use:
            backend.add(endpoint)
        return endpoint

    def _used_up(self, address: str) -> None:
        self.remove(address)
        self._fleet.call_waits()

    def remove(self, address: str) -> None:
        """Stop sending calls to this address."""
        endpoint = self._endpoints.pop(address, None)
        if endpoint is not None:
            endpoint.on_limit = None
            for backend, _ in self.in_use:
                backend.remove(endpoint)
            self._wiring.release(endpoint)

    def fail_waiting(self, text: str, detail: str) -> None:
        """Fail all waiting calls."""
        for _, slots in self.in_use:
            slots.fail_waiting(text, detail)


class Fleets:
    """All fleets of a gateway, including fleets whose backend was removed but whose last jobs have not ended yet."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._current: dict[str, tuple[str, StartedServers, ServedBackend]] = {}
        """For each backend name, the source of the jobs, the servers, and the backend."""
        self._retired: set[StartedServers] = set()
        self._states: dict[Path, StateFile] = {}

    def take_over(
        self, configs: Mapping[str, BackendConfig], served: Mapping[str, tuple[Backend, StartedSlots, Wiring, Target]]
    ) -> None:
        """From now on, serve these backends. Other fleets end after their last calls."""
        for name in [each for each in self._current if each not in served]:
            self._retire(name)
        settings_of_all = {name: settings_of(name, servers) for name in served if (servers := configs[name].servers)}
        for name, settings in settings_of_all.items():
            self._states.setdefault(settings.state, StateFile(settings.state)).used_by(name)
        for name, (backend, slots, wiring, target) in served.items():
            config, settings = configs[name], settings_of_all[name]
            fits = fitting(settings, (config.protocol, config.tls, settings.state))
            if name in self._current and self._current[name][0] != fits:
                self._retire(name)
            if name in self._current:
                _, fleet, previous = self._current[name]
                fleet.resize(settings)
                consumer = ServedBackend(backend, slots, fleet, wiring, target, previous)
            else:
                jobs = Jobs(settings, fits, self._states[settings.state], open_engine, self._clock)
                fleet = StartedServers(jobs, self._clock)
                consumer = ServedBackend(backend, slots, fleet, wiring, target)
            self._current[name] = fits, fleet, consumer
            slots.start_by(fleet)
            fleet.attach(consumer)
            fleet.start()

    def _retire(self, name: str) -> None:
        _, fleet, consumer = self._current.pop(name)
        fleet.retire()
        self._retired.add(fleet)
        spawn(self._end(fleet, consumer))

    async def _end(self, fleet: StartedServers, consumer: ServedBackend) -> None:
        await consumer.closed()
        await fleet.retired()
        if fleet in self._retired:
            self._retired.discard(fleet)
            await fleet.close()

    async def close(self) -> None:
        """End all jobs that must not outlive the gateway."""
        fleets = [*(fleet for _, fleet, _ in self._current.values()), *self._retired]
        self._current.clear()
        self._retired.clear()
        await all_surviving("stopping a backend's servers", (each.close() for each in fleets))
        states = list(self._states.values())
        await all_surviving("closing the state of servers", (asyncio.to_thread(each.close) for each in states))
        self._states.clear()


def settings_of(name: str, config: ServersConfig) -> ServersSettings:
    """Return the settings of a backend's servers; `name` is the backend's name."""
    resources = config.resources
    return ServersSettings(
        backend=name,
        engine=config.engine,
        command=(config.script,) if config.script is not None else config.command or (),
        is_script=config.script is not None,
        state=Path(config.state) if config.state is not None else state_folder(name),
        directory=None if config.directory is None else Path(config.directory),
        min=config.min,
        max=config.max,
        idle=config.idle,
        start_timeout=config.start_timeout,
        calls_per_server=config.calls_per_server,
        resources=Resources(
            resources.cpus, resources.gpus, resources.memory, resources.seconds, tuple(resources.options)
        ),
        keep=config.keep,
    )


def open_engine(settings: ServersSettings) -> tuple[Engine, float]:
    """Return the engine, and its polling interval in seconds.

    Raises:
        EngineError: the engine does not exist or does not work.
    """
    try:
        module = import_module(f"gateway.servers.engines.{settings.engine}")
    except ImportError as error:
        raise EngineError(f"{settings.engine}: {error}") from error
    return module.start(settings), getattr(module, "POLL_SECONDS", 2.0)
