"""`gateway record`: run the gateway, and record requests and responses to a file."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.commands.serve import serve_file
from gateway.cli.exit_codes import misuse
from gateway.cli.options import ConfigFile


def record(
    config: ConfigFile,
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="File for the recording (cassette). If the file exists, new requests are appended.",
            dir_okay=False,
        ),
    ],
    requests: Annotated[int, typer.Option(metavar="N", help="Maximum number of recorded requests.", min=1)] = 10_000,
    size: Annotated[int, typer.Option(metavar="BYTES", help="Maximum size of the file, in bytes.", min=1024)] = 2**30,
    models: Annotated[
        list[str], typer.Option(metavar="GLOB", help="Record only requests for these models. Repeatable.")
    ] = ["*"],  # noqa: B006 - typer copies it
    share: Annotated[float, typer.Option(metavar="SHARE", help="Share of the requests to record.", min=0, max=1)] = 1.0,
) -> None:
    """Run the gateway, and record requests and responses. The command works like `gateway serve`, and also writes
    requests and responses to a file, which `gateway replay` can replay. When the file reaches a limit, recording stops,
    but the gateway continues to run. The file contains all model inputs, but no credentials."""
    from gateway.tools.cassettes.entries import CassetteError
    from gateway.tools.cassettes.files import CassetteFile
    from gateway.tools.cassettes.recorder import Bounds, Recorder

    try:
        file = CassetteFile(output)
    except CassetteError as error:
        misuse(error)
    serve_file(config, Recorder(file, Bounds(requests, size, tuple(models), share)))
