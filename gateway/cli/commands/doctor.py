"""`gateway doctor`: print diagnostic information for a bug report."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.exit_codes import FAILED
from gateway.cli.options import catalog
from gateway.tools.doctor import diagnosis


def doctor(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Also check the ports of this configuration, and print its problems.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Print diagnostic information for a bug report. Prints versions, extras, processors, limits of memory and files,
    and the clock. If you pass a configuration, also prints the state of its ports, its errors and its warnings, but no
    other part of the configuration. Exit with 1 if the configuration has errors, or if a port is in use."""
    found = diagnosis(config, catalog())
    for title, rows in found.sections:
        print(f"{title}")
        width = max((len(name) for name, _ in rows), default=0)
        for name, text in rows:
            print(f"  {name:{width}}  {text}".rstrip())
    if found.is_bad:
        raise SystemExit(FAILED)
