"""`gateway demo`: starts the gateway and its own model servers, without a configuration file."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.commands.serve import serve

CONFIG = Path(__file__).parents[2] / "demo.yaml"
"""The configuration that the package contains; `config/gateway.yaml` in the repository is the same."""


def demo(
    print_config: Annotated[
        bool, typer.Option("--print", help="Print the configuration and exit. Use it as a template.")
    ] = False,
) -> None:
    """Serve the configuration that comes with the package. The configuration starts its own model servers. All
    addresses are on loopback."""
    if print_config:
        print(CONFIG.read_text("utf-8"), end="")
    else:
        serve(CONFIG)
