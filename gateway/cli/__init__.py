"""The command line `gateway`: one module per command."""

from typing import Annotated

import typer

from gateway.assembly.server_info import INFO
from gateway.cli.bench import bench
from gateway.cli.call import EPILOG, call
from gateway.cli.check import check
from gateway.cli.completion import completion, enable
from gateway.cli.conformance import conformance
from gateway.cli.demo import demo
from gateway.cli.explain import explain
from gateway.cli.init import EPILOG as INIT_EPILOG
from gateway.cli.init import init
from gateway.cli.keys import keys
from gateway.cli.models import EPILOG as MODELS_EPILOG
from gateway.cli.models import models
from gateway.cli.openapi import openapi
from gateway.cli.probe import EPILOG as PROBE_EPILOG
from gateway.cli.probe import probe
from gateway.cli.record import record
from gateway.cli.reference import reference
from gateway.cli.replay import EPILOG as REPLAY_EPILOG
from gateway.cli.replay import replay
from gateway.cli.route import route
from gateway.cli.schema import schema
from gateway.cli.serve import serve

application = typer.Typer(
    name="gateway",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (serve, demo, check, schema, route, explain, openapi, reference, conformance, bench, record, completion):
    application.command()(command)
application.command(epilog=EPILOG)(call)
application.command(epilog=INIT_EPILOG)(init)
application.command(epilog=PROBE_EPILOG)(probe)
application.command(epilog=MODELS_EPILOG)(models)
application.command(epilog=REPLAY_EPILOG)(replay)
application.add_typer(keys, name="keys")


def _print_version(requested: bool) -> None:
    if requested:
        print(f"gateway {INFO.version}")
        raise typer.Exit


@application.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Any model client to any model server."""


def main() -> None:
    """Run the command that the arguments name."""
    enable()
    application()
