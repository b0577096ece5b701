"""The command line: one module per command."""

import typer

from gateway.cli.call import call
from gateway.cli.check import check
from gateway.cli.reference import reference
from gateway.cli.schema import schema
from gateway.cli.serve import serve

application = typer.Typer(
    name="gateway",
    help="Any model client to any model server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (serve, check, schema, reference, call):
    application.command()(command)


def main() -> None:
    """Run the command that the arguments name."""
    application()
