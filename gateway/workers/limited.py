"""What several workers share of a configuration."""

import os

from gateway import registry
from gateway.config.keys import Config
from gateway.transports import memory


def number_of_workers(config: Config) -> int:
    """How many processes serve clients."""
    if config.workers != "auto":
        return config.workers
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def leased_backends(config: Config) -> frozenset[str]:
    """The names of the backends whose slots are limited, and of those that share an endpoint with one."""
    protocols = registry.protocols()
    places = {}
    limited = set()
    for name, each in config.backends.items():
        protocol = protocols[each.protocol]
        parse = registry.transport(protocol.transport).parse_address
        places[name] = {(each.protocol, parse(address)) for address in each.addresses}
        if protocol.traits.servers.max_in_flight if each.max_in_flight is None else each.max_in_flight:
            limited.add(name)
    used = {place for name in limited for place in places[name]}
    return frozenset(name for name in places if name in limited or not used.isdisjoint(places[name]))


def share(config: Config, workers: int) -> Config:
    """`config` for one of several workers: with its share of the limits of the process."""
    limits = config.limits
    shares = {
        "connections": max(1, -(-limits.connections // workers)),
        "memory": max(1, (limits.memory or memory.default_limit()) // workers),
    }
    return config.model_copy(update={"limits": limits.model_copy(update=shares)})
