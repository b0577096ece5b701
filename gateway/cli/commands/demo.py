"""`gateway demo`: start the gateway and sample model servers with the package's demo configuration."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.commands.serve import serve

CONFIG = Path(__file__).parents[2] / "demo.yaml"
"""The demo configuration in the package; `config/gateway.yaml` in the repository is a link to it."""


def demo(
    print_config: Annotated[
        bool, typer.Option("--print", help="Print the configuration, which you can use as a template, and exit.")
    ] = False,
) -> None:
    """Run the gateway with the demo configuration. The command also starts sample model servers. All addresses are on
    loopback."""
    if print_config:
        print(CONFIG.read_text("utf-8"), end="")
    else:
        serve(CONFIG)
