"""Checks of `balance: least_load` and the key `load` of each backend."""

import re
from collections.abc import Iterator

from gateway.config.backends import BackendConfig
from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.load import DEFAULT_LOAD, HOST, PORT, LoadConfig
from gateway.config.partial import Parts
from gateway.config.problems import Finding
from gateway.core.protocol import Protocol, StreamBinding

LEAST_LOAD = "least_load"
TRITON_PROTOCOLS = ("v2-rest", "v2-grpc")
"""Protocols whose servers can be Triton servers, for which `load` has a default."""

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OF_PAGES = ("url", "interval", "timeout")
_UNUSED = {"triton": ("metric", "labels", "measures"), "prometheus": (), "orca": (*_OF_PAGES, "labels")}
"""The keys without effect, for each value of `from`."""


def load_findings(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find missing keys, and unusable sources of load reports."""
    for key, backend in parts.backends.items():
        if backend.balance == LEAST_LOAD and backend.protocol in catalog.protocols:
            location: Location = ("backends", key)
            yield from _missing(location, backend)
            if backend.load is not None:
                protocol = catalog.protocols[backend.protocol]
                yield from _source((*location, "load"), backend.load, protocol)
            yield from _sockets(location, backend)


def unused_load_keys(location: Location, backend: BackendConfig) -> Iterator[tuple[Location, str]]:
    """Return the keys without effect, with the reason for each."""
    load = backend.load
    if backend.balance != LEAST_LOAD:
        if load is not None:
            yield (*location, "load"), f"`balance` is {backend.balance}"
        reads = None
    else:
        reads = load or DEFAULT_LOAD
        for key in _UNUSED[reads.kind]:
            if key in reads.model_fields_set:
                yield (*location, "load", key), f"`from` is {reads.kind}"
    for at, endpoint in enumerate(backend.endpoints):
        if endpoint.load_url is not None and (reads is None or reads.kind == "orca"):
            yield (*location, "endpoints", at, "load_url"), "the gateway reads no load page"


def _missing(location: Location, backend: BackendConfig) -> Iterator[Finding]:
    if backend.load is None and (backend.protocol not in TRITON_PROTOCOLS or backend.flavor not in ("", "triton")):
        server = f"{backend.protocol} servers" if not backend.flavor else f"{backend.flavor} servers"
        text = f"{VALUE} needs the key `load`, because the gateway cannot know how {server} report their load"
        yield Finding((*location, "balance"), text)


def _source(location: Location, load: LoadConfig, protocol: Protocol) -> Iterator[Finding]:
    if load.kind == "prometheus":
        if load.metric is None:
            yield Finding(location, "expected the key `metric`: the gauge of a server's load", at_key=True)
        elif not _METRIC.fullmatch(load.metric):
            yield Finding((*location, "metric"), f"{VALUE} is not a valid metric name")
        if "url" not in load.model_fields_set:
            yield Finding(location, "expected the key `url`, such as http://{host}:8000/metrics", at_key=True)
        for label in load.labels:
            if not _LABEL.fullmatch(label):
                yield Finding((*location, "labels", label), f"{label!r} is not a valid label name", at_key=True)
    if load.kind == "orca" and isinstance(protocol.binding, StreamBinding):
        text = f"{protocol.name} responses have no headers for load reports; use `from: prometheus`"
        yield Finding((*location, "from"), text)
    if load.kind != "orca" and load.stale < load.interval:
        yield Finding((*location, "stale"), f"expected at least `interval`, which is {load.interval:g}, got {VALUE}")


def _sockets(location: Location, backend: BackendConfig) -> Iterator[Finding]:
    """Find endpoints on unix sockets, which have no host for a metrics page's URL."""
    load = backend.load or DEFAULT_LOAD
    if load.kind == "orca" or not (HOST in load.url or PORT in load.url):
        return
    for at, endpoint in enumerate(backend.endpoints):
        if endpoint.address.startswith("unix:") and endpoint.load_url is None:
            text = "a unix socket has no host for the server's load page; add `load_url`"
            yield Finding((*location, "endpoints", at, "address"), text)
