"""`gateway reference`: a model server for bundled models or Python callables over one protocol."""

import asyncio
import logging
from typing import Annotated

import typer

from gateway.assembly.listening import BindError
from gateway.assembly.reference import serve_reference
from gateway.cli.logs import log_to_stderr
from gateway.cli.options import catalog, fail, run
from gateway.cli.stopping import Signals, drain_on_signal
from gateway.config import reference_config
from gateway.config.keys import DrainConfig, ReferenceConfig

log = logging.getLogger(__name__)


def reference(
    protocol: Annotated[str, typer.Option(metavar="NAME", help="The protocol to speak.")],
    bind_to: Annotated[
        str,
        typer.Option(
            "--bind", metavar="HOST:PORT", help="The address to listen on; for port 0 the system chooses one."
        ),
    ],
    model: Annotated[
        list[str], typer.Option(metavar="NAME", help="A bundled model, or a callable as MODULE:ATTRIBUTE; repeatable.")
    ],
) -> None:
    """Serve bundled models or Python callables. On SIGTERM or SIGINT, requests in flight have 30 s to finish; a second
    signal ends the server at once."""
    try:
        config = reference_config(protocol, bind_to, model, catalog())
    except ValueError as error:
        fail(error)
    log_to_stderr()
    run(_serve(config))


async def _serve(config: ReferenceConfig) -> None:
    signals = Signals()
    try:
        listener = await serve_reference(config, asyncio.get_running_loop().time)
    except (BindError, ValueError) as error:
        fail(error)
    print(f"{config.protocol} on {listener.address}: {', '.join(config.models)}\nready", flush=True)
    log.info("ready at %s", listener.address)
    drain = DrainConfig()
    await drain_on_signal(listener, signals, drain.delay, drain.timeout)
