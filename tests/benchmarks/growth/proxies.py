"""nginx and Envoy in the gateway's place: plain HTTP proxies with as many routes and backends. Their rows show how much
of the cost of using all of them in turns is that of the processor's caches and the kernel's sockets, which every proxy
has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tests.benchmarks.contest.envoy import by_path
from tests.benchmarks.contest.nginx import nginx_config
from tests.benchmarks.contest.sides import Started, start_envoy, start_nginx
from tests.benchmarks.servers import Server
from tests.interop.processes import free_port

Start: TypeAlias = Callable[[Started, str, int, Sequence[str]], Server]
"""Starts a proxy under a name. It has so many routes, each to the path of a model of its own, which go to the backends
at these addresses in turns. Raises MissingError if the program is not installed."""

THERE = "/v2/models/identity/infer"
"""The path at the model server, which has this model alone."""


def path(model: int) -> str:
    return f"/v2/models/m{model}/infer"


def nginx(started: Started, name: str, routes: int, backends: Sequence[str]) -> Server:
    """As in Start."""
    folder, address = started.folder / name, f"127.0.0.1:{free_port()}"
    return start_nginx(started, folder, address, nginx_text(folder, address, routes, backends))


def nginx_text(folder: Path, listen: str, routes: int, backends: Sequence[str]) -> str:
    locations = {f"= {place}": f"proxy_pass http://{name}{THERE}" for place, name in _routed(routes, backends)}
    return nginx_config(folder, listen, _named(backends), locations)


def envoy(started: Started, name: str, routes: int, backends: Sequence[str]) -> Server:
    """As in Start."""
    port = free_port()
    return start_envoy(started, started.folder / name, port, envoy_text(port, routes, backends))


def envoy_text(port: int, routes: int, backends: Sequence[str]) -> str:
    return by_path(port, _named(backends), {place: (name, THERE) for place, name in _routed(routes, backends)})


PROXIES: Mapping[str, Start] = {"nginx": nginx, "Envoy": envoy}


def _named(backends: Sequence[str]) -> dict[str, str]:
    return {f"b{at}": address for at, address in enumerate(backends)}


def _routed(routes: int, backends: Sequence[str]) -> list[tuple[str, str]]:
    """The path of each route, and the name of its backend."""
    return [(path(at), f"b{at % len(backends)}") for at in range(routes)]
