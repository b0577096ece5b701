"""The `gateway` command line: one module per command in `commands`, imported only when the command runs.

The code of larger commands is in packages of `gateway.tools`: `bench`, `cassettes` (record and replay), `conformance`,
`probing`, `proposing` (init) and `top`.
"""

import sys
from importlib import import_module
from io import StringIO
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from gateway.cli.command import Command, CommandError
from gateway.cli.exit_codes import INTERRUPTED, end, in_red

GROUPS = {
    "Run": {
        "serve": "Run the gateway with a configuration file.",
        "demo": "Run the gateway with the demo configuration.",
        "reference": "Run a model server with sample models or Python callables.",
        "record": "Run the gateway, and record requests and responses.",
    },
    "Write and check a configuration": {
        "init": "Write a configuration file with comments.",
        "check": "Check a configuration.",
        "route": "Print the route of a request.",
        "explain": "Explain how the gateway handles a request.",
        "graph": "Print a model graph.",
        "openapi": "Print the OpenAPI document of an HTTP listener.",
        "schema": "Print the JSON Schema of a configuration.",
    },
    "Query model servers": {
        "probe": "Detect the protocols of a server.",
        "models": "List the models of a server, or of all backends.",
        "call": "Send one inference to a model server.",
        "bench": "Load-test a model server, and print latencies.",
        "replay": "Send recorded requests, and compare the responses.",
        "conformance": "Check a server against its protocol's specification.",
    },
    "Operate": {
        "top": "Show the activity of a running gateway.",
        "doctor": "Print diagnostic information for a bug report.",
        "drain": "Stop sending requests to an endpoint, for maintenance.",
        "keys": "Create, list and revoke API keys.",
        "completion": "Print the completion script for a shell.",
    },
}
"""Every command with its line in `gateway --help`, in the groups and the order that the help shows. The command `NAME`
is the object `NAME` in the module `gateway.cli.commands.NAME`: a function, or a Typer if the command has subcommands.
The module's `EPILOG`, if any, ends the command's help."""
COMMANDS = {name: text for commands in GROUPS.values() for name, text in commands.items()}


class CommandGroup(TyperGroup):
    """The commands, each imported when needed. Types are `Any` because Typer contains a private copy of click and does
    not export its types."""

    def main(self, *args: Any, **settings: Any) -> NoReturn:
        """Run the command that the arguments name, and exit with its exit code."""
        try:
            found = super().main(*args, **{**settings, "standalone_mode": False})
        except CommandError as error:
            _show(error)
            raise SystemExit(error.exit_code) from None
        except typer.Abort:  # at a prompt
            end(INTERRUPTED, "interrupted")
        raise SystemExit(found if isinstance(found, int) else 0)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command with this name, or None if the name is unknown."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name. If the name is unknown, raise an error that suggests a similar
        command."""
        if args and args[0] not in COMMANDS:
            for name in COMMANDS:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, without importing the commands."""
        width = max(map(len, COMMANDS))
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


def _show(error: Any) -> None:
    """Print the usage, followed by the usage error in the format of other errors."""
    text = StringIO()
    error.show(text)
    usage, mark, told = text.getvalue().rstrip("\n").partition("Error: ")
    print(usage + (in_red(mark + told) if mark else ""), file=sys.stderr)


def _load(name: str) -> Any:
    module = import_module(f"gateway.cli.commands.{name}")
    found = getattr(module, name)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        alone.command(name, cls=Command, epilog=getattr(module, "EPILOG", None))(found)
        found = alone
    command = typer.main.get_command(found)
    command.name = name
    return command


application = typer.Typer(
    name="gateway",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(requested: bool) -> None:
    if requested:
        from gateway.assembly.server_info import INFO

        print(f"gateway {INFO.version}")
        raise typer.Exit


@application.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Connect any model client to any model server."""


def main() -> None:
    """Run the command that the arguments name."""
    from gateway.cli.commands.completion import enable

    enable()
    application()
