"""Options that commands share, and how they end."""

import gc
import sys
from collections.abc import Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import uvloop

from gateway import registry
from gateway.config import Catalog, Config, ConfigError, Place, Problem, load_with_warnings
from gateway.reference.bundled import BUNDLED
from gateway.transports.http.address import Address as HttpAddress

ConfigFile = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="The YAML file.", exists=True, dir_okay=False)
]


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop until done."""
    # What was imported lives as long as the process: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    uvloop.run(program)


def fail(message: object) -> NoReturn:
    """Say why on standard error, and exit with 1."""
    print(message, file=sys.stderr)
    raise SystemExit(1)


def read(path: Path) -> Config:
    """The configuration in `path`. Every warning about it is printed; every error in it, too, and ends the command."""
    config, warnings = read_with_warnings(path)
    for warning in warnings:
        print(warning, file=sys.stderr)
    return config


def read_with_warnings(path: Path) -> tuple[Config, tuple[Problem, ...]]:
    """The configuration in `path`, and the warnings about it; every error in it is printed, and ends the command."""
    try:
        return load_with_warnings(path, catalog())
    except ConfigError as error:
        fail(error)


def catalog() -> Catalog:
    """What a configuration may name."""
    pillow = find_spec("PIL") is not None
    return Catalog(registry.protocols(), registry.policies(), frozenset(BUNDLED), _parse_endpoint, pillow)


def _parse_endpoint(transport: str, endpoint: str) -> Place:
    address = registry.transport(transport).parse_address(endpoint)
    if isinstance(address, HttpAddress):
        return Place(address.host, address.port, prefix=address.prefix, tls=address.tls)
    return Place(address.host, address.port, address.path)
