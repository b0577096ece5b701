"""Parts of a reload: find the listeners that keep their sockets, and close the replaced parts."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from gateway.assembly.assembly import Assembly
from gateway.config.keys import Config
from gateway.config.listeners import ListenerConfig
from gateway.core.frozen import frozen
from gateway.core.protocol import Protocol
from gateway.core.surviving import all_surviving
from gateway.core.tasks import spawn
from gateway.core.transport import Listener
from gateway.runtime.app.listeners import Serving

if TYPE_CHECKING:
    from gateway.admin.health import HealthServer
    from gateway.admin.scaler import ScalerServer
    from gateway.admin.server import AdminServer

log = logging.getLogger("gateway.app")


PortServer: TypeAlias = "AdminServer | HealthServer | ScalerServer"
"""The server of a port that is not a listener."""


class ReloadError(Exception):
    """A running gateway cannot change to this configuration, although it is valid."""


def staying(running: Config, config: Config, protocols: Mapping[str, Protocol]) -> dict[str, str]:
    """Return the listeners that keep their sockets, as a mapping of new names to previous names.

    A new listener with the address of a removed listener counts as the removed listener with a new name.

    Raises:
        ReloadError: a listener has the address of a previous listener with a different transport.
    """
    places = {each.name: _place(each) for each in running.listeners}
    found = {each.name: each.name for each in config.listeners if places.get(each.name) == _place(each)}
    for each in config.listeners:
        if each.name in found or not (each.bind.port or each.bind.path):
            continue
        taken = found.values()
        before = next((name for name, at in places.items() if at == _place(each) and name not in taken), None)
        if before is not None:
            found[each.name] = before
    transports = {each.name: _transports(each, protocols) for each in running.listeners}
    for each in config.listeners:
        if (before := found.get(each.name)) is None:
            continue
        wanted = _transports(each, protocols)
        if wanted != transports[before]:
            text = f"its transport cannot change from {transports[before]} to {wanted}"
            text = f"listener {each.name!r}: {text} at the same address while the gateway runs"
            raise ReloadError(f"{text}; change `bind` too, or restart the gateway")
    return found


def _transports(config: ListenerConfig, protocols: Mapping[str, Protocol]) -> str:
    return ", ".join(sorted({protocols[name].transport for name in config.protocols}))


def _place(config: ListenerConfig) -> tuple[str, int, str]:
    return config.bind.host, config.bind.port, config.bind.path


class OpenedAddresses:
    """The listeners and ports that a reload has opened, by name."""

    def __init__(self) -> None:
        self.listeners: dict[str, tuple[Listener, Serving]] = {}
        self.ports: dict[str, PortServer] = {}

    async def give_up(self) -> None:
        """Close all these listeners and ports, because the reload has failed."""
        await all_surviving("closing a listener", (listener.drain(0) for listener, _ in self.listeners.values()))
        await all_surviving("closing a port", (port.stop() for port in self.ports.values()))


@frozen
class Replaced:
    """The parts that a reload has replaced, and that must end."""

    assembly: Assembly
    listeners: Sequence[Listener]
    ports: Sequence[PortServer]
    running: Sequence["asyncio.Task[None]"]
    """The tasks of requests that began before the reload, on remaining listeners."""


class Replacements:
    """All replaced parts that have not ended yet. `close_logs` closes the access logs that are no longer configured."""

    def __init__(self, close_logs: Callable[[], Awaitable[None]]) -> None:
        self.listeners: set[Listener] = set()
        """Removed listeners with open connections."""
        self._close_logs = close_logs
        self._ending: set[asyncio.Task[None]] = set()

    async def end(self, replaced: Replaced, new: Assembly, seconds: float) -> None:
        """Free the addresses of removed listeners and ports.

        Requests in flight end in the background. Requests on removed listeners have `seconds` to end."""
        self.listeners.update(replaced.listeners)
        try:
            for listener in replaced.listeners:
                await listener.stop_accepting()
        finally:
            task = spawn(self._end(replaced, new, seconds, tuple(self._ending)))
            self._ending.add(task)
            task.add_done_callback(self._ended)

    async def _end(
        self, replaced: Replaced, new: Assembly, seconds: float, earlier: Sequence["asyncio.Task[None]"]
    ) -> None:
        try:
            for port in replaced.ports:
                await port.stop()
            drained = (each.drain(seconds) for each in replaced.listeners)
            given_up = sum(await all_surviving("draining a removed listener", drained))
            self.listeners.difference_update(replaced.listeners)
            if given_up:
                log.warning("closed removed listeners; cancelled requests: %d", given_up)
            if replaced.running:
                await asyncio.wait(replaced.running)
            await replaced.assembly.streams.all_ended()
            await replaced.assembly.close()
            await self._close_logs()
            if earlier:  # their requests might use the Connectors that this reload replaced
                await asyncio.wait(earlier)
        finally:
            await new.close_unused_connectors()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Run the garbage collector to free the parts that have ended.

        Otherwise, the interpreter would collect them only after creating millions of objects, that is, after dozens of
        reloads."""
        self._ending.discard(task)
        if not task.cancelled():
            gc.collect()

    async def all_ended(self) -> None:
        """Wait until all replaced parts have ended."""
        if self._ending:
            await asyncio.wait(self._ending)

    async def give_up(self) -> None:
        """Stop all replaced parts immediately."""
        for task in self._ending:
            task.cancel()
        await self.all_ended()
