"""A worker: a process that serves the listeners, controlled by its supervisor."""

import asyncio
import logging
import pickle
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.assembly.assembly import Assembly
from gateway.assembly.listening import BindError
from gateway.assembly.part import GatewayPart
from gateway.config.keys import Config
from gateway.core.protocol import Protocol
from gateway.core.tasks import spawn
from gateway.routing.slots import LocalSlots
from gateway.runtime.app.replacing import ReloadError
from gateway.runtime.process import end_process, log_to_stderr, run
from gateway.runtime.workers.channel import Channel, Handlers
from gateway.runtime.workers.reports import Reporter
from gateway.runtime.workers.shared_policies import share_policies
from gateway.runtime.workers.slots import RelayedEndpoint, SupervisedSlots, apply_drain
from gateway.runtime.workers.worker_config import limited_backends, placed_backends
from gateway.transports.listener_connections import raise_descriptor_limit

if TYPE_CHECKING:
    from gateway.runtime.app import Gateway

log = logging.getLogger(__name__)


def main(descriptor: int) -> None:
    """Serve until the supervisor stops the worker or itself exits."""
    raise_descriptor_limit()
    run(Worker().serve(socket.socket(fileno=descriptor)))


class Worker:
    """A worker: one of several processes that serve clients.

    This object holds the worker's end of the channel, and handles messages from the supervisor."""

    def __init__(self) -> None:
        self._gateway: Gateway | None = None
        self._reporter: Reporter
        self._limited: frozenset[str] = frozenset()
        """The names of backends for which all workers share one limit on slots."""
        self._placed: frozenset[str] = frozenset()
        """The names of backends whose servers have different models."""
        self._generation = 0
        """The generation of the supervisor's Backends that belongs to the current configuration."""
        self._drained_endpoints: frozenset[tuple[str, str]] = frozenset()
        """The endpoints that are drained, as pairs of protocol and address."""
        self._drain: asyncio.Task[int] | None = None
        handlers: Handlers = {
            "start": self._start,
            "reload": self._reload,
            "reopen_logs": self._reopen_logs,
            "learn": self._learn,
            "lists_others": self._lists_others,
            "drained": self._set_drained,
            "has_calls": self._has_calls,
            "switch": self._switch,
            "report": self._report,
            "clear_caches": self._clear_caches,
            "announce_end": self._announce_end,
            "drain": self._drained,
            "exit": end_process,
        }
        self._channel = Channel(handlers, self._abandoned)

    async def serve(self, pair: socket.socket) -> None:
        """Handle messages from the channel. Never returns."""
        pair.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self._channel, sock=pair)
        await asyncio.Event().wait()

    @property
    def gateway(self) -> "Gateway":
        """This worker's part of the gateway. It exists after the start."""
        assert self._gateway is not None
        return self._gateway

    async def _start(
        self, written: bytes, generation: int, first: bool, drained: list[tuple[str, str]]
    ) -> tuple[str, dict[str, str], list[str]]:
        """Serve a configuration.

        Only the `first` worker runs the sample servers. For `drained`, see `_set_drained`. Return an error, or the
        addresses of listeners and sample servers."""
        from gateway.runtime.app import Gateway

        config: Config = pickle.loads(written)
        log_to_stderr(config.log)
        self._share(config, generation)
        self._set_drained(drained)
        part = GatewayPart(
            has_references=first,
            has_ports=False,
            probes=False,
            prepare=self._prepare,
            slots=self._slots,
            endpoint=partial(RelayedEndpoint, partial(self._channel.tell, "learned")),
        )
        gateway = self._gateway = Gateway(config, part=part)
        try:
            await gateway.start()
        except (BindError, ValueError) as error:
            return str(error), {}, []
        self._reporter = Reporter(gateway.state, gateway.metrics)
        addresses = {name: each.address for name, each in gateway.state.listeners.items()}
        return "", addresses, [each.address for each in gateway.references]

    def _slots(self, local: LocalSlots, protocol: Protocol) -> SupervisedSlots:
        return SupervisedSlots(
            local, self._channel, self._generation, partial(self._is_drained, protocol.name),
            is_limited=local.name in self._limited, is_placed=local.name in self._placed,
        )  # fmt: skip

    async def _reload(self, written: bytes, generation: int) -> str:
        """Change to another configuration.

        Return an empty string, or the reason why the change is not possible; in that case, nothing has changed."""
        config: Config = pickle.loads(written)
        before, backends = (self._limited, self._placed, self._generation), self.gateway.state.assembly.backends
        self._share(config, generation)
        try:
            await self.gateway.reload(config)
        except (BindError, ReloadError) as error:
            self._limited, self._placed, self._generation = before
            return str(error)
        finally:
            if self.gateway.state.assembly.backends is backends and generation != before[2]:
                self._channel.tell("leave", generation)
        log_to_stderr(config.log)
        return ""

    def _share(self, config: Config, generation: int) -> None:
        """Start requesting slots from the supervisor according to `config`, which belongs to this generation."""
        self._limited, self._placed, self._generation = limited_backends(config), placed_backends(config), generation

    def _prepare(self, assembly: Assembly) -> None:
        share_policies(self._channel, assembly)
        assembly.listener_readiness.on_switch = partial(self._channel.tell, "switched")

    def _switch(self, listener: str, is_online: bool) -> None:
        """Switch a listener offline or online, because a client of another worker has done so."""
        self.gateway.state.assembly.listener_readiness.switch(listener, is_online=is_online)

    def _reopen_logs(self) -> None:
        self.gateway.reopen_logs()

    def _learn(self, backend: str, address: str, event: str, arguments: list[Any], named: dict[str, Any]) -> None:
        """Apply an endpoint event that another process has reported."""
        if self._gateway is None:
            return
        found = self._gateway.state.assembly.backends.get(backend)
        for each in () if found is None else found.endpoints:
            if each.address == address and isinstance(each, RelayedEndpoint):
                each.learn(event, arguments, named)

    def _lists_others(self, backend: str) -> None:
        """Record that a backend's model list has changed."""
        if self._gateway is not None and (found := self._gateway.state.assembly.backends.get(backend)) is not None:
            found.local.lists_others()

    def _is_drained(self, protocol: str, address: str) -> bool:
        return (protocol, address) in self._drained_endpoints

    def _set_drained(self, drained: list[tuple[str, str]]) -> None:
        """Stop sending calls to these endpoints (pairs of protocol and address), and resume sending calls to all
        others."""
        self._drained_endpoints = frozenset((protocol, address) for protocol, address in drained)
        if self._gateway is not None:
            for backend in self._gateway.state.assembly.backends.values():
                for each in backend.endpoints:
                    apply_drain(each, is_drained=self._is_drained(backend.protocol.name, each.address))

    def _has_calls(self, protocol: str, address: str) -> bool:
        backends = [] if self._gateway is None else self._gateway.state.assembly.backends.values()
        endpoints = (each for one in backends if one.protocol.name == protocol for each in one.endpoints)
        return any(each.address == address and not each.is_idle for each in endpoints)

    def _report(self) -> bytes:
        return pickle.dumps(self._reporter.report())

    async def _clear_caches(self, place: str) -> None:
        if self._gateway is not None:
            await self._gateway.clear_caches(place)

    def _announce_end(self) -> None:
        self.gateway.announce_end()

    async def _drained(self, seconds: float) -> int:
        """Drain the gateway, and return the number of cancelled requests. A second call with less time replaces the
        first one."""
        if self._drain is not None:
            self._drain.cancel()
        self._drain = spawn(self.gateway.drain(seconds))
        try:
            return await self._drain
        except asyncio.CancelledError:
            return 0

    def _abandoned(self) -> None:
        """Abort this worker's requests because the supervisor has exited. The same happens when a single-process
        gateway is killed."""
        log.error("the supervisor has ended; this worker ends, too")
        end_process()
