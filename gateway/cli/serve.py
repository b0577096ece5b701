"""`gateway serve`: the gateway of one configuration, until SIGTERM or SIGINT."""

import logging

from gateway import registry
from gateway.app import INFO, BindError, Gateway
from gateway.assembly.settings import conditions
from gateway.cli.logs import log_to_stderr
from gateway.cli.options import ConfigFile, fail, read, run
from gateway.cli.stopping import Signals, drain_on_signal
from gateway.config.models import Config

log = logging.getLogger(__name__)

PATHS = {"health": "/healthz, /readyz", "admin": "/status, /docs"}


def serve(config: ConfigFile) -> None:
    """Serve a configuration. SIGTERM and SIGINT stop it as `drain` says, a second signal at once."""
    checked = read(config)
    log_to_stderr()
    log.info("%s %s starts with %s", INFO.name, INFO.version, config)
    run(_serve(checked))


async def _serve(config: Config) -> None:
    signals = Signals()
    gateway = Gateway(config)
    try:
        await gateway.start()
    except (BindError, ValueError) as error:
        fail(error)
    print("\n".join([*_addresses(gateway), *_examples(gateway), "ready"]), flush=True)
    log.info("ready")
    await drain_on_signal(gateway, signals, config.drain.delay, config.drain.timeout)


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
