"""`gateway route`: print the route of a request without sending the request."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

import typer

from gateway.assembly.assembly import Assembly
from gateway.assembly.explain.decision import Decision, decide
from gateway.assembly.explain.offline import assemble, not_connected, without_network
from gateway.assembly.explain.text import decision_lines
from gateway.assembly.forms import spoken
from gateway.cli.commands.completion import protocols
from gateway.cli.exit_codes import misuse
from gateway.cli.options import ConfigFile, read
from gateway.config import paths
from gateway.config.keys import Config
from gateway.config.listeners import ListenerConfig
from gateway.core.datatypes import DATATYPES
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.messages import Headers
from gateway.core.operations import CALLS, Operation
from gateway.core.patterns import Match, PathTable
from gateway.core.protocol import HttpBinding, Protocol
from gateway.core.requests import Request
from gateway.core.tensors import Tensor
from gateway.tools.printed import indented_json, printable_lines

Rows: TypeAlias = tuple[tuple[Protocol, str], ...]
"""The listener's protocols, with their path prefixes."""

_INPUT = re.compile(r"([^:]*):([A-Z0-9]+):([0-9,]*)")


def route(
    config: ConfigFile,
    protocol: Annotated[str, typer.Option(autocompletion=protocols, metavar="NAME", help="Protocol of the client.")],
    model: Annotated[str, typer.Option(metavar="NAME", help="Model that the client requests. Default: no model.")] = "",
    version: Annotated[str, typer.Option(metavar="TEXT", help="Version of the model.")] = "",
    operation: Annotated[str, typer.Option(metavar="NAME", help="Operation that the client requests.")] = "infer",
    listener: Annotated[str, typer.Option(metavar="NAME", help="Default: all listeners with the protocol.")] = "",
    path: Annotated[str, typer.Option(metavar="PATH", help="Path of the request, for routes with `path`.")] = "",
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Request header. Repeatable.")] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:DATATYPE:SHAPE", help="Input, such as x:FP32:1,10. Repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the route of a request. Also print why the other routes do not match, and which backends receive the
    request. The command sends nothing. Exit with 1 if no route matches."""
    whole = read(config)
    listeners = _listeners(whole, protocol, listener)
    if operation not in (each.value for each in Operation):
        misuse(f"no operation {operation!r}; expected {', '.join(each.value for each in Operation)}")
    fields = (_headers(header or ()), tuple(map(_input, input or ())))
    requests = [
        Request(
            Operation(operation), model or each.model, version, inputs=fields[1], listener=each.name,
            protocol=protocol, path=path, headers=fields[0],
        )
        for each in listeners
    ]  # fmt: skip
    decisions = asyncio.run(_decide(whole, requests))
    if as_json:
        print(indented_json({"decisions": decisions}))
    else:
        print(printable_lines("\n".join(line for each in decisions for line in decision_lines(each))))
    if any(each.error for each in decisions):
        raise SystemExit(1)


async def _decide(config: Config, requests: Sequence[Request]) -> list[Decision]:
    protocols = spoken(config)
    config, _ = without_network(config, protocols)
    assembly = assemble(config, not_connected, protocols)
    return [_decided(request, config, assembly, protocols) for request in requests]


def _decided(request: Request, config: Config, assembly: Assembly, protocols: Mapping[str, Protocol]) -> Decision:
    """Return the decision for `request`. As in a running gateway, only the request path determines whether the request
    is decoded."""
    listener = next(each for each in config.listeners if each.name == request.listener)
    rows = paths.over_http(paths.rows(listener, config.routes, config.backends, protocols))
    protocol = protocols[request.protocol]
    path = request.path or (_passed_path(protocol, rows) if request.operation in CALLS else "")
    if not path or not isinstance(protocol.binding, HttpBinding):
        return decide(request, config, assembly)
    served = _served(path, PathTable(rows))
    if served is None or served.name != protocol.name:
        text = f"unknown path: {path!r}" if served is None else f"{path} belongs to {served.name}"
        return Decision(
            listener.name, protocol.name, request.operation.value, request.model, request.version,
            error=f"{text}; listener {listener.name!r} does not serve it over {protocol.name}",
        )  # fmt: skip
    return decide(replace(request, path=path), config, assembly, passthrough=served.http.is_passthrough)


def _passed_path(protocol: Protocol, rows: Rows) -> str:
    """Return the path of the protocol that passthrough routes handle instead of the protocol's own code, or an empty
    string. By default, client requests in this protocol arrive at this path."""
    own = {pattern.partition(" ")[2] for pattern in protocol.patterns}
    passed = (
        pattern
        for each, _ in rows
        if each.name == protocol.name and each.http.is_passthrough
        for pattern in each.patterns
    )
    return next((path for pattern in passed if (path := pattern.partition(" ")[2]) in own), "")


def _served(path: str, table: PathTable) -> Protocol | None:
    """Return the protocol that handles requests to `path`, preferably with a method that has a body. Return None if the
    path is unknown."""
    try:
        found = table.match("POST", path)
        if not isinstance(found, Match) and found:
            found = table.match(found[0], path)
    except DecodeError:
        return None
    return found.protocol if isinstance(found, Match) else None


def _listeners(config: Config, protocol: str, name: str) -> list[ListenerConfig]:
    protocols = spoken(config)
    if protocol not in protocols:
        misuse(f"no protocol {protocol!r}; expected {', '.join(protocols)}")
    named = [each for each in config.listeners if name in ("", each.name)]
    if not named:
        misuse(f"no listener {name!r}; expected {', '.join(each.name for each in config.listeners)}")
    found = [each for each in named if protocol in each.protocols]
    if not found:
        which = f"listener {name!r} does not accept" if name else "no listener accepts"
        accepted = "; ".join(f"{each.name!r} accepts {', '.join(each.protocols)}" for each in named)
        misuse(f"{which} {protocol}; {accepted}")
    return found


def _headers(pairs: Sequence[str]) -> Headers:
    raw = []
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            misuse(f"expected --header NAME=VALUE, got {pair!r}")
        raw.append((name.lower().encode(), text.encode()))
    return Headers(raw)


def _input(text: str) -> Tensor:
    found = _INPUT.fullmatch(text)
    datatype = DATATYPES.get(found[2]) if found else None
    if found is None or datatype is None:
        misuse(f"expected --input NAME:DATATYPE:SHAPE such as x:FP32:1,10, got {text!r}")
    # Conditions check only the name, datatype and shape, so the tensor has no data.
    return Tensor(found[1], datatype, tuple(int(each) for each in found[3].split(",") if each), b"")
