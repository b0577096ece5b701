"""Finds the installed protocols, policies and transports by scanning their packages. The commands, the client and the
rest of this package call it.

To add a protocol, policy or transport, put its files in the right folder. You do not need to update a list. A
protocol's package has `PROTOCOLS`, and can have a module `openapi` with a function `describe`. A policy's module has
POLICY_ATTRIBUTES, and can have `METRICS`.
"""

import inspect
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
from gateway.core.json.openapi import DescribeOperation
from gateway.core.protocol import Protocol
from gateway.core.transport import Handler, StreamHandler

if typing.TYPE_CHECKING:
    from pydantic import BaseModel

    from gateway.policies.context import PolicyContext
    from gateway.policies.places import PolicyState, StateMetric

POLICY_ATTRIBUTES = ("Settings", "wrap", "wrap_stream")
"""The attributes that every policy module must have."""


class IncompletePolicyError(ValueError):
    """A module in the policies' folder is an incomplete policy."""


class PolicyModule(typing.Protocol):
    """A policy module: the model of its YAML keys, and the functions that apply the policy."""

    # Same as `config.catalog.Policy`, which is not imported here because the import, with pydantic, takes half a
    # second.
    @property
    def Settings(self) -> "type[BaseModel]": ...  # noqa: N802 - a class in the module

    def wrap(self, handler: Handler, settings: Any, *context: "PolicyContext") -> Handler:
        """Return a Handler that applies the policy to `handler`.

        If `wants_context` is True for the module, `wrap` also receives the `context`."""

    def wrap_stream(self, handler: StreamHandler, settings: Any, *context: "PolicyContext") -> StreamHandler:
        """Return a StreamHandler that applies the policy to `handler`."""


class StatefulPolicyModule(PolicyModule, typing.Protocol):
    """A policy module with a state for each route or backend where the policy is configured."""

    def state(self, settings: Any) -> "PolicyState":
        """Return a new state for these settings."""


def wants_context(policy: PolicyModule) -> bool:
    """Return True if the policy's `wrap` and `wrap_stream` take a PolicyContext as their third argument."""
    return len(inspect.signature(policy.wrap).parameters) > 2


@cache
def protocols() -> Mapping[str, Protocol]:
    """Return all protocols by name. Raise ValueError if two protocols have the same name."""
    return scan_protocols(gateway.protocols)


@cache
def policies() -> Mapping[str, PolicyModule]:
    """Return all policies by module name."""
    return scan_policies(gateway.policies)


@cache
def policy_metrics() -> "Mapping[str, tuple[StateMetric, ...]]":
    """Return the metrics that policies compute from their states, by policy name."""
    return {name: module.METRICS for name, module in policies().items() if hasattr(module, "METRICS")}


@cache
def descriptions() -> Mapping[str, DescribeOperation]:
    """Return the functions that describe the protocols' paths for OpenAPI documents, by protocol name. Each is the
    function `describe` in the protocol's module `openapi`. These modules are imported at the first call. Forms have
    their own `describer`."""
    found: dict[str, DescribeOperation] = {}
    for module in _modules(gateway.protocols):
        if module.PROTOCOLS and any(each.name == "openapi" for each in iter_modules(module.__path__)):
            describe = import_module(f"{module.__name__}.openapi").describe
            found |= {protocol.name: describe for protocol in module.PROTOCOLS}
    return found


@cache
def transport(name: str) -> ModuleType:
    """Return the package of the transport `name`. The package is imported at its first use, and unused transports cost
    nothing.

    Raises:
        LookupError: the transport does not exist.
    """
    known = sorted(found.name for found in iter_modules(gateway.transports.__path__) if found.ispkg)
    if name not in known:
        raise LookupError(f"no transport {name!r}; expected {', '.join(known)}")
    return import_module(f"{gateway.transports.__name__}.{name}")


def scan_protocols(package: ModuleType) -> dict[str, Protocol]:
    """Return the protocols that the modules of `package` list in `PROTOCOLS`, by name.

    Raise ValueError if two protocols have the same name."""
    found: dict[str, tuple[Protocol, str]] = {}
    for module in _modules(package):
        for protocol in getattr(module, "PROTOCOLS", ()):
            if protocol.name in found:
                other = found[protocol.name][1]
                raise ValueError(f"the protocol {protocol.name!r} is defined in {other} and in {module.__name__}")
            found[protocol.name] = protocol, module.__name__
    return {name: protocol for name, (protocol, _) in found.items()}


def scan_policies(package: ModuleType) -> dict[str, PolicyModule]:
    """Return the policies in `package`, by name. A module with one of POLICY_ATTRIBUTES is a policy.

    Raises:
        IncompletePolicyError: a policy does not have all of POLICY_ATTRIBUTES.
    """
    modules = [module for module in _modules(package) if any(hasattr(module, name) for name in POLICY_ATTRIBUTES)]
    for module in modules:
        missing = [name for name in POLICY_ATTRIBUTES if not hasattr(module, name)]
        if missing:
            name = module.__name__.rpartition(".")[2]
            raise IncompletePolicyError(
                f"{module.__file__}: the policy {name!r} has no {' and no '.join(missing)}; a policy has "
                f"{', '.join(POLICY_ATTRIBUTES)} (see {package.__name__})"
            )
    return {module.__name__.rpartition(".")[2]: typing.cast(PolicyModule, module) for module in modules}


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in iter_modules(package.__path__):
        yield import_module(f"{package.__name__}.{found.name}")
