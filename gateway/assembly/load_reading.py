"""Reads the loads of a backend's servers, for backends that are balanced by load (`balance: least_load`). `backends`
creates the readers."""

import typing
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from gateway.assembly import registry
from gateway.config.backends import BackendConfig
from gateway.config.reported_load import DEFAULT_LOAD, URL_HOST, URL_PORT
from gateway.core.protocol import Limits, Protocol
from gateway.routing.backend import Backend
from gateway.routing.balancing import LEAST_LOAD
from gateway.routing.endpoint import Endpoint
from gateway.routing.load import orca
from gateway.routing.load.orca import LoadReports
from gateway.routing.load.pages import MOST_BYTES, Asking, GaugePageMeter, LoadPages, Page, PageMeter, TritonPageMeter
from gateway.routing.load.reported import ReportedLoads


class LoadReading(typing.Protocol):
    """Collects the loads of one backend's servers."""

    def start(self) -> None:
        """Start collecting."""

    def cancel(self) -> None:
        """Stop collecting."""

    async def stop(self) -> None:
        """Stop collecting, and return when all tasks have ended."""


def reported_loads(config: BackendConfig, clock: Callable[[], float]) -> ReportedLoads | None:
    """Return the store for the loads that a backend's strategy compares, or None if the strategy does not use loads."""
    return ReportedLoads((config.load or DEFAULT_LOAD).stale, clock) if config.balance == LEAST_LOAD else None


def own_headers(config: BackendConfig, protocol: Protocol) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that request a load report, for every request to the backend's servers. gRPC servers send
    reports without such headers."""
    is_asked = config.balance == LEAST_LOAD and config.load is not None and config.load.kind == "orca"
    return (orca.REQUEST_HEADER,) if is_asked and protocol.transport == "http" else ()


def load_reading(
    backend: Backend, config: BackendConfig, loads: ReportedLoads, clock: Callable[[], float]
) -> LoadReading:
    """Return a reader that stores the loads of `backend` in `loads`."""
    load = config.load or DEFAULT_LOAD
    if load.kind == "orca":
        over_grpc = backend.protocol.transport == "grpc"
        return LoadReports(backend.choice, load.metric or "", load.measures or "use", loads, clock, over_grpc=over_grpc)
    meter: Callable[[], PageMeter] = TritonPageMeter
    if load.kind == "prometheus":
        assert load.metric is not None
        meter = partial(GaugePageMeter, load.metric, load.labels, load.measures or "calls")
    urls = {each.address: each.load_url for each in config.endpoints if each.load_url is not None}

    def page(endpoint: Endpoint) -> Page:
        return page_at(url_of(urls.get(endpoint.address) or load.url, endpoint.address))

    return LoadPages(backend, Asking(page, meter, load.interval, load.timeout), loads, clock)


def page_at(url: str) -> Page:
    """Return the Page at `url`. Raise ValueError if the URL is not valid."""
    parts = urlsplit(url)
    connector = registry.transport("http").Connector(
        f"{parts.scheme}://{parts.netloc}", connection_per_call=False, limits=Limits(message=MOST_BYTES)
    )
    return Page(connector, parts.path or "/", parts.query)


def url_of(pattern: str, endpoint: str) -> str:
    """Return the URL of the load page for the server at the address `endpoint`."""
    host, port = _host_and_port(endpoint)
    return pattern.replace(URL_HOST, host).replace(URL_PORT, port)


def _host_and_port(address: str) -> tuple[str, str]:
    """Return the host (an IPv6 address in brackets) and the port. For a unix socket, the host is `localhost`."""
    if address.startswith("unix:"):
        return "localhost", ""
    parts = urlsplit(address if "://" in address else f"//{address}")
    host = parts.hostname or ""
    return f"[{host}]" if ":" in host else host, str(parts.port or "")
