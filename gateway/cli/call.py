"""`gateway call`: one inference over any protocol, with request and reply as V2 JSON."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway import registry
from gateway.assembly.one_backend import one_backend
from gateway.cli.options import fail, run
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.exchange import decoded
from gateway.core.protocol import ListenerSettings
from gateway.core.types import Message, Translate

JSON_PROTOCOL = "v2-rest"
"""The protocol whose JSON format the input file and the output have."""

OUTPUT_SETTINGS = Translate(nan="literal")
"""How the reply is encoded: NaN and infinities are printed as such, since no route sets `translate.nan` here."""


def call(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A V2 inference request as JSON; - is standard input.")],
    protocol: Annotated[str, typer.Option(metavar="NAME", help="The protocol that the server speaks.")],
    address: Annotated[str, typer.Option(metavar="ADDRESS", help="HOST:PORT, or a URL where the protocol has one.")],
    model: Annotated[str, typer.Option(metavar="NAME", help="The model's name on the server.")],
) -> None:
    """Send one inference to a model server. The reply is printed as V2 JSON."""
    if protocol not in registry.protocols():
        fail(f"no protocol {protocol!r}; expected {', '.join(registry.protocols())}")
    try:
        body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    run(_call(body, protocol, address, model))


async def _call(body: bytes, protocol: str, address: str, model: str) -> None:
    json_protocol = registry.protocols()[JSON_PROTOCOL]
    message = Message(
        "POST",
        parts=(body,),
        pattern="POST /v2/models/{model}/infer",
        captures={"model": model},
        received=asyncio.get_running_loop().time(),
    )
    try:
        async with one_backend(registry.protocols()[protocol], address, json_protocol) as handler:
            request = decoded(message, json_protocol, ListenerSettings("call"))
            reply = json_protocol.encode_response(await handler(request), request, OUTPUT_SETTINGS)
    except (DecodeError, GatewayError, ValueError) as error:
        fail(error)
    print(bytes(reply.body).decode())
