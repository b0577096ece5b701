"""Keeps the endpoints of backends with `discovery` in sync with the discovered addresses."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from gateway.assembly.endpoints import EndpointKey
from gateway.assembly.own_addresses import Ip, resolved, why_own
from gateway.config.backends import BackendConfig
from gateway.config.discovery import DiscoveryConfig
from gateway.core.address import is_ip
from gateway.core.log_limit import LogLimit
from gateway.core.tasks import spawn
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.servers.discovery.dns import DnsName, SrvRecords
from gateway.servers.discovery.files import AddressFiles
from gateway.servers.discovery.register import Leases, Registrations
from gateway.servers.discovery.source import MOST_ADDRESSES, CheckAddress, Found, Source, Watcher

log = logging.getLogger(__name__)
_lines = LogLimit(log, lines=60)  # HPC jobs start and end often, and each line is about a different server

MOST_SHOWN = 10
"""The maximum number of endpoints that a log line lists."""

ParseAddress = Callable[[str], Any]
"""Parses an address into a normalized EndpointKey, with `host` and `port`. All spellings of an address result in equal
keys. Raises ValueError for an invalid address."""


class Discovery:
    """Watches the discovery sources of all backends, and handles server registrations.

    Nothing runs before `start`. Addresses in `own_addresses`, which belong to the gateway, cannot be endpoints."""

    def __init__(self, clock: Callable[[], float], own_addresses: Callable[[], Iterable[str]] = tuple) -> None:
        self._clock = clock
        self._own_addresses = own_addresses
        self._watchers: list[Watcher] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.registrations: dict[str, Registrations] = {}
        """The registrations of each backend that allows registration, by backend name."""

    def add(
        self, name: str, config: BackendConfig, endpoints: "DiscoveredEndpoints", parse_address: ParseAddress
    ) -> None:
        """Add a backend that has `discovery`."""
        discovery = config.discovery
        assert discovery is not None
        may_be_empty = config.queue.wait_for_endpoints is not None

        def check(address: str, named: frozenset[Ip] = frozenset()) -> None:
            if why := why_own(parse_address(address), self._own_addresses(), named):
                raise ValueError(f"{address}: {why}")

        async def check_resolved(address: str) -> None:
            check(address, await resolved(parse_address(address).host))

        for source in _sources(name, config.addresses, discovery, parse_address, check, may_be_empty=may_be_empty):
            self._watchers.append(Watcher(name, source, endpoints.updater()))
        if discovery.registration is not None:
            leases = Leases(discovery.registration.seconds, parse_address, self._clock)
            token = discovery.registration.token.get_secret_value()
            self.registrations[name] = registrations = Registrations(token, leases, self._clock, check_resolved)
            registrations.on_change(endpoints.updater())

    def inherit(self, other: "Discovery") -> None:
        """Take over the discovered addresses and the leases from `other`, the Discovery of the previous configuration.

        Call this before `start`."""
        for watcher in self._watchers:
            watcher.inherit(other._watchers)
        self.inherit_leases(other)

    def inherit_leases(self, other: "Discovery") -> None:
        """Take over the leases that `other` granted."""
        for name, registrations in self.registrations.items():
            if name in other.registrations:
                registrations.inherit(other.registrations[name])

    async def start(self) -> None:
        """Look up all names and files immediately, and then periodically in the background."""
        await asyncio.gather(*(watcher.look() for watcher in self._watchers))
        self._tasks = [spawn(watcher.run()) for watcher in self._watchers]

    def stop(self) -> None:
        """Stop changing endpoints."""
        for task in self._tasks:
            task.cancel()
        for registrations in self.registrations.values():
            registrations.close()


class DiscoveredEndpoints:
    """The discovered endpoints of one backend, from any number of sources. A backend has at most MOST_ADDRESSES such
    endpoints; existing endpoints take precedence. Configured endpoints are never removed.

    `endpoint` returns the Endpoint of an address, and creates it if necessary. `release` is called with endpoints that
    the backend has lost."""

    def __init__(
        self, backend: Backend, endpoint: Callable[[Found], Endpoint], release: Callable[[Endpoint], None]
    ) -> None:
        self._backend = backend
        self._endpoint = endpoint
        self._release = release
        self._fixed = backend.endpoints
        self._found: dict[int, frozenset[Found]] = {}
        self._used: frozenset[Found] = frozenset()
        self._left_out = False
        """True after the gateway has logged that more than MOST_ADDRESSES addresses were found."""

    def updater(self) -> Callable[[frozenset[Found]], None]:
        """Return the function that a source calls with all addresses that it has found."""
        number = len(self._found)
        self._found[number] = frozenset()

        def update(found: frozenset[Found]) -> None:
            before = self._found[number]
            if found != before:
                self._found[number] = found
                try:
                    self._update()
                except Exception:
                    self._found[number] = before  # the next report from the source retries this
                    raise

        return update

    def _update(self) -> None:
        """Add new endpoints, and then remove old ones. This order ensures that waiting calls always have an
        endpoint."""
        found = frozenset().union(*self._found.values())
        addresses = sorted(found, key=lambda each: (each not in self._used, str(each)))[:MOST_ADDRESSES]
        wanted = dict.fromkeys([*self._fixed, *map(self._endpoint, sorted(addresses, key=str))])
        before = frozenset(self._backend.endpoints)
        added = [each for each in wanted if each not in before]
        removed = [each for each in self._backend.endpoints if each not in wanted]
        for each in added:
            self._backend.add(each)
        for each in removed:
            self._backend.remove(each)
        self._used = frozenset(addresses)
        self._tell_left_out(are_left_out=len(found) > MOST_ADDRESSES)
        self._tell("added", added)
        self._tell("removed", removed)
        for each in removed:
            self._release(each)

    def _tell_left_out(self, *, are_left_out: bool) -> None:
        """Log once that the sources have found more addresses than a backend can have."""
        if are_left_out and not self._left_out:
            text = "backend %r: discovery has found more than %d addresses; those beyond are left out"
            log.warning(text, self._backend.name, MOST_ADDRESSES)
        self._left_out = are_left_out

    def _tell(self, what: str, endpoints: list[Endpoint]) -> None:
        if endpoints:
            shown = ", ".join(each.address for each in endpoints[:MOST_SHOWN])
            more = f" and {len(endpoints) - MOST_SHOWN} more" if len(endpoints) > MOST_SHOWN else ""
            name, now = self._backend.name, len(self._backend.endpoints)
            text = "backend %r: %s %s%s; it has %d now"
            _lines.write(name, logging.INFO, text, name, what, shown, more, now)


def fixed_addresses(addresses: Iterable[str], discovery: DiscoveryConfig | None, parse: ParseAddress) -> list[str]:
    """Return a backend's configured `endpoints` that never change: all endpoints or, with `dns`, only endpoints without
    a host name."""
    if discovery is None or discovery.dns is None:
        return list(addresses)
    return [address for address in addresses if not _has_name(parse(address))]


def _sources(
    name: str,
    addresses: Iterable[str],
    discovery: DiscoveryConfig,
    parse_address: ParseAddress,
    check: CheckAddress,
    *,
    may_be_empty: bool = False,
) -> Iterable[Source]:
    if discovery.dns is not None:
        for address in addresses:
            place = parse_address(address)
            if _has_name(place):
                yield DnsName(address, place.host, place.port, discovery.interval, may_be_empty=may_be_empty)
    if discovery.srv is not None:
        yield SrvRecords(discovery.srv, discovery.interval, check)
    if discovery.files is not None:
        yield AddressFiles(name, discovery.files, discovery.interval, check)


def _has_name(place: Any) -> bool:
    return bool(place.host) and not is_ip(place.host)


class EndpointCloser:
    """Closes unused endpoints after their last calls.

    `endpoints` maps keys to all endpoints; the closer removes released endpoints from it. `has` returns whether a
    backend uses an endpoint. `release` takes keys, and returns when their endpoints are closed or in use again."""

    def __init__(
        self,
        endpoints: dict[EndpointKey, Endpoint],
        has: Callable[[Endpoint], bool],
        release: Callable[[Iterable[EndpointKey]], Awaitable[None]],
    ) -> None:
        self._endpoints = endpoints
        self._has = has
        self._give_up = release

    def release(self, endpoint: Endpoint) -> None:
        """Close `endpoint` after its last call, unless a backend uses it again before then."""
        key = next((key for key, each in self._endpoints.items() if each is endpoint), None)
        if key is not None and not self._has(endpoint):
            del self._endpoints[key]
            spawn(self._close(key, endpoint))

    async def _close(self, key: EndpointKey, endpoint: Endpoint) -> None:
        if endpoint.in_flight:
            text = "endpoint %s is drained: it has %d calls in flight"
            _lines.write(endpoint.address, logging.INFO, text, endpoint.address, endpoint.in_flight)
        await self._give_up([key])
        if endpoint.is_closed:
            _lines.write(endpoint.address, logging.INFO, "endpoint %s is closed", endpoint.address)
