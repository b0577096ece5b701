"""The base class of commands with options. It shows their help, and the errors for unknown options and arguments."""

from typing import Any

import typer
from typer.core import TyperCommand

from gateway.cli.synonyms import meant

UsageError: Any = typer.BadParameter.__mro__[1]
CommandError: Any = typer.BadParameter.__mro__[2]
"""These classes are from Typer's private copy of click."""
_TAKES_OPTIONS = ("--config", "--admin")
"""Options whose values users often pass as arguments."""


class Command(TyperCommand):
    """A command that suggests the right option if the user writes another program's name for it, and that shows
    arguments with their metavars."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments like TyperCommand, but suggest an alternative in the error for an unknown option or a
        surplus argument."""
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            options = [name for each in self.params for name in each.opts]
            unknown = getattr(error, "option_name", None)
            if unknown is not None and error.message.startswith("No such option"):
                instead = meant(unknown, options, takes_config="--config" in options)
                raise UsageError(f"No such option: {unknown}" + (f" ({instead})" if instead else ""), ctx) from None
            if error.message.startswith("Got unexpected extra argument"):
                error.message += "".join(f" (use {each})" for each in _TAKES_OPTIONS if each in options)
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the command name in the `Usage:` line."""
        return ["[OPTIONS]", *map(_shown, self._arguments())]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the lists of arguments and options."""
        arguments = [(each.metavar, each.help or "") for each in self._arguments()]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        options = [each.get_help_record(ctx) for each in self.get_params(ctx) if each.param_type_name == "option"]
        with formatter.section("Options"):
            formatter.write_dl([each for each in options if each is not None])

    def _arguments(self) -> list[Any]:
        return [each for each in self.params if each.param_type_name == "argument"]


def _shown(argument: Any) -> str:
    metavar = str(argument.metavar)
    return metavar if argument.required or metavar.startswith("[") else f"[{metavar}]"
