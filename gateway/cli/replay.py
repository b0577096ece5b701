"""`gateway replay`: sends the requests of a cassette to a server, and compares the answers with the recorded ones."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gateway.cli import server_options
from gateway.process.running import run

DIFFER, USAGE, UNREACHABLE = 1, 2, 3
"""The exit codes beside 0."""

EPILOG = (
    "Exit codes: 0 all answers are equal, 1 some differ or did not come, 2 wrong usage or a malformed file, "
    "3 the server cannot be reached."
)


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The cassette that `gateway record` wrote.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The server: PROTOCOL://HOST:PORT, PROTOCOL+tls://HOST:PORT or PROTOCOL:///SOCKET.",
        ),
    ],
    protocol: Annotated[str, typer.Option(metavar="NAME", help="The protocol, if ADDRESS does not name it.")] = "",
    wire: Annotated[
        bool, typer.Option("--wire", help="Send the recorded bytes as they are, to a server of the same protocol.")
    ] = False,
    rtol: Annotated[float, typer.Option(help="The largest distance in relation to the recorded value.", min=0)] = 0.0,
    atol: Annotated[float, typer.Option(help="The largest distance. It is added to that of --rtol.", min=0)] = 0.0,
    ulp: Annotated[int, typer.Option(help="The most steps from one float to the other.", min=0)] = 0,
    by_position: Annotated[
        bool, typer.Option("--by-position", help="Pair outputs by position, if the server names them differently.")
    ] = False,
    by_value: Annotated[
        bool, typer.Option("--by-value", help="Compare numbers by value, whatever their datatypes.")
    ] = False,
    models: Annotated[
        list[str],
        typer.Option("--model", metavar="RECORDED=NAME", help="The server's name of a model. Repeatable."),
    ] = [],  # noqa: B006 - typer copies it
    renamed: Annotated[
        list[str],
        typer.Option("--rename", metavar="RECORDED=NAME", help="The server's name of an input or output. Repeatable."),
    ] = [],  # noqa: B006
    version: Annotated[
        str | None,
        typer.Option("--model-version", metavar="VERSION", help="The version to ask for; empty: none."),
    ] = None,
    in_flight: Annotated[int, typer.Option(metavar="N", help="Requests on their way at once.", min=1, max=1024)] = 1,
    rate: Annotated[float | None, typer.Option(metavar="N", help="The most requests per second.", min=0.001)] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="For each answer.", min=0.001)] = 10.0,
    headers: server_options.Headers = [],  # noqa: B006
    key: server_options.Key = None,
    ca: server_options.Ca = None,
    certificate: server_options.Certificate = None,
    certificate_key: server_options.CertificateKey = None,
    server_name: server_options.ServerName = None,
    insecure: server_options.Insecure = False,
    flavor: Annotated[str, typer.Option(metavar="NAME", help="The kind of server, if it is not to be detected.")] = "",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all results as JSON; - to standard output.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit's XML.")] = None,
) -> None:
    """Send recorded requests to a server. It speaks any protocol; its answers are compared with the recorded ones."""
    from gateway.cassettes import files
    from gateway.cassettes.entries import CassetteError
    from gateway.cassettes.replaying import EQUAL, NoConnection, Replayed, Settings
    from gateway.cassettes.replaying import replay as replayed
    from gateway.cassettes.report import as_json, as_junit, table
    from gateway.comparing.tolerance import Tolerance

    if wire and (models or renamed or version is not None):
        _exit(USAGE, "--wire sends the recorded bytes: --model, --rename and --model-version cannot change them")
    settings = Settings(
        in_flight, rate, timeout, _names("--model", models), _names("--rename", renamed), version, wire,
        Tolerance(rtol, atol, ulp), by_position, by_value,
    )  # fmt: skip
    access = server_options.access(headers, key, ca, certificate, certificate_key, server_name, insecure=insecure)
    try:
        server = access.settings_for(to, protocol, flavor)
        # Nothing is sent if the file is malformed somewhere.
        total = sum(1 for _ in files.read(file, on_cut=lambda text: print(f"warning: {text}", file=sys.stderr)))
    except (CassetteError, ValueError) as error:
        _exit(USAGE, error)
    if not total:
        _exit(USAGE, f"{file}: there are no recorded requests in this cassette")
    results: list[Replayed] = []
    shows_progress = sys.stderr.isatty()

    def done(result: Replayed) -> None:
        results.append(result)
        if shows_progress:
            end = "\n" if len(results) == total else ""
            print(f"\r{len(results)} of {total} requests", end=end, file=sys.stderr, flush=True)

    async def go() -> None:
        connected = server.connected()
        try:
            results[:] = await replayed(files.read(file), connected, settings, done)
        finally:
            await connected.close()

    try:
        run(go())
    except NoConnection as error:
        _exit(UNREACHABLE, error)
    except (CassetteError, ValueError) as error:
        _exit(USAGE, error)
    try:
        if junit is not None:
            junit.write_text(as_junit(results), "utf-8")
        if json_file is not None and str(json_file) != "-":
            json_file.write_bytes(as_json(results))
    except OSError as error:
        _exit(USAGE, f"{error.filename}: {error.strerror}")
    print(as_json(results).decode() if str(json_file) == "-" else table(results))
    if any(each.verdict != EQUAL for each in results):
        raise SystemExit(DIFFER)


def _names(option: str, texts: list[str]) -> dict[str, str]:
    """The pairs RECORDED=NAME."""
    pairs = [(text, *text.partition("=")) for text in texts]
    for text, name, mark, new in pairs:
        if not (name and mark and new):
            _exit(USAGE, f"{option} {text!r}; expected RECORDED=NAME")
    return {name: new for _, name, _, new in pairs}


def _exit(code: int, message: object) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(code)
