"""Protocols that differ from another one in a few traits."""

from typing import Any

from gateway.core.frozen import replace
from gateway.core.protocol import Protocol


def adapted(protocol: Protocol, name: str = "", **traits: dict[str, Any]) -> Protocol:
    """A protocol that differs from another one in these traits, such as `wire={"unnamed": True}`."""
    parts: dict[str, Any] = {part: replace(getattr(protocol.traits, part), **keys) for part, keys in traits.items()}
    return replace(protocol, name=name or protocol.name, traits=replace(protocol.traits, **parts))
