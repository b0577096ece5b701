"""Completes a part of a configuration to a whole configuration, so that tests can check it."""

from collections.abc import Mapping
from typing import Any

from gateway.cli.options import catalog
from gateway.config import ConfigError, loads

ROUTE_KEYS = {"split", "sticky", "fallback", "translate", "rewrite"}
SPLIT = [{"backend": "one", "weight": 1}, {"backend": "other", "weight": 1}]
LISTENER = {"name": "listener", "bind": "127.0.0.1:8080", "protocols": ["v2-rest"]}
BACKEND = {"protocol": "v2-rest", "endpoints": ["127.0.0.1:8000"]}
_ABSENT = ("no such file or directory; check the path and its permissions", "is not a file")


def problems_but_absent_files(text: str, place: str) -> list[str]:
    """Return the problems of a configuration, except missing files."""
    try:
        loads(text, place, catalog(), {"PWD": "/run"})
    except ConfigError as error:
        return [each for each in str(error).splitlines() if not each.lower().endswith(_ABSENT)]
    return []


def completed(part: Any) -> dict[str, Any]:
    """Return a complete configuration with `part` (some top-level keys, some keys of a route, or a list of routes). Add
    a listener, the backends that its routes use, and a route to each of its backends."""
    if isinstance(part, list):
        part = {"routes": part}
    elif part.keys() & ROUTE_KEYS:
        part = {"routes": [{"match": {}, **_branches(part), **part}]}
    whole = {"listeners": [LISTENER], **part}
    if "auth" not in whole and ("principals" in whole or any("auth" in each for each in whole["listeners"])):
        whole["auth"] = {"keys": {"file": "/etc/gateway/keys.yaml"}}
    names = whole.get("backends", ["one"])
    routes = whole.get("routes") or [{"match": {"model": name}, "backend": name} for name in names]
    named = {name for route in routes for name in _backends(route)}
    places = [*routes, *whole.get("backends", {}).values()]
    policies = [policy for each in places for policy in each.get("policies", [])]
    named |= {settings["backend"] for each in policies for settings in each.values() if "backend" in settings}
    backends = dict.fromkeys(sorted(named), BACKEND) | whole.get("backends", {})
    return {**whole, "backends": backends, "routes": routes}


def _branches(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.keys() & {"backend", "split"}:
        return {}
    return {"split": SPLIT} if "sticky" in part else {"backend": "one"}


def _backends(route: Mapping[str, Any]) -> list[str]:
    fallback = route.get("fallback", [])
    branches = [route, *route.get("split", [])]
    named = [each["backend"] for each in branches if "backend" in each]
    return [*named, *([fallback] if isinstance(fallback, str) else fallback)]
