"""Replies of an admin port, and the overviews that are made of them."""

from typing import Any

from gateway.tools.top.rows import GatewayOverview, overview
from gateway.tools.top.window import TrafficWindow

TOPOLOGY: dict[str, Any] = {
    "version": "1.0",
    "latency_bounds": [0.001, 0.01],
    "listeners": [{"name": "http", "address": "127.0.0.1:80", "protocols": ["v2-rest"]}],
    "graphs": [{"name": "sum", "place": "models.sum"}],
    "routes": [
        {"name": "route-0", "match": {"header": {"team": "red"}, "model": "[bold]"}},
        {"name": "route-1", "match": {}},
    ],
    "backends": [{"name": "lab", "protocol": "v2-rest"}, {"name": "far", "protocol": "umbridge"}],
}


def endpoint(address: str, state: str, in_flight: int = 0, **more: str) -> dict[str, Any]:
    """An EndpointTraffic."""
    return {"address": address, "in_flight": in_flight, "state": state, **more}


def way(
    endpoint: str, requests: int, failed: int = 0, route: str = "route-0", backend: str = "lab", rejected: int = 0
) -> dict[str, Any]:
    """A PathTraffic, all of whose requests took less than 1 ms."""
    return {
        "listener": "http", "route": route, "backend": backend, "endpoint": endpoint,
        "ok": requests - failed - rejected,
        "failed": {"internal": failed} if failed else {}, "latencies": {"0": requests},
        "rejected": {"INVALID_ARGUMENT": rejected} if rejected else {},
    }  # fmt: skip


def seen(
    lab: list[dict[str, Any]], paths: list[dict[str, Any]], far: list[dict[str, Any]] | None = None
) -> GatewayOverview:
    """The overview of a window of 2 s in which the requests of `paths` came, and of two backends with endpoints."""
    traffic = {
        "ready": True,
        "shedding": 0,
        "listeners": {"http": {"in_flight": 3, "connections": 2, "refused": 0}},
        "backends": {"lab": {"waiting": 4, "endpoints": lab}, "far": {"waiting": 0, "endpoints": far or []}},
    }
    window = TrafficWindow()
    window.take(10.0, [])
    window.take(12.0, paths)
    return overview(TOPOLOGY, traffic, window)
