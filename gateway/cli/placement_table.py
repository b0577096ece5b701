"""The placement of a backend's models as a table of models by server, for `gateway models --config FILE`."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core.frozen import frozen
from gateway.tools.probing.listing import ServerModels

NOTHING = "-"


@frozen
class PlacementTable:
    """A header, a row for each model, and notes below the table about models that failed to load and servers that do
    not respond."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def placement_table(placed: Mapping[str, Any], calls: Mapping[str, float] | None) -> PlacementTable:
    """Return a table of a backend's placement, which is in the format of `/api/placement`. `calls` contains the calls
    per second for each model, or is None if they are unknown, for example because no gateway runs."""
    servers: Sequence[Mapping[str, Any]] = placed["servers"]
    head = ["model", "versions", "copies"]
    if calls is not None:
        head += ["calls/s", "in flight"]
    rows, notes = [], []
    for model in placed["models"]:
        places = {each["server"]: each for each in model["places"]}
        row = [model["model"], ", ".join(model["versions"]) or NOTHING, str(model["copies"])]
        if calls is not None:
            row += [f"{calls.get(model['model'], 0.0):.1f}", str(model["in_flight"])]
        row += [places[at]["state"] if at in places else NOTHING for at in range(len(servers))]
        rows.append(tuple(row))
        notes += [
            f"{model['model']} at {servers[at]['address']}: {each['why']}" for at, each in places.items() if each["why"]
        ]
    notes += [f"{each['address']}: {each['error']}" for each in servers if each["error"]]
    notes += [f"{each['address']} is {each['drain']}" for each in servers if each["drain"]]
    return PlacementTable((*head, *(each["address"] for each in servers)), tuple(rows), tuple(notes))


def placement_of(servers: Mapping[str, ServerModels]) -> dict[str, Any]:
    """Return the placement in the format of `/api/placement`. `servers` contains the models that each server reports,
    by server address. The placement includes models that are in a repository but not loaded on any server."""
    found: dict[str, dict[str, Any]] = {}
    for at, models in enumerate(servers.values()):
        for each in models.own:
            known = found.setdefault(each.name, {"model": each.name, "versions": [], "copies": 0, "places": []})
            if each.state not in ("", "READY"):
                continue
            known["versions"] = list(dict.fromkeys([*known["versions"], *each.versions]))
            known["copies"] += 1
            known["places"].append({"server": at, "state": "held", "why": ""})
    return {
        "servers": [{"address": at, "error": models.error, "drain": None} for at, models in servers.items()],
        "models": [found[name] for name in sorted(found)],
    }


def rates(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """Return the calls per second for each model, computed from the placement at two points in time."""
    earlier = {each["model"]: each["calls"] for each in before["models"]}
    return {
        each["model"]: max(0, each["calls"] - earlier.get(each["model"], each["calls"])) / seconds
        for each in after["models"]
    }
