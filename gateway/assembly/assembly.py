"""Assembles a gateway from a Config. `runtime.app.gateway` runs the gateway; this module opens no sockets."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import inf

from gateway.assembly.authentication import Authentication
from gateway.assembly.backend_sides import BackendSides
from gateway.assembly.backends import Backends
from gateway.assembly.endpoints import EndpointKey
from gateway.assembly.environment import Environment
from gateway.assembly.forms import with_forms
from gateway.assembly.placement import Placed
from gateway.assembly.policing import Policing
from gateway.assembly.routers import GraphRoutes, Routers
from gateway.assembly.statistics import ListenerStatistics
from gateway.bridge.backend import BackendSide
from gateway.config.keys import Config
from gateway.core.frozen import replace
from gateway.routing.activity import Activity
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.probing import Prober
from gateway.routing.readiness import BackendReadiness, Readiness
from gateway.routing.router import Router


class RequestsInFlight:
    """Counts requests in flight, and waits until none are left."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def began(self) -> None:
        """Add a request."""
        self._count += 1
        self._none.clear()

    def ended(self) -> None:
        """Remove a request."""
        self._count -= 1
        if not self._count:
            self._none.set()

    async def all_ended(self) -> None:
        """Return when no requests are in flight."""
        await self._none.wait()


class Assembly:
    """The backends and Routers of one Config.

    A reload creates a second Assembly in the same `environment`. The second Assembly takes over from the `previous`
    one, which closes after its last request. Building thousands of routes takes seconds. If `in_steps` is True, the
    caller builds the Routers with `build_routes`, and the gateway can handle requests between the steps."""

    def __init__(
        self, config: Config, environment: Environment, previous: "Assembly | None" = None, *, in_steps: bool = False
    ) -> None:
        self.config = config
        environment = replace(environment, protocols=with_forms(environment.protocols, config))
        self._host = environment.host
        self._previous = previous
        clock = environment.clock
        self.streams = RequestsInFlight()
        """The in-flight messages of streams."""
        self.authentication: Authentication = Authentication(
            config, clock, None if previous is None else previous.authentication
        )
        """Authenticates clients."""
        self.activities: Mapping[str, Activity] = _activities(config, environment, previous)
        """Call counts by backend name, available only if the scaler is enabled. The counts continue from the previous
        Assembly."""
        self._backends = Backends(config, environment)
        self.policing = Policing(config, environment, self.backends)
        """The policies of backends and routes."""
        self._sides = BackendSides(config, self.backends, self.policing, self.activities, environment)
        self.statistics: Mapping[str, ListenerStatistics] = _statistics(config, environment, previous)
        """The statistics of listeners with a metrics page, by listener name. The statistics continue from the previous
        Assembly.
        """
        switchable = frozenset(each.name for each in config.listeners if each.allow_offline)
        routed = dict.fromkeys(name for each in config.routes for name in each.called_backends)
        self.readiness = BackendReadiness({name: self.backends[name].is_ready for name in routed}, clock)
        """The readiness of all backends that routes use."""
        self.listener_readiness = Readiness(
            environment.is_ready, switchable, partial(self.readiness.why_not, config.ready)
        )
        self._routers = Routers(
            config, environment, self.backends, self.backend_sides, self.policing, self.activities,
            self.listener_readiness, self.statistics,
        )  # fmt: skip
        if not in_steps:
            for _ in self.build_routes():
                pass
        self.discovery = self._backends.discovery()
        """After its start, adds and removes endpoints of backends."""

    def build_routes(self) -> Iterator[None]:
        """Build the Routers, one route per step, because building thousands of routes in one step would block the event
        loop."""
        return self._routers.build()

    @property
    def probers(self) -> Sequence[Prober]:
        """Return the Probers of all backends that have probes."""
        return self._backends.probers

    @property
    def router(self) -> Router:
        """The Router for decoded requests."""
        return self._routers.router

    @property
    def passthrough(self) -> Router:
        """The Router for requests to routes with `passthrough`."""
        return self._routers.passthrough

    @property
    def graphs(self) -> GraphRoutes:
        """The models that graphs define."""
        return self._routers.graphs

    @property
    def placed(self) -> Placed:
        """The backends whose servers have different models."""
        return self._backends.placed

    @property
    def backends(self) -> Mapping[str, Backend]:
        """The backends, by name."""
        return self._backends.all

    @property
    def endpoints(self) -> Mapping[EndpointKey, Endpoint]:
        """The endpoints of all backends."""
        return self._backends.pool.endpoints

    @property
    def backend_sides(self) -> Mapping[str, BackendSide]:
        """The backends in the form that Bridges call, by name."""
        return self._sides.all

    def start(self) -> None:
        """Make this Assembly the current one: take over from the previous Assembly, stop its background tasks, and
        start this Assembly's tasks."""
        previous, self._previous = self._previous, None
        self._backends.pool.take_over()
        # Start before the previous Assembly stops, so keys that both use stay up to date.
        self.authentication.access.begin()
        if previous is not None:
            previous.stop()
            self.listener_readiness.adopt(previous.listener_readiness)
            for name, backend in self.backends.items():
                if name in previous.backends:
                    backend.replace(previous.backends[name])
            self.discovery.inherit_leases(previous.discovery)
            self.policing.adopt(previous.policing)
            self.graphs.adopt(previous.graphs)
        if self._host.fleets is not None:
            self._host.fleets.take_over(self.config.backends, self._backends.served())
        self.placed.start()
        for prober in self.probers if self._host.part.probes else ():
            prober.start()
        for reading in self._backends.load_readings:
            reading.start()

    def stop(self) -> None:
        """Stop the background tasks. Requests in flight continue."""
        self.authentication.access.end()
        self.discovery.stop()
        self.placed.stop()
        for each in (*self.probers, *self._backends.load_readings):
            each.cancel()

    async def end(self, seconds: float = inf) -> None:
        """Stop the background tasks, and close the policies' connections.

        Call this only when no requests are in flight. Calls that policies make outside requests have `seconds` seconds
        to end."""
        self.stop()
        for each in (*self.probers, *self._backends.load_readings):
            await each.stop()
        await self.policing.close(seconds)

    async def close(self) -> None:
        """Release the endpoints.

        Return when all endpoints that no other Assembly uses are closed. The only requests that can still be in flight
        are abandoned requests that a server has not finished. Their connections close when the server responds."""
        await self.end()
        for backend in self.backends.values():
            backend.close()
        await self._backends.pool.close()

    async def close_unused_connectors(self) -> None:
        """Close the Connectors that this Assembly replaced, or that it created without taking over."""
        await self._backends.pool.close_unused_connectors()


def _activities(config: Config, environment: Environment, previous: Assembly | None) -> Mapping[str, Activity]:
    before = {} if previous is None else previous.activities
    counted = () if config.scaler is None else config.backends
    return {name: before.get(name) or Activity(environment.clock) for name in counted}


def _statistics(
    config: Config, environment: Environment, previous: Assembly | None
) -> Mapping[str, ListenerStatistics]:
    before: Mapping[str, ListenerStatistics] = {} if previous is None else previous.statistics
    paged = [each.name for each in config.listeners if each.metrics_page]
    return {name: before.get(name) or ListenerStatistics(environment.clock) for name in paged}
