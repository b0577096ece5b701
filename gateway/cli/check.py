"""`gateway check`: checks a configuration file."""

import sys
from typing import Annotated

import typer

from gateway.cli.options import ConfigFile, fail, read_with_warnings
from gateway.core.frozen import replace


def check(
    config: ConfigFile,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
) -> None:
    """Check a configuration. Exit 0 if it is valid; otherwise print every error as
    file:line:column: message and exit 1. What is allowed but probably a mistake is printed as a warning."""
    _, warnings = read_with_warnings(config)
    if strict and warnings:
        fail("\n".join(str(replace(warning, is_warning=False)) for warning in warnings))
    for warning in warnings:
        print(warning, file=sys.stderr)
