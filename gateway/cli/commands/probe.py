"""`gateway probe`: detect the protocols of the server at an address, and print YAML for a backend."""

import sys
from dataclasses import dataclass, field
from typing import Annotated

import typer

from gateway.cli import server_options
from gateway.cli.command import grouped
from gateway.cli.probed_server import end_unspoken, model_rows, models_json, probed
from gateway.cli.server_options import table
from gateway.runtime.process import run
from gateway.tools.printed import indented_json, printable_lines
from gateway.tools.probing.asking import ServerAccess
from gateway.tools.probing.probe import SECONDS, Probed, ProbeVerdict
from gateway.tools.probing.stanza import WrittenBackend, backend_name, stanza

EPILOG = (
    "Exit codes: 0 success, 1 the server's protocol is unknown to the gateway, 2 wrong usage, "
    "3 the address is unreachable, 4 no response in time."
)


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """The options of `gateway probe`."""

    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS",
            help="HOST:PORT, a URL (http://HOST:PORT/PATH), unix:///SOCKET, or PROTOCOL://HOST:PORT to check only "
            "one protocol.",
        ),
    ]
    models: server_options.ModelNames = field(default_factory=list)
    timeout: server_options.Seconds = SECONDS
    server: server_options.ServerOptions = field(default_factory=server_options.ServerOptions)
    as_json: server_options.AsJson = False


@grouped(ProbeOptions)
def probe(options: ProbeOptions) -> None:
    """Detect the protocols of a server. Also detect the server type, the models and their signatures, and print the
    YAML for a backend. The command sends a few small requests but runs no model. It prints tables on a terminal, and
    JSON otherwise."""
    access, is_json = options.server.access(), options.as_json or not sys.stdout.isatty()
    run(_probe(options.address, access, options.timeout, options.models, as_json=is_json))


async def _probe(address: str, access: ServerAccess, seconds: float, models: list[str], *, as_json: bool) -> None:
    found = await probed(address, access, seconds, models)
    print(_json(found, access) if as_json else _text(found, access), end="")
    if found.verdict is not ProbeVerdict.SPOKEN:
        end_unspoken(found, address)


def _backend(found: Probed, access: ServerAccess) -> WrittenBackend:
    best = found.spoken[0]
    return WrittenBackend(backend_name(best), best, access)


def _text(found: Probed, access: ServerAccess) -> str:
    if not found.spoken:
        return ""
    rows = [
        (
            each.protocol,
            each.flavor or "-",
            " ".join(part for part in (each.models.server.name, each.models.server.version) if part)
            if each.models.server
            else "-",
            each.address,
            str(len(each.models.own)) if each.models.own else "-",
        )
        for each in found.spoken
    ]
    best = found.spoken[0]
    parts = [table(rows, ("protocol", "flavor", "server", "address", "models"))]
    if best.models.models:
        parts.append(table(model_rows(best.models), ("model", "versions", "state", "signature")))
    elif best.models.error:
        parts.append(f"models unknown: {printable_lines(best.models.error)}")
    parts.append(stanza([_backend(found, access)]))
    return "\n\n".join(parts)


def _json(found: Probed, access: ServerAccess) -> str:
    document = {
        "address": found.address,
        "result": found.verdict.value,
        "text": found.text,
        "tls": found.tls,
        "spoken": [
            {"protocol": each.protocol, "address": each.address, "flavor": each.flavor, **models_json(each.models)}
            for each in found.spoken
        ],
        "others": {
            each.candidate.protocol.name: {"heard": each.heard.value, "text": each.text}
            for each in found.findings
            if each.heard.value != "spoken"
        },
        "yaml": stanza([_backend(found, access)]) if found.spoken else "",
    }
    return indented_json(document) + "\n"
