"""What is installed, found by scanning: a protocol or a policy is there because its file is. Nothing is registered."""

import typing
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import gateway.policies
import gateway.protocols
import gateway.transports
from gateway.config import catalog
from gateway.core.protocol import Protocol
from gateway.core.transport import Handler, StreamHandler

POLICY = ("Settings", "wrap", "wrap_stream")
"""What makes a module a policy."""


class Policy(catalog.Policy, typing.Protocol):
    """A policy's module."""

    def wrap(self, handler: Handler, settings: Any) -> Handler:
        """A Handler that does what the policy is for around `handler`."""

    def wrap_stream(self, handler: StreamHandler, settings: Any) -> StreamHandler:
        """The same around a StreamHandler."""


@cache
def protocols() -> Mapping[str, Protocol]:
    """Every protocol by name. Raises ValueError for two of one name."""
    return scan_protocols(gateway.protocols)


@cache
def policies() -> Mapping[str, Policy]:
    """Every policy by the name of its module."""
    return scan_policies(gateway.policies)


def transport(name: str) -> ModuleType:
    """The package of the transport `name`; imported here first, so that those not in use cost nothing.

    Raises:
        LookupError: there is none.
    """
    known = sorted(found.name for found in iter_modules(gateway.transports.__path__))
    if name not in known:
        raise LookupError(f"no transport is called {name!r}; there are {', '.join(known)}")
    return import_module(f"{gateway.transports.__name__}.{name}")


def scan_protocols(package: ModuleType) -> dict[str, Protocol]:
    """The protocols in `PROTOCOLS` of each module of `package`. Raises ValueError for two of one name."""
    found: dict[str, tuple[Protocol, str]] = {}
    for module in _modules(package):
        for protocol in getattr(module, "PROTOCOLS", ()):
            if protocol.name in found:
                other = found[protocol.name][1]
                raise ValueError(f"the protocol {protocol.name!r} is in {other} and in {module.__name__}")
            found[protocol.name] = protocol, module.__name__
    return {name: protocol for name, (protocol, _) in found.items()}


def scan_policies(package: ModuleType) -> dict[str, Policy]:
    """The modules of `package` that have all of POLICY, by name."""
    modules = [module for module in _modules(package) if all(hasattr(module, name) for name in POLICY)]
    return {module.__name__.rpartition(".")[2]: typing.cast(Policy, module) for module in modules}


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in iter_modules(package.__path__):
        yield import_module(f"{package.__name__}.{found.name}")
