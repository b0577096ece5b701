"""`gateway openapi`: print the OpenAPI document of a listener, without a running gateway."""

from typing import Annotated

import typer

from gateway.assembly.forms import spoken
from gateway.assembly.server_info import INFO
from gateway.cli.exit_codes import misuse
from gateway.cli.options import ConfigFile, read
from gateway.config import paths
from gateway.config.keys import Config
from gateway.config.listeners import ListenerConfig
from gateway.core.protocol import Protocol
from gateway.tools.printed import indented_json


def openapi(
    config: ConfigFile,
    listener: Annotated[str, typer.Option(metavar="NAME", help="Default: the only HTTP listener.")] = "",
) -> None:
    """Print the OpenAPI document of an HTTP listener. A running gateway also serves the document, at `/api/openapi` on
    the admin port. If the request names a model, that document also describes the model's inputs and outputs."""
    from gateway.admin.openapi.document import document, listener_url

    whole = read(config)
    chosen = _chosen(whole, listener)
    url = listener_url(chosen, str(chosen.bind), "localhost")
    found = document(chosen, _rows(whole, chosen), url, whole.auth, {}, INFO.version)
    print(indented_json(found))


def _rows(config: Config, listener: ListenerConfig) -> tuple[tuple[Protocol, str], ...]:
    return paths.over_http(paths.rows(listener, config.routes, config.backends, spoken(config)))


def _chosen(config: Config, name: str) -> ListenerConfig:
    over_http = [each for each in config.listeners if _rows(config, each)]
    found = [each for each in over_http if name in ("", each.name)]
    names = ", ".join(each.name for each in over_http) or "none"
    if not found:
        misuse(
            f"unknown HTTP listener {name!r}; expected {names}"
            if name
            else "expected an HTTP listener in the configuration"
        )
    if len(found) > 1:
        misuse(f"the configuration has several HTTP listeners; choose one with --listener: {names}")
    return found[0]
