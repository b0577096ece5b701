"""`gateway models`: list the models of one server or of every backend in a configuration."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from gateway.assembly.forms import described_form
from gateway.cli import server_options
from gateway.cli.command import grouped
from gateway.cli.exit_codes import FAILED, TIMED_OUT, UNREACHABLE, USAGE, end
from gateway.cli.options import read
from gateway.cli.probed_server import end_unspoken, model_rows, models_json, probed
from gateway.cli.progress import progress
from gateway.cli.server_options import table
from gateway.client import AsyncClient, ClientError, ConnectError, ServerKind, Timeout
from gateway.config import Config
from gateway.config.keys import AdminConfig
from gateway.core.frozen import frozen, replace
from gateway.runtime.process import run
from gateway.tools.admin_port import AdminPortError, AdminUnreachableError
from gateway.tools.printed import indented_json
from gateway.tools.probing.asking import ServerAccess
from gateway.tools.probing.listing import ServerModels, list_models
from gateway.tools.probing.probe import MOST_SECONDS, client

EPILOG = "Exit codes: 0 success, 1 a server cannot list its models or refused the request, 2 wrong usage, 3 a server is unreachable, 4 no response in time."  # noqa: E501
SECONDS = 5.0
COUNTED_SECONDS = 1.0
"""Seconds for which the command counts calls."""
NOTHING = "-"

PlacedCalls: TypeAlias = tuple[Any, Mapping[str, float]]
"""A backend's placement in the format of `/api/placement`, and each model's calls per second."""


@dataclass(frozen=True, kw_only=True)
class ModelsOptions:
    """The options of `gateway models`."""

    address: Annotated[
        str,
        typer.Argument(
            metavar="[ADDRESS]", help="Same as in `gateway probe`: HOST:PORT, a URL, or PROTOCOL://HOST:PORT."
        ),
    ] = ""
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Instead of ADDRESS: list all backends of a configuration. A backend gets only the headers that its "
            "forward_headers list; --key sets Authorization.",
            exists=True,
            dir_okay=False,
        ),
    ] = None
    names: server_options.ModelNames = field(default_factory=list)
    admin: Annotated[
        str,
        typer.Option(
            "--admin",
            metavar="URL",
            help="With --config: admin port of the running gateway. Default: the admin port in the configuration.",
        ),
    ] = ""
    timeout: server_options.Seconds = SECONDS
    server: server_options.ServerOptions = field(default_factory=server_options.ServerOptions)
    as_json: server_options.AsJson = False


@grouped(ModelsOptions)
def models(options: ModelsOptions) -> None:
    """List the models of a server, or of all backends. With --config, list the models on all backends in a
    configuration. Show each model's versions, state and signature. For backends with `placement`, print a table of
    models by server, as reported by the running gateway, or by the servers if no gateway is running. The command prints
    tables on a terminal, and JSON otherwise."""
    if bool(options.address) == bool(options.config):
        end(USAGE, "expected either ADDRESS or --config FILE")
    access, is_json = options.server.access(), options.as_json or not sys.stdout.isatty()
    if options.config is not None:
        config = read(options.config)
        run(_of_config(config, _of_gateway(config, options), access, options.timeout, as_json=is_json))
    else:
        run(_of_address(options.address, access, options.timeout, options.names, as_json=is_json))


async def _of_address(address: str, access: ServerAccess, seconds: float, names: list[str], *, as_json: bool) -> None:
    found = await probed(address, access, seconds, names)
    if not found.spoken:
        end_unspoken(found, address)
    best = found.spoken[0]
    if as_json:
        place = {"protocol": best.protocol, "address": best.address}
        print(indented_json({**place, **models_json(best.models)}))
    elif best.models.models:
        print(table(model_rows(best.models), ("model", "versions", "state", "signature")))
    if best.models.error and not best.models.models:
        end(FAILED, f"{address}: {best.models.error}")


async def _of_config(
    config: Config, placed: Mapping[str, PlacedCalls], access: ServerAccess, seconds: float, *, as_json: bool
) -> None:
    """Query all endpoints except endpoints of `placed` backends."""
    places = [
        (name, each.address) for name, one in config.backends.items() if name not in placed for each in one.endpoints
    ]
    with progress("asking servers") as line:
        answered = line.counted(len(places), "endpoints")
        asked = await asyncio.gather(*(_of_endpoint(config, *each, access, seconds, answered) for each in places))
    found = dict(zip(places, asked, strict=True))
    document = [
        *_placed_json(config, placed),
        *(_endpoint_json(config, *at, models) for at, (models, _) in found.items()),
    ]
    if as_json:
        print(indented_json(document))
    else:
        print("\n\n".join(tables(config, placed, {at: models for at, (models, _) in found.items()})))
    if code := max((code for _, code in found.values()), default=0):
        raise SystemExit(code)


def _of_gateway(config: Config, options: ModelsOptions) -> dict[str, PlacedCalls]:
    """Return the placement of backends with `placement`, as reported by the running gateway. The result is empty if no
    gateway is running."""
    names = {name for name, each in config.backends.items() if each.placement is not None}
    url = options.admin or (_admin_url(config.admin) if config.admin is not None else "")
    if not names or not url:
        return {}
    server = options.server
    access = server_options.AdminAccess(headers=server.headers, key=server.key, ca=server.ca, insecure=server.insecure)
    port = access.port(url, options.timeout)
    try:
        with progress(f"counting calls at {url}"):
            before = port.get("/api/placement")["backends"]
            began = time.monotonic()
            time.sleep(COUNTED_SECONDS)
            after = port.get("/api/placement")["backends"]
    except AdminPortError as error:
        if options.admin or not isinstance(error, AdminUnreachableError):
            end(server_options.admin_exit_code(error), error)
        print(f"no running gateway, so querying the servers: {error}", file=sys.stderr)
        return {}
    passed = time.monotonic() - began
    return {name: (each, rates(before.get(name, each), each, passed)) for name, each in after.items() if name in names}


def _admin_url(admin: AdminConfig) -> str:
    return f"{'http' if admin.tls is None else 'https'}://{replace(admin.bind, scheme='')}"


def _placed_json(config: Config, placed: Mapping[str, PlacedCalls]) -> Iterator[dict[str, Any]]:
    for name, (table_of, calls) in placed.items():
        models = [{**each, "calls_per_second": calls[each["model"]]} for each in table_of["models"]]
        yield {"backend": name, "protocol": config.backends[name].protocol, "placement": {**table_of, "models": models}}


def _endpoint_json(config: Config, name: str, address: str, models: ServerModels) -> dict[str, Any]:
    return {"backend": name, "protocol": config.backends[name].protocol, "address": address, **models_json(models)}


def tables(
    config: Config,
    placed: Mapping[str, PlacedCalls],
    found: Mapping[tuple[str, str], ServerModels],
) -> Iterator[str]:
    """Yield a table of models by server for each backend with `placement`, and one table of all endpoints of the other
    backends."""
    rows: list[tuple[str, ...]] = []
    for (name, address), models in found.items():
        if config.backends[name].placement is not None:
            continue
        if models.error and not models.models:
            rows.append((name, address, "-", "-", "-", models.error))
        rows += [(name, address, *row) for row in model_rows(models)]
    for name, backend in config.backends.items():
        if backend.placement is None:
            continue
        if name in placed:
            made = placement_table(*placed[name])
        else:
            servers = {address: models for (of, address), models in found.items() if of == name}
            made = placement_table(placement_of(servers), None)
        yield "\n".join([f"backend {name}:", table(made.rows, made.head), *made.notes])
    if rows:
        yield table(rows, ("backend", "endpoint", "model", "versions", "state", "signature"))


async def _of_endpoint(
    config: Config, name: str, address: str, access: ServerAccess, seconds: float, on_answer: Callable[[], None]
) -> tuple[ServerModels, int]:
    """Return the models at one endpoint, and its exit code. Call `on_answer` when the endpoint has responded or timed
    out."""
    backend = config.backends[name]
    names = {
        model for route in config.routes if name in route.backends
        for model in (route.rewrite.model or route.match.model or "",) if model and not set(model) & set("*?[{")
    }  # fmt: skip
    try:
        kind = ServerKind(backend.flavor, form=described_form(config, backend.protocol))
        asked: AsyncClient = client(backend.protocol, address, access.of_backend(backend), seconds, kind)
        async with asked, asyncio.timeout(seconds * MOST_SECONDS):
            return await list_models(asked, sorted(names)), 0
    except ConnectError as error:
        return ServerModels(error=str(error)), UNREACHABLE
    except (Timeout, TimeoutError) as error:
        return ServerModels(error=str(error) or "no response in time"), TIMED_OUT
    except (ClientError, ValueError) as error:
        return ServerModels(error=str(error)), FAILED
    finally:
        on_answer()


@frozen
class PlacementTable:
    """A header, a row for each model, and notes below the table about models that failed to load and servers that do
    not respond."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def placement_table(placed: Mapping[str, Any], calls: Mapping[str, float] | None) -> PlacementTable:
    """Return a table of a backend's placement, which has the format of `/api/placement`. `calls` contains the calls per
    second for each model, or is None if they are unknown, for example because no gateway is running."""
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
    """Return the placement in the format of `/api/placement`. `servers` maps each server's address to the models that
    the server reports. The placement includes models that are in a repository but not loaded on any server."""
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
    """Return the calls per second for each model, computed from the placement at two times."""
    earlier = {each["model"]: each["calls"] for each in before["models"]}
    return {
        each["model"]: max(0, each["calls"] - earlier.get(each["model"], each["calls"])) / seconds
        for each in after["models"]
    }
