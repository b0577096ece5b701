"""`gateway replay`: send recorded requests to a server, and compare the responses with the recorded responses."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli import server_options
from gateway.cli.command import grouped
from gateway.cli.exit_codes import FAILED, UNREACHABLE, USAGE, end
from gateway.cli.progress import progress
from gateway.client.settings import ServerKind
from gateway.runtime.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.client.settings import ClientSettings
    from gateway.core.protocol import Protocol
    from gateway.tools.cassettes.replaying import Replayed, Settings


EPILOG = (
    "Exit codes: 0 all responses are equal, 1 some responses differ or are missing, 2 wrong usage or a malformed file, "
    "3 the server is unreachable."
)


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """The recording, the comparison and the server of `gateway replay`."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="Cassette written by `gateway record`.")]
    to: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The server: PROTOCOL://HOST:PORT, PROTOCOL+tls://HOST:PORT or PROTOCOL:///SOCKET.",
        ),
    ]
    protocol: Annotated[str, typer.Option(metavar="NAME", help="Protocol, if ADDRESS does not name it.")] = ""
    wire: Annotated[
        bool,
        typer.Option(
            "--wire", help="Send the recorded bytes unchanged; the server must have the protocol of the recording."
        ),
    ] = False
    rtol: Annotated[
        float, typer.Option(metavar="DISTANCE", help="Relative tolerance, as a factor of the recorded value.", min=0)
    ] = 0.0
    atol: Annotated[
        float, typer.Option(metavar="DISTANCE", help="Absolute tolerance, in addition to --rtol.", min=0)
    ] = 0.0
    ulp: Annotated[
        int, typer.Option(metavar="N", help="Tolerance in units in the last place (steps between floats).", min=0)
    ] = 0
    by_position: Annotated[
        bool, typer.Option("--by-position", help="Pair outputs by position, if the server names them differently.")
    ] = False
    by_value: Annotated[bool, typer.Option("--by-value", help="Compare numbers by value, and ignore datatypes.")] = (
        False
    )
    models: Annotated[
        list[str],
        typer.Option("--model", metavar="RECORDED=NAME", help="Model name on the server. Repeatable."),
    ] = field(default_factory=list)
    renamed: Annotated[
        list[str],
        typer.Option("--rename", metavar="RECORDED=NAME", help="Input or output name on the server. Repeatable."),
    ] = field(default_factory=list)
    version: Annotated[
        str | None,
        typer.Option("--model-version", metavar="VERSION", help="Version to request; empty: no version."),
    ] = None
    in_flight: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of requests in flight.", min=1, max=1024)
    ] = 1
    rate: Annotated[
        float | None, typer.Option(metavar="N", help="Maximum number of requests sent per second.", min=0.001)
    ] = None
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Timeout for each response, in seconds.", min=0.001)
    ] = 10.0
    server: server_options.ServerOptions = field(default_factory=server_options.ServerOptions)
    flavor: server_options.Flavor = ""
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Configuration that declares the forms (json:FORM) of requests and of the server.",
            exists=True,
            dir_okay=False,
        ),
    ] = None
    reports: server_options.ReportFiles = field(default_factory=server_options.ReportFiles)


@grouped(ReplayOptions)
def replay(options: ReplayOptions) -> None:
    """Send recorded requests, and compare the server's responses with the recorded responses. The server can use any
    protocol."""
    from gateway.tools.cassettes import files
    from gateway.tools.cassettes.entries import CassetteError
    from gateway.tools.cassettes.replaying import EQUAL, NoConnection

    settings, access = _settings(options), options.server.access()
    try:
        form = server_options.declared_form(options.config, options.to, options.protocol)
        server = access.settings_for(options.to, options.protocol, ServerKind(options.flavor, form=form))
        # The command sends no request if any line of the file is malformed.
        cut: list[str] = []
        with progress(f"reading {options.file}"):
            total = sum(1 for _ in files.read(options.file, on_cut=cut.append))
    except (CassetteError, ValueError) as error:
        end(USAGE, error)
    for text in cut:
        print(f"warning: {text}", file=sys.stderr)
    if not total:
        end(USAGE, f"{options.file}: the file contains no recorded requests")
    try:
        results = _results(options.file, server, settings, total)
    except NoConnection as error:
        end(UNREACHABLE, error)
    except (CassetteError, ValueError) as error:
        end(USAGE, error)
    _report(options.reports, results)
    if any(each.verdict != EQUAL for each in results):
        raise SystemExit(FAILED)


def _settings(options: ReplayOptions) -> "Settings":
    """Return the settings for sending requests and comparing responses."""
    from gateway.policies.comparing import Tolerance
    from gateway.tools.cassettes.replaying import Settings

    if options.wire and (options.models or options.renamed or options.version is not None):
        end(
            USAGE,
            "--wire sends the recorded bytes unchanged, so it cannot be used with --model, --rename or --model-version",
        )
    return Settings(
        in_flight=options.in_flight,
        rate=options.rate,
        seconds=options.timeout,
        models=_names("--model", options.models),
        tensors=_names("--rename", options.renamed),
        version=options.version,
        wire=options.wire,
        tolerance=Tolerance(options.rtol, options.atol, options.ulp),
        by_position=options.by_position,
        by_value=options.by_value,
        protocols=_protocols(options.config),
    )


def _protocols(config: Path | None) -> "Mapping[str, Protocol]":
    """Return the protocols that recorded requests can use, including the forms that the configuration declares."""
    from gateway.assembly.forms import declared_forms, known
    from gateway.cli.options import read

    return known() if config is None else known(declared_forms(read(config)))


def _results(file: Path, server: "ClientSettings", settings: "Settings", total: int) -> "list[Replayed]":
    """Send all requests, and show progress on a terminal."""
    from gateway.client.model_server import ModelServer
    from gateway.tools.cassettes import files
    from gateway.tools.cassettes.replaying import replay as replayed

    results: list[Replayed] = []

    async def go(done: Callable[[], None]) -> None:
        connected = ModelServer(server)
        try:
            results[:] = await replayed(files.read(file), connected, settings, lambda result: done())
        finally:
            await connected.close()

    with progress("replaying") as line:
        run(go(line.counted(total, "requests")))
    return results


def _report(reports: server_options.ReportFiles, results: "list[Replayed]") -> None:
    """Write the requested report files, and print the table or JSON."""
    from gateway.tools.cassettes.report import as_json, as_junit, table

    json = as_json(results).decode()
    reports.write(lambda: as_junit(results), json)
    print(json if reports.json_is_printed else table(results))


def _names(option: str, texts: list[str]) -> dict[str, str]:
    """Return the names from pairs of the form RECORDED=NAME."""
    pairs = [(text, *text.partition("=")) for text in texts]
    for text, name, mark, new in pairs:
        if not (name and mark and new):
            end(USAGE, f"{option} {text!r}; expected RECORDED=NAME")
    return {name: new for _, name, _, new in pairs}
