"""`gateway check`: check a configuration file and, with `--live`, compare it with the backends' servers."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.assembly.forms import spoken
from gateway.cli import server_options
from gateway.cli.exit_codes import fail
from gateway.cli.options import ConfigArgument, OptionalConfigFile, one_config, read_with_warnings
from gateway.cli.progress import progress
from gateway.cli.server_options import table
from gateway.config import Config, ConfigError
from gateway.config.loading import located
from gateway.config.problems import Problem
from gateway.core.frozen import replace
from gateway.tools.printed import indented_json
from gateway.tools.probing.asking import ServerAccess


def check(
    file: ConfigArgument = None,
    config: OptionalConfigFile = None,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    files: Annotated[
        bool,
        typer.Option(
            "--files/--no-files",
            help="Check the configured certificate and key files. Use --no-files if they are on another machine.",
        ),
    ] = True,
    live: Annotated[
        bool,
        typer.Option("--live", help="Also query every model server, and compare its models with the routes."),
    ] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.01, help="With --live: timeout for each response, in seconds.")
    ] = 5.0,
    headers: Annotated[
        list[str],
        typer.Option(
            "--header",
            metavar="NAME=VALUE",
            help="With --live: client header, sent to backends whose forward_headers list it. Repeatable.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            envvar="GATEWAY_KEY",
            show_envvar=True,
            help="With --live: client API key, sent to backends whose forward_headers list Authorization.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --live: print JSON, also on a terminal.")] = False,
) -> None:
    """Check a configuration. If the configuration is valid, exit with 0. Otherwise, print every error as
    file:line:column: message and exit with 1. Valid settings that are probably mistakes cause warnings."""
    path = one_config(file, config)
    whole, warnings = read_with_warnings(path, files=files)
    problems = list(warnings)
    if live:
        access = server_options.ServerOptions(headers=headers, key=key).access()
        problems += _check_live(whole, path, timeout, access, as_json=as_json or not sys.stdout.isatty())
    if strict:
        problems = [replace(each, is_warning=False) for each in problems]
    for each in problems:
        print(each, file=sys.stderr)
    if not all(each.is_warning for each in problems):
        raise SystemExit(1)
    if sys.stderr.isatty():
        print(f"{path}: no errors" + (f", warnings: {len(problems)}" if problems else ""), file=sys.stderr)


def _check_live(config: Config, path: Path, seconds: float, access: ServerAccess, *, as_json: bool) -> list[Problem]:
    from gateway.tools.probing.live import check_live

    with progress("asking servers") as line:
        answered = line.counted(sum(len(each.endpoints) for each in config.backends.values()), "endpoints")
        found = asyncio.run(check_live(config, spoken(config), seconds, access, answered))
    if as_json:
        print(indented_json({"routes": found.rows}))
    else:
        head = ("route", "backend", "endpoint", "model", "result", "")
        rows = [(each.route, each.backend, each.endpoint, each.model, each.result, each.text) for each in found.rows]
        print(table(rows, head))
    try:
        errors = located(path, found.errors)
        return [*errors, *(replace(each, is_warning=True) for each in located(path, found.warnings))]
    except ConfigError as error:
        fail(error)
