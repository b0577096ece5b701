"""The command line `gateway`: one module per command."""

from typing import Annotated

import typer

from gateway.assembly.server_info import INFO
from gateway.cli.call import EPILOG, call
from gateway.cli.check import check
from gateway.cli.conformance import conformance
from gateway.cli.demo import demo
from gateway.cli.explain import explain
from gateway.cli.keys import keys
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
for command in (serve, demo, check, schema, route, explain, reference, conformance, record):
    application.command()(command)
application.command(epilog=EPILOG)(call)
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
    application()
