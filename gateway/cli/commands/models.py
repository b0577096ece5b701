"""`gateway models`: the models of a server, or of all backends of a configuration."""

import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import orjson
import typer

from gateway.assembly.forms import described_form, known
from gateway.cli import server_options
from gateway.cli.exit_codes import FAILED, TIMED_OUT, UNREACHABLE, USAGE, end
from gateway.cli.grouped import grouped
from gateway.cli.options import read
from gateway.cli.probing.asking import ServerAccess
from gateway.cli.probing.listing import ServerModels, list_models
from gateway.cli.probing.probe import MOST_SECONDS, ProbeVerdict, client
from gateway.cli.probing.probe import probe as find
from gateway.cli.server_options import progress, table
from gateway.cli.server_output import model_rows, models_json
from gateway.client import AsyncClient, ClientError, ConnectError, ServerKind, Timeout
from gateway.config import Config
from gateway.runtime.process.running import run

EPILOG = "Exit codes: 0 success, 1 a server has no list of models or refused it, 2 wrong usage, 3 a server cannot be reached, 4 no answer in time."  # noqa: E501
SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class ModelsOptions:
    """The options of `gateway models`."""

    address: Annotated[
        str,
        typer.Argument(metavar="[ADDRESS]", help="As of `gateway probe`: HOST:PORT, a URL, or PROTOCOL://HOST:PORT."),
    ] = ""
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="In place of ADDRESS: every backend of a configuration. It is sent those of the headers that are in "
            "its forward_headers, a key as Authorization.",
            exists=True,
            dir_okay=False,
        ),
    ] = None
    names: server_options.ModelNames = field(default_factory=list)
    timeout: server_options.Seconds = SECONDS
    server: server_options.ServerOptions = field(default_factory=server_options.ServerOptions)
    as_json: server_options.AsJson = False


@grouped(ModelsOptions)
def models(options: ModelsOptions) -> None:
    """List the models of a server, or of all backends. These are the backends of a configuration (--config). Models
    have their versions, state and signatures. On a terminal a table is printed, elsewhere JSON."""
    if bool(options.address) == bool(options.config):
        end(USAGE, "expected either ADDRESS or --config FILE")
    access, is_json = options.server.access(), options.as_json or not sys.stdout.isatty()
    if options.config is not None:
        run(_of_config(read(options.config), access, options.timeout, as_json=is_json))
    else:
        run(_of_address(options.address, access, options.timeout, options.names, as_json=is_json))


async def _of_address(address: str, access: ServerAccess, seconds: float, names: list[str], *, as_json: bool) -> None:
    try:
        with progress(f"asking {address}") as show:
            found = await find(address, known(), access, seconds=seconds, names=names, on_progress=show)
    except ValueError as error:
        end(USAGE, error)
    if not found.spoken:
        codes = {ProbeVerdict.UNREACHABLE: UNREACHABLE, ProbeVerdict.SILENT: TIMED_OUT}
        end(codes.get(found.verdict, FAILED), f"{address}: {found.text}")
    best = found.spoken[0]
    if as_json:
        place = {"protocol": best.protocol, "address": best.address}
        print(orjson.dumps({**place, **models_json(best.models)}, option=orjson.OPT_INDENT_2).decode())
    elif best.models.models:
        print(table(model_rows(best.models), ("model", "versions", "state", "signature")))
    if best.models.error and not best.models.models:
        end(FAILED, f"{address}: {best.models.error}")


async def _of_config(config: Config, access: ServerAccess, seconds: float, *, as_json: bool) -> None:
    places = [(name, each.address) for name, backend in config.backends.items() for each in backend.endpoints]
    with progress("asking") as show:
        show(f"{len(places)} endpoints")
        asked = await asyncio.gather(*(_of_endpoint(config, *each, access, seconds) for each in places))
    rows: list[tuple[str, ...]] = []
    document, code = [], 0
    for (name, address), (found, failed) in zip(places, asked, strict=True):
        place = {"backend": name, "protocol": config.backends[name].protocol, "address": address}
        document.append({**place, **models_json(found)})
        if found.error and not found.models:
            rows.append((name, address, "-", "-", "-", found.error))
        rows += [(name, address, *row) for row in model_rows(found)]
        code = max(code, failed)
    if as_json:
        print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        print(table(rows, ("backend", "endpoint", "model", "versions", "state", "signature")))
    if code:
        raise SystemExit(code)


async def _of_endpoint(
    config: Config, name: str, address: str, access: ServerAccess, seconds: float
) -> tuple[ServerModels, int]:
    """The models at one endpoint, and the exit code for it."""
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
        return ServerModels(error=str(error) or "no answer in time"), TIMED_OUT
    except (ClientError, ValueError) as error:
        return ServerModels(error=str(error)), FAILED
