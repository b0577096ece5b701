"""Options that commands share, and how they end."""

import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import uvloop

from gateway import registry
from gateway.config.catalog import Catalog
from gateway.config.load import load
from gateway.config.models import Config
from gateway.config.problems import ConfigError
from gateway.reference.bundled import BUNDLED

ConfigFile = Annotated[Path, typer.Option("--config", help="The YAML file.", exists=True, dir_okay=False)]


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop until done."""
    uvloop.run(program)


def fail(message: object) -> NoReturn:
    """Say why on standard error, and exit with 1."""
    print(message, file=sys.stderr)
    raise SystemExit(1)


def read(path: Path) -> Config:
    """The configuration in `path`; every error in it is printed, and ends the command."""
    try:
        return load(path, catalog())
    except ConfigError as error:
        fail(error)


def catalog() -> Catalog:
    """What a configuration may name."""
    return Catalog(registry.protocols(), registry.policies(), frozenset(BUNDLED), registry.parse_endpoint)
