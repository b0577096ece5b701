"""Shutdown of commands that run a server. The first SIGTERM or SIGINT drains the server, which first only reports that
it is not ready, and then finishes the requests in flight. A second signal stops the server immediately."""

import asyncio
import logging
import signal
import typing
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from gateway.core.tasks import spawn
from gateway.runtime.process import end_process

log = logging.getLogger(__name__)


class Drainable(typing.Protocol):
    """A server that supports draining: a Gateway or a Listener."""

    def announce_end(self) -> None:
        """See `Listener.announce_end`."""

    async def drain(self, seconds: float) -> int:
        """See `Listener.drain`."""


class Signals:
    """The received signals. Create this object in a running event loop, before the server accepts requests."""

    def __init__(self, on_hangup: Callable[[], object] | None = None) -> None:
        """Start handling signals. Each SIGHUP calls `on_hangup`."""
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, on_hangup or self._ignore_hangup)

    def _on_signal(self, number: signal.Signals) -> None:
        again = self.first.is_set()
        log.info("%s received%s", number.name, " again: ending immediately" if again else "")
        (self.second if again else self.first).set()

    def _ignore_hangup(self) -> None:
        log.warning("SIGHUP ignored: this command has no configuration to reload")


async def is_started(start: Coroutine[Any, Any, None], signals: Signals) -> bool:
    """Run `start`, and cancel it at the first signal. Return whether `start` ended before the signal. If not, the
    caller must drain the parts that started. Raise the errors of `start`, unless a signal came first."""
    starting, first = spawn(start), spawn(signals.first.wait())
    await asyncio.wait((starting, first), return_when=asyncio.FIRST_COMPLETED)
    if not signals.first.is_set():
        first.cancel()
        await starting
        return True
    starting.cancel()
    second = spawn(signals.second.wait())
    await asyncio.wait((starting, second), return_when=asyncio.FIRST_COMPLETED)
    second.cancel()
    if starting.done() and not starting.cancelled() and (error := starting.exception()) is not None:
        log.info("the start failed during its cancellation: %s", error)
    return False


async def drain_on_signal(server: Drainable, signals: Signals, delay: float, timeout: float) -> NoReturn:
    """Wait for the first signal, drain `server`, log each step, and exit.

    For `delay` seconds, the server still accepts requests, so load balancers can detect that it is no longer ready.
    Requests in flight then have `timeout` seconds to finish. A second signal ends both periods immediately."""
    await signals.first.wait()
    draining = spawn(_drain(server, delay, timeout))
    second_signal = spawn(signals.second.wait())
    await asyncio.wait((draining, second_signal), return_when=asyncio.FIRST_COMPLETED)
    second_signal.cancel()
    draining.cancel()
    try:
        given_up = await draining
    except asyncio.CancelledError:
        given_up = await server.drain(0)
    log.log(logging.WARNING if given_up else logging.INFO, "ended; cancelled requests: %d", given_up)
    end_process()


async def _drain(server: Drainable, delay: float, timeout: float) -> int:
    server.announce_end()
    if delay:
        log.info("draining: not ready, but accepting new requests for %g s", delay)
        await asyncio.sleep(delay)
    log.info("draining: closed to new connections; requests in flight have %g s", timeout)
    return await server.drain(timeout)
