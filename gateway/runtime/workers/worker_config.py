"""The configuration of a worker, with its share of the process limits. This module also determines the number of
workers, and the backends whose slots the supervisor manages. The supervisor, its workers and `gateway serve` use it."""

import math
import os
from pathlib import Path

from gateway.assembly import registry
from gateway.assembly.forms import spoken
from gateway.config.keys import Config
from gateway.transports import memory

CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
"""The file with a container's CPU limit, in cgroups v2."""


def number_of_workers(config: Config) -> int:
    """Return the number of processes that serve clients."""
    if config.workers != "auto":
        return config.workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(cores, _quota(CPU_MAX))))


def _quota(path: Path) -> float:
    """Return the number of cores that the process's cgroup can use on average, for example in a container with a CPU
    limit."""
    try:
        quota, period = path.read_text("ascii").split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError):  # the file is missing, or contains `max`
        return math.inf


def placed_backends(config: Config) -> frozenset[str]:
    """Return the names of all backends whose servers have different models."""
    return frozenset(name for name, each in config.backends.items() if each.placement is not None)


def limited_backends(config: Config) -> frozenset[str]:
    """Return the names of the backends whose slots the supervisor manages for all workers: backends with limited slots,
    backends whose servers have different models, and backends that share an endpoint with any of them."""
    protocols = spoken(config)
    places = {}
    limited = set()
    for name, each in config.backends.items():
        protocol = protocols[each.protocol]
        parse = registry.transport(protocol.transport).parse_address
        places[name] = {(each.protocol, parse(address)) for address in each.addresses}
        most = protocol.traits.servers.max_in_flight if each.max_in_flight is None else each.max_in_flight
        if most or each.placement is not None:
            limited.add(name)
    used = {place for name in limited for place in places[name]}
    return frozenset(name for name in places if name in limited or not used.isdisjoint(places[name]))


def share(config: Config, workers: int) -> Config:
    """Return `config` for one of several workers, with the worker's share of the process limits."""
    limits = config.limits
    shares = {
        "connections": max(1, -(-limits.connections // workers)),
        "memory": max(1, (limits.memory or memory.default_limit()) // workers),
    }
    return config.model_copy(update={"limits": limits.model_copy(update=shares)})
