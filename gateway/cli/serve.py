"""`gateway serve`: the gateway of one configuration, until SIGTERM or SIGINT."""

import asyncio
import logging
import time

from gateway import registry
from gateway.app import BindError, Gateway
from gateway.assembly.settings import conditions
from gateway.cli.options import ConfigFile, fail, on_signals, read, run
from gateway.config.models import Config
from gateway.core.tasks import spawn

PATHS = {"health": "/healthz, /readyz", "admin": "/status, /docs"}


def serve(config: ConfigFile) -> None:
    """Serve a configuration. SIGTERM and SIGINT stop it: what is in flight has 30 s, or until a second signal."""
    _log_to_stderr()
    run(_serve(read(config)))


def _log_to_stderr() -> None:
    """With time and level; of libraries only what is wrong."""
    handler = logging.StreamHandler()
    handler.setFormatter(_InUtc("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("gateway").setLevel(logging.INFO)


class _InUtc(logging.Formatter):
    converter = staticmethod(time.gmtime)


async def _serve(config: Config) -> None:
    stopped = asyncio.Event()
    on_signals(stopped.set)
    gateway = Gateway(config)
    try:
        await gateway.start()
    except (BindError, ValueError) as error:
        fail(error)
    print("\n".join([*_addresses(gateway), *_examples(gateway), "ready"]), flush=True)
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


def _examples(gateway: Gateway) -> list[str]:
    """One command for each protocol of each listener, on the first model that a route names for it."""
    found = [
        f"  {protocol.example.format(address=gateway.listeners[listener.name].address, model=model)}"
        for listener in gateway.config.listeners
        for protocol in (registry.protocols()[name] for name in listener.protocols)
        for model in _named_models(gateway.config, listener.name, protocol.name)[:1]
        if protocol.example
    ]
    return ["try:", *found] if found else []


def _named_models(config: Config, listener: str, protocol: str) -> list[str]:
    matches = [conditions(route.match) for route in config.routes]
    return [
        each.model
        for each in matches
        if each.exact and each.listener in ("", listener) and each.protocol in ("", protocol) and not each.per_request
    ]
