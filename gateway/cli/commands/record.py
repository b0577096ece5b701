"""`gateway record`: serves a configuration, and writes its requests and replies to a cassette."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.commands.serve import serve_file
from gateway.cli.exit_codes import misuse
from gateway.cli.options import ConfigFile


def record(
    config: ConfigFile,
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="The cassette. It is appended to if it is there.", dir_okay=False)
    ],
    requests: Annotated[int, typer.Option(metavar="N", help="The most requests that are recorded.", min=1)] = 10_000,
    size: Annotated[int, typer.Option(metavar="BYTES", help="The most bytes of the file.", min=1024)] = 2**30,
    models: Annotated[
        list[str], typer.Option(metavar="GLOB", help="Record only requests for these models. Repeatable.")
    ] = ["*"],  # noqa: B006 - typer copies it
    share: Annotated[
        float, typer.Option(metavar="SHARE", help="The share of the requests that is recorded.", min=0, max=1)
    ] = 1.0,
) -> None:
    """Serve a configuration, and record requests and replies. It is served as by `gateway serve`; `gateway replay`
    sends what was recorded. At a bound the recording ends, and the serving goes on. Credentials are not recorded, but
    all that models are asked is."""
    from gateway.cli.cassettes.entries import CassetteError
    from gateway.cli.cassettes.files import CassetteFile
    from gateway.cli.cassettes.recorder import Bounds, Recorder

    try:
        file = CassetteFile(output)
    except CassetteError as error:
        misuse(error)
    serve_file(config, Recorder(file, Bounds(requests, size, tuple(models), share)))
