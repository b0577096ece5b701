"""How a command that serves ends: SIGTERM or SIGINT lets it drain, a second one ends it at once. SIGHUP is ignored."""

import asyncio
import logging
import os
import signal
import sys
import typing
from typing import NoReturn

from gateway.core.tasks import spawn

log = logging.getLogger(__name__)


class Server(typing.Protocol):
    """What drains: a Gateway, or one Listener."""

    def announce_end(self) -> None:
        """As of a Listener."""

    async def drain(self, seconds: float) -> int:
        """As of a Listener."""


class Signals:
    """What the process is told from outside. To be made in a running loop, before anything is served."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _end(self, number: signal.Signals) -> None:
        again = self.first.is_set()
        log.info("%s received%s", number.name, " again: ending at once" if again else "")
        (self.second if again else self.first).set()

    def _hang_up(self) -> None:
        log.warning("SIGHUP received: the configuration cannot be reloaded while the gateway runs; it serves on")


async def drain_on_signal(server: Server, signals: Signals, delay: float, timeout: float) -> NoReturn:
    """Wait for the first signal, let `server` drain, in full view of the log, then end the process.

    For `delay` seconds everything is still accepted, so that load balancers notice that it is no longer ready. Then
    what is in flight has `timeout` seconds. The second signal takes both away.
    """
    await signals.first.wait()
    draining = spawn(_drain(server, delay, timeout))
    hurried = spawn(signals.second.wait())
    await asyncio.wait((draining, hurried), return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    draining.cancel()
    try:
        given_up = await draining
    except asyncio.CancelledError:
        given_up = await server.drain(0)
    log.log(logging.WARNING if given_up else logging.INFO, "ended; requests given up: %d", given_up)
    _exit()


async def _drain(server: Server, delay: float, timeout: float) -> int:
    server.announce_end()
    if delay:
        log.info("draining: not ready, and new requests are still answered for %g s", delay)
        await asyncio.sleep(delay)
    log.info("draining: no connection is accepted any more, and requests in flight have %g s", timeout)
    return await server.drain(timeout)


def _exit() -> NoReturn:
    """End the process with status 0, whatever its threads do. Python would wait for those that decode a large message
    or compute a model, which nothing can stop. Sockets are closed by now; only what was printed may wait in a buffer.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
