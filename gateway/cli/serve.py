"""`gateway serve`: the gateway of one configuration, until SIGTERM or SIGINT."""

import asyncio
import signal

from gateway import registry
from gateway.app import BindError, Gateway
from gateway.cli.options import ConfigFile, fail, read, run
from gateway.config.models import Config


def serve(config: ConfigFile) -> None:
    """Serve a configuration. SIGTERM and SIGINT drain and stop it."""
    run(_serve(read(config)))


async def _serve(config: Config) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    gateway = Gateway(config)
    try:
        await gateway.start()
    except (BindError, ValueError) as error:
        fail(error)
    print("\n".join([*_addresses(gateway), *_examples(gateway), "ready"]), flush=True)
    await stopped.wait()
    await gateway.stop()


def _addresses(gateway: Gateway) -> list[str]:
    config = gateway.config
    rows = [
        (f"listener {each.name}", gateway.listeners[each.name].address, ", ".join(each.protocols))
        for each in config.listeners
    ]
    rows += [(f"reference {each.protocol}", str(each.bind), ", ".join(each.models)) for each in config.reference]
    rows += [("health", str(config.health.bind), "/healthz, /readyz")] if config.health else []
    rows += [("admin", str(config.admin.bind), "/status, /docs")] if config.admin else []
    width = max(len(name) for name, _, _ in rows)
    return [f"{name:{width}}  {address:21}  {what}" for name, address, what in rows]


def _examples(gateway: Gateway) -> list[str]:
    """One command for each protocol of each listener, on a model that a route names."""
    found = [
        f"  {protocol.example.format(address=gateway.listeners[listener.name].address, model=route.match.model)}"
        for listener in gateway.config.listeners
        for protocol in (registry.protocols()[name] for name in listener.protocols)
        for route in gateway.config.routes[:1]
        if protocol.example and route.match.model and "*" not in route.match.model
    ]
    return ["try:", *found] if found else []
