"""`gateway call`: one V2-style JSON inference over any protocol."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway import registry
from gateway.app import one_backend
from gateway.cli.options import fail, run
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.exchange import decoded
from gateway.core.protocol import ListenerSettings
from gateway.core.types import Message, Translate

FORM = "v2-rest"
"""The protocol whose JSON the file and the output are in."""

SHOWN = Translate(nan="literal")
"""There is no route here that could say what becomes of NaN, and people know what it means."""


def call(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A V2 inference request as JSON; - is standard input.")],
    protocol: Annotated[str, typer.Option(metavar="NAME", help="The protocol that the server speaks.")],
    address: Annotated[str, typer.Option(metavar="ADDRESS", help="HOST:PORT, or a URL where the protocol has one.")],
    model: Annotated[str, typer.Option(metavar="NAME", help="The server's name of the model.")],
) -> None:
    """Send one inference to a model server. Its reply is printed as V2 JSON."""
    if protocol not in registry.protocols():
        fail(f"no protocol {protocol!r}; expected {', '.join(registry.protocols())}")
    try:
        body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    run(_call(body, protocol, address, model))


async def _call(body: bytes, protocol: str, address: str, model: str) -> None:
    form = registry.protocols()[FORM]
    message = Message(
        "POST",
        parts=(body,),
        pattern="POST /v2/models/{model}/infer",
        captures={"model": model},
        received=asyncio.get_running_loop().time(),
    )
    try:
        async with one_backend(registry.protocols()[protocol], address, form) as handler:
            request = decoded(message, form, ListenerSettings("call"))
            reply = form.encode_response(await handler(request), request, SHOWN)
    except (DecodeError, GatewayError, ValueError) as error:
        fail(error)
    print(bytes(reply.body).decode())
