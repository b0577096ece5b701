"""`gateway demo`: the gateway with model servers of its own behind it."""

from pathlib import Path
from typing import Annotated

import typer

import gateway
from gateway.cli.serve import serve

CONFIG = Path(gateway.__file__).with_name("demo.yaml")
"""The configuration that comes with the package; in the repository it is `config/gateway.yaml`, too."""


def demo(
    print_it: Annotated[
        bool, typer.Option("--print", help="Print the configuration and end: a file to start one's own from.")
    ] = False,
) -> None:
    """Serve the configuration that comes with the package. It has model servers of its own, all on loopback."""
    if print_it:
        print(CONFIG.read_text("utf-8"), end="")
    else:
        serve(CONFIG)
