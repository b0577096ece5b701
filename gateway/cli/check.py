"""`gateway check`: checks a configuration file, with `--live` also against the servers of its backends."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import orjson
import typer

from gateway import registry
from gateway.cli.options import ConfigFile, fail, read_with_warnings
from gateway.cli.server_options import progress, table
from gateway.config import Config, ConfigError
from gateway.config.loading import located
from gateway.config.problems import Problem
from gateway.core.frozen import replace


def check(
    config: ConfigFile,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    live: Annotated[
        bool,
        typer.Option("--live", help="Ask every server of the backends, too, and compare its models with the routes."),
    ] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.01, help="With --live: wait so long for each reply.")
    ] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="With --live: print JSON on a terminal, too.")] = False,
) -> None:
    """Check a configuration. Exit 0 if it is valid; otherwise print every error as
    file:line:column: message and exit 1. What is allowed but probably a mistake is printed as a warning."""
    whole, warnings = read_with_warnings(config)
    problems = list(warnings)
    if live:
        problems += _check_live(whole, config, timeout, as_json=as_json or not sys.stdout.isatty())
    if strict:
        problems = [replace(each, is_warning=False) for each in problems]
    for each in problems:
        print(each, file=sys.stderr)
    if not all(each.is_warning for each in problems):
        raise SystemExit(1)
    if not live and not problems and sys.stdout.isatty():
        print(f"{config}: valid")


def _check_live(config: Config, path: Path, seconds: float, *, as_json: bool) -> list[Problem]:
    from gateway.probing.live import check_live

    with progress(str(path)) as show:
        show("asking the servers")
        found = asyncio.run(check_live(config, registry.protocols(), seconds))
    if as_json:
        print(orjson.dumps({"routes": found.rows}, option=orjson.OPT_INDENT_2).decode())
    else:
        head = ("route", "backend", "endpoint", "model", "result", "")
        rows = [(each.route, each.backend, each.endpoint, each.model, each.result, each.text) for each in found.rows]
        print(table(rows, head))
    try:
        errors = located(path, found.errors)
        return [*errors, *(replace(each, is_warning=True) for each in located(path, found.warnings))]
    except ConfigError as error:
        fail(error)
