"""`gateway reference`: bundled models, or Python callables, over one protocol."""

import asyncio
import signal
from typing import Annotated

import typer
from pydantic import ValidationError

from gateway import registry
from gateway.app import BindError, serve_reference
from gateway.cli.options import fail, run
from gateway.config.models import ReferenceConfig


def reference(
    protocol: Annotated[str, typer.Option(help="The protocol to speak.")],
    bind_to: Annotated[str, typer.Option("--bind", help="HOST:PORT; port 0 is one that the system chooses.")],
    model: Annotated[list[str], typer.Option(help="A bundled model, or module:attribute. May be repeated.")],
) -> None:
    """Serve bundled models or Python callables as a model server, until SIGTERM or SIGINT."""
    if protocol not in registry.protocols():
        fail(f"no protocol {protocol!r}; expected {', '.join(registry.protocols())}")
    try:
        config = ReferenceConfig.model_validate({"protocol": protocol, "bind": bind_to, "models": model})
    except ValidationError as error:
        fail("; ".join(str(each["msg"]) for each in error.errors()))
    run(_serve(config))


async def _serve(config: ReferenceConfig) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    try:
        listener = await serve_reference(config, loop.time)
    except (BindError, ValueError) as error:
        fail(error)
    print(f"{config.protocol} on {listener.address}: {', '.join(config.models)}\nready", flush=True)
    await stopped.wait()
    await listener.drain(0)
