"""`gateway reference`: bundled models, or Python callables, over one protocol."""

import asyncio
from typing import Annotated

import typer

from gateway.app import BindError, serve_reference
from gateway.cli.options import catalog, fail, on_signals, run
from gateway.config import reference_config
from gateway.config.models import ReferenceConfig


def reference(
    protocol: Annotated[str, typer.Option(metavar="NAME", help="The protocol to speak.")],
    bind_to: Annotated[
        str, typer.Option("--bind", metavar="HOST:PORT", help="Where; port 0 is one that the system chooses.")
    ],
    model: Annotated[
        list[str], typer.Option(metavar="NAME", help="A bundled model, or a callable as MODULE:ATTRIBUTE; repeatable.")
    ],
) -> None:
    """Serve bundled models or Python callables. Until SIGTERM or SIGINT, as a model server."""
    try:
        config = reference_config(protocol, bind_to, model, catalog())
    except ValueError as error:
        fail(error)
    run(_serve(config))


async def _serve(config: ReferenceConfig) -> None:
    stopped = asyncio.Event()
    on_signals(stopped.set)
    try:
        listener = await serve_reference(config, asyncio.get_running_loop().time)
    except (BindError, ValueError) as error:
        fail(error)
    print(f"{config.protocol} on {listener.address}: {', '.join(config.models)}\nready", flush=True)
    await stopped.wait()
    await listener.drain(0)
