"""`gateway init`: a first configuration file, from options or from answers on a terminal."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.assembly import registry
from gateway.cli import server_options
from gateway.cli.options import catalog
from gateway.cli.probing.asking import ServerAccess
from gateway.cli.probing.file import configuration, listeners_of
from gateway.cli.probing.probe import SECONDS, Probed, ProbeVerdict
from gateway.cli.probing.probe import probe as find
from gateway.cli.probing.stanza import WrittenBackend, backend_name
from gateway.cli.server_options import FAILED, TIMED_OUT, UNREACHABLE, USAGE, end, progress
from gateway.config import ConfigError, loads_with_warnings
from gateway.runtime.process.running import run

EPILOG = (
    "Exit codes: 0 the file was written, 1 a server speaks none of the gateway's protocols, 2 wrong usage or the file "
    "exists, 3 a server cannot be reached, 4 a server gave no answer in time."
)
DEFAULT_LISTENER = "v2-rest=127.0.0.1:8080"


def init(
    output: Annotated[Path, typer.Option(metavar="FILE", help="The file to write; - is standard output.")] = Path(
        "gateway.yaml"
    ),
    backends: Annotated[
        list[str],
        typer.Option("--backend", metavar="ADDRESS", help="A model server, as of `gateway probe`. Repeatable."),
    ] = [],  # noqa: B006 - typer copies it
    listeners: Annotated[
        list[str],
        typer.Option(
            "--listener", metavar="PROTOCOL=ADDRESS", help=f"Where clients connect: {DEFAULT_LISTENER}. Repeatable."
        ),
    ] = [],  # noqa: B006
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
    timeout: server_options.Seconds = SECONDS,
) -> None:
    """Write a configuration file with comments. Servers are probed for their protocols and models. Without options it
    asks on a terminal."""
    if str(output) != "-" and output.exists() and not force:
        end(USAGE, f"{output} exists; --force overwrites it")
    servers, wanted = list(backends), list(listeners)
    if not servers:
        if not sys.stdin.isatty():
            end(USAGE, "expected --backend ADDRESS, or a terminal to ask")
        servers, wanted = _asked(wanted)
    pairs = [_listener(each) for each in wanted or [DEFAULT_LISTENER]]
    run(_init(output, servers, pairs, timeout))


def _asked(listeners: list[str]) -> tuple[list[str], list[str]]:
    """The servers and listeners that the user names."""
    names = ", ".join(registry.protocols())
    servers: list[str] = []
    while not servers or (more := typer.prompt("another server (empty: no more)", default="", show_default=False)):
        servers.append(more if servers else typer.prompt("address of a model server (HOST:PORT or a URL)"))
    if not listeners:
        print(f"protocols of clients: {names}")
        text = typer.prompt("listeners, PROTOCOL=ADDRESS separated by blanks", default=DEFAULT_LISTENER)
        listeners = text.split()
    return servers, listeners


def _listener(text: str) -> tuple[str, str]:
    protocol, separator, bind = text.partition("=")
    if not separator or protocol not in registry.protocols():
        end(USAGE, f"expected --listener PROTOCOL=ADDRESS with one of {', '.join(registry.protocols())}, got {text!r}")
    if registry.protocols()[protocol].transport == "tcp" and "://" not in bind:
        bind = f"tcp://{bind}"
    return protocol, bind


async def _init(output: Path, servers: list[str], pairs: list[tuple[str, str]], seconds: float) -> None:
    backends: list[WrittenBackend] = []
    for address in servers:
        found = await _probed(address, seconds)
        best = found.spoken[0]
        name = backend_name(best, [each.name for each in backends])
        backends.append(WrittenBackend(name, best, ServerAccess()))
        count = len(best.models.own)
        print(f"{address}: {best.protocol}, {count} model{'s' if count != 1 else ''}", file=sys.stderr)
    text = configuration(listeners_of(pairs), backends)
    try:
        _, warnings = loads_with_warnings(text, str(output), catalog())
    except ConfigError as error:
        end(USAGE, error)
    for warning in warnings:
        print(warning, file=sys.stderr)
    if str(output) == "-":
        print(text, end="")
        return
    _write(output, text)
    print(f"{output}: written; `gateway serve --config {output}` serves it", file=sys.stderr)


def _write(output: Path, text: str) -> None:
    try:
        output.write_text(text, "utf-8")
    except OSError as error:
        end(USAGE, f"{output}: {error.strerror}")


async def _probed(address: str, seconds: float) -> Probed:
    with progress(f"asking {address}") as show:
        try:
            found = await find(address, registry.protocols(), ServerAccess(), seconds=seconds, on_progress=show)
        except ValueError as error:
            end(USAGE, error)
    if not found.spoken:
        codes = {ProbeVerdict.UNREACHABLE: UNREACHABLE, ProbeVerdict.SILENT: TIMED_OUT}
        end(codes.get(found.verdict, FAILED), f"{address}: {found.text}; nothing is written")
    return found
