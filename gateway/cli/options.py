"""Code that commands share: the option `--config` and functions that read a configuration."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from gateway.assembly import registry
from gateway.assembly.forms import READY, form
from gateway.auth.keys import KeyFileError, read_keys
from gateway.cli.exit_codes import fail
from gateway.config import Catalog, Config, ConfigError, EndpointAddress, Problem, load_with_warnings
from gateway.config.catalog import no_faults
from gateway.core.frozen import replace
from gateway.reference.bundled import BUNDLED
from gateway.transports.certificates import faults
from gateway.transports.http.address import HttpAddress

ConfigFile = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="The configuration (YAML).", exists=True, dir_okay=False)
]

OptionalConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Same as FILE.", exists=True, dir_okay=False)
]
ConfigArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="The configuration (YAML).", exists=True, dir_okay=False)
]


def one_config(argument: Path | None, option: Path | None) -> Path:
    """Return the configuration file from the argument or the option. If the user passed both or neither, raise
    BadParameter, which ends the command."""
    given = [path for path in (argument, option) if path is not None]
    if len(given) != 1:
        raise typer.BadParameter("expected one configuration file: FILE, or --config FILE")
    return given[0]


def read(path: Path) -> Config:
    """Return the configuration in `path`, and print its warnings. If the configuration has errors, print all errors and
    exit with 1."""
    config, warnings = read_with_warnings(path)
    for warning in warnings:
        print(warning, file=sys.stderr)
    return config


def read_with_warnings(path: Path, *, files: bool = True) -> tuple[Config, tuple[Problem, ...]]:
    """Return the configuration in `path` and its warnings. If `files` is set, include warnings about its certificate
    and key files. If the configuration has errors, print all errors and exit with 1."""
    known = catalog()
    if not files:
        known = replace(known, tls_faults=no_faults, why_not_keys=_no_fault, why_not_key_set=_no_fault)
    try:
        return load_with_warnings(path, known)
    except ConfigError as error:
        fail(error)


def catalog() -> Catalog:
    """Return the protocols, policies and bundled models that a configuration can use. If a policy's module is
    incomplete, exit with 1."""
    try:
        policies = registry.policies()
    except registry.IncompletePolicyError as error:
        fail(error)
    has_pillow = find_spec("PIL") is not None
    has_dnspython = find_spec("dns") is not None
    return Catalog(
        protocols=registry.protocols(),
        policies=policies,
        reference_models=frozenset(BUNDLED),
        parse_endpoint=_parse_endpoint,
        tls_faults=faults,
        images=has_pillow,
        srv=has_dnspython,
        jwt=find_spec("jwt") is not None,
        why_not_engine=_why_not_engine,
        why_not_keys=_why_not_keys,
        why_not_key_set=_why_not_key_set,
        form=form,
        ready_forms=READY,
    )


def _no_fault(path: str) -> str:
    return ""


def _why_not_engine(name: str) -> str:
    engine = import_module(f"gateway.servers.engines.{name}")
    return "" if engine.is_installed() else str(engine.REQUIRES)


def _why_not_keys(path: str) -> str:
    try:
        read_keys(Path(path))
    except KeyFileError as error:
        return str(error)
    return ""


def _why_not_key_set(path: str) -> str:
    from gateway.auth.tokens import KeySetError, parse_key_set  # needs PyJWT

    try:
        parse_key_set(Path(path).read_bytes())
    except OSError as error:
        return f"cannot read the file: {error.strerror}; check the path and its permissions"
    except KeySetError as error:
        return str(error)
    return ""


def _parse_endpoint(transport: str, endpoint: str) -> EndpointAddress:
    address = registry.transport(transport).parse_address(endpoint)
    if isinstance(address, HttpAddress):
        return EndpointAddress(address.host, address.port, prefix=address.prefix, tls=address.tls)
    return EndpointAddress(address.host, address.port, address.path, tls=address.scheme in ("grpcs", "tcps"))
