"""`gateway serve`: the gateway of one configuration, until SIGTERM or SIGINT."""

import logging

from gateway.app import INFO, BindError, Gateway
from gateway.cli.examples import examples
from gateway.cli.logs import log_to_stderr
from gateway.cli.options import ConfigFile, fail, read, run
from gateway.cli.stopping import Signals, drain_on_signal
from gateway.config.keys import Config
from gateway.transports.listener_connections import raise_descriptor_limit

log = logging.getLogger(__name__)

PATHS = {"health": "/healthz, /readyz", "admin": "/status, /docs"}


def serve(config: ConfigFile) -> None:
    """Serve a configuration. SIGTERM and SIGINT stop it as `drain` says, a second signal at once."""
    checked = read(config)
    log_to_stderr()
    raise_descriptor_limit()
    log.info("%s %s starts with %s", INFO.name, INFO.version, config)
    run(_serve(checked))


async def _serve(config: Config) -> None:
    signals = Signals()
    gateway = Gateway(config)
    try:
        await gateway.start()
    except (BindError, ValueError) as error:
        fail(error)
    addresses = {name: listener.address for name, listener in gateway.listeners.items()}
    print("\n".join([*_addresses(gateway), *examples(config, addresses), "ready"]), flush=True)
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
