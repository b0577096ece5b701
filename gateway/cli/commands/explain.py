"""`gateway explain`: explain how the gateway handles one recorded request."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.assembly.explain.recorded import Arrival, RecordingError, arrive
from gateway.assembly.explain.request import explain as explained
from gateway.assembly.explain.text import explanation_lines
from gateway.assembly.forms import spoken
from gateway.cli.exit_codes import misuse
from gateway.cli.options import ConfigFile, read
from gateway.config.keys import Config
from gateway.runtime.process import run
from gateway.tools.printed import indented_json, printable_lines


def explain(
    file: Annotated[
        str, typer.Argument(metavar="REQUEST", help="A recorded request, or a JSON document; - is standard input.")
    ],
    config: ConfigFile,
    protocol: Annotated[str, typer.Option(metavar="NAME", help="Protocol, for byte streams and gRPC.")] = "",
    listener: Annotated[
        str, typer.Option(metavar="NAME", help="Default: the first listener that serves the request.")
    ] = "",
    path: Annotated[str, typer.Option(metavar="PATH", help="Method, for gRPC: /package.Service/Method.")] = "",
    send: Annotated[bool, typer.Option("--send", help="Also send the request to its backend.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain how the gateway handles a request. Print the protocol, the route, the tensors before and after
    conversion, and the message to the backend. The command sends the message only if --send is set. Exit with 1 if the
    client would receive an error."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        misuse(f"{file}: {error.strerror}")
    whole = read(config)
    try:
        arrival = arrive(data, whole, spoken(whole), protocol, listener, path)
    except RecordingError as error:
        misuse(f"{file}: {error}")
    run(_explain(arrival, whole, send=send, as_json=as_json))


async def _explain(arrival: Arrival, config: Config, *, send: bool, as_json: bool) -> None:
    found = await explained(arrival, config, spoken(config), send=send)
    if as_json:
        print(indented_json(found))
    else:
        print(printable_lines("\n".join(explanation_lines(found))))
    if found.error is not None:
        raise SystemExit(1)
