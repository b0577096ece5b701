"""`gateway serve`: the gateway of one configuration, until SIGTERM or SIGINT."""

import asyncio

from gateway.app import BindError, Gateway
from gateway.cli.examples import examples
from gateway.cli.options import ConfigFile, fail, on_signals, read, run
from gateway.config.models import Config
from gateway.core.tasks import spawn

PATHS = {"health": "/healthz, /readyz", "admin": "/status, /docs"}


def serve(config: ConfigFile) -> None:
    """Serve a configuration. SIGTERM and SIGINT stop it: what is in flight has 30 s, or until a second signal."""
    run(_serve(read(config)))


async def _serve(config: Config) -> None:
    stopped = asyncio.Event()
    on_signals(stopped.set)
    gateway = Gateway(config)
    try:
        await gateway.start()
    except (BindError, ValueError) as error:
        fail(error)
    addresses = {name: listener.address for name, listener in gateway.listeners.items()}
    print("\n".join([*_addresses(gateway), *examples(config, addresses), "ready"]), flush=True)
    await stopped.wait()
    await _stop(gateway)


async def _stop(gateway: Gateway) -> None:
    """Let what is in flight finish, unless there is a second signal."""
    stopping = spawn(gateway.stop())
    on_signals(stopping.cancel)
    try:
        await stopping
    except asyncio.CancelledError:
        await gateway.stop(0)


def _addresses(gateway: Gateway) -> list[str]:
    config = gateway.config
    rows = [
        (f"listener {each.name}", gateway.listeners[each.name].address, ", ".join(each.protocols))
        for each in config.listeners
    ]
    rows += [
        (f"reference {each.protocol}", listener.address, ", ".join(each.models))
        for each, listener in zip(config.reference, gateway.references, strict=True)
    ]
    rows += [(name, port.address, PATHS[name]) for name, port in gateway.ports.items()]
    width = max(len(name) for name, _, _ in rows)
    return [f"{name:{width}}  {address:21}  {what}" for name, address, what in rows]
