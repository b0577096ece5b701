"""`gateway check`: is a configuration right?"""

import sys
from typing import Annotated

import typer

from gateway.cli.options import ConfigFile, fail, read_with_warnings
from gateway.core.frozen import replace


def check(
    config: ConfigFile,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
) -> None:
    """Check a configuration. Exit 0, or print every error as file:line:column: message and exit 1. What is allowed but
    hardly meant is printed as a warning."""
    _, warnings = read_with_warnings(config)
    if strict and warnings:
        fail("\n".join(str(replace(each, is_warning=False)) for each in warnings))
    for each in warnings:
        print(each, file=sys.stderr)
