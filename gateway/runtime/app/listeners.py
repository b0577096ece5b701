"""The listeners of a running gateway: opens them at the start, and opens, updates and removes them on reloads. Serving
handles a listener's requests with the Routers of the current Assembly. A reload switches all later requests to the new
Assembly, including requests on open streams."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeAlias

from gateway.assembly.assembly import Assembly
from gateway.assembly.certificates import Certificates, alpn
from gateway.assembly.error_redaction import ErrorRedaction
from gateway.assembly.explain.explaining import explaining_select
from gateway.assembly.forms import with_forms
from gateway.assembly.listening import binding, listen
from gateway.assembly.observing import Observing
from gateway.assembly.payload_logs import LogCalls
from gateway.config import paths
from gateway.config.keys import Config
from gateway.config.listeners import ListenerConfig
from gateway.core.exchange import answer, refuse
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.core.streaming import answer_message
from gateway.core.transport import Exchange, Exchanges, Listener, Ready, Select, StartRecord

log = logging.getLogger("gateway.app")


Tap: TypeAlias = Callable[[ListenerSettings, Select], Exchange]
"""Returns the function that a listener calls instead of `answer`.

The function has the same result as `answer`, and also records requests and responses. Listeners call the function after
authentication, but not for streams."""


class Serving:
    """The settings of one listener, and the Assembly that handles its requests.

    `explains` is True if clients can request explanations. `log_calls` adds calls to the payload log, or is None if the
    log is disabled. `tap`, if set, receives requests and responses."""

    def __init__(
        self,
        settings: ListenerSettings,
        assembly: Assembly,
        *,
        explains: bool = False,
        log_calls: LogCalls | None = None,
        tap: Tap | None = None,
    ) -> None:
        self._tap = tap
        self.renew(settings, assembly, explains=explains, log_calls=log_calls)

    def renew(
        self,
        settings: ListenerSettings,
        assembly: Assembly,
        *,
        explains: bool = False,
        log_calls: LogCalls | None = None,
    ) -> None:
        """Use these settings from now on for requests on open streams.

        Other requests use these settings when the listener receives new Exchanges."""
        self._settings, self._assembly = replace(settings, relays=assembly.router.relays), assembly
        self._explains = explains
        self._select = self._selecting(log_calls)
        self._select_passthrough = self._explained(assembly.passthrough.select, is_passthrough=True)

    def _selecting(self, log_calls: LogCalls | None) -> Select:
        """Return the function that finds the Destination of a request."""
        select = self._explained(self._assembly.router.select, is_passthrough=False)
        return select if log_calls is None else log_calls(select, self._assembly)

    def _explained(self, select: Select, *, is_passthrough: bool) -> Select:
        return explaining_select(select, self._assembly, passthrough=is_passthrough) if self._explains else select

    def exchanges(self, ready: Ready, record: StartRecord | None = None) -> Exchanges:
        """Return the Exchanges of the listener. `record` is None if nothing observes requests."""
        settings, select = self._settings, self._select
        tapped = None if self._tap is None else self._tap(settings, select)
        exchanges = Exchanges(
            tapped or (lambda message, protocol: answer(message, protocol, settings, select)),
            self._stream,
            refuse,
            ready,
            record,
        )
        guard = self._assembly.authentication.guards.get(settings.name)
        return exchanges if guard is None else guard.exchanges(exchanges)

    async def _stream(self, messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        """Respond like `answer_stream`, with the Assembly that is current when a message arrives."""
        async for message in messages:
            assembly = self._assembly
            select = self._select_passthrough if protocol.http.is_passthrough else self._select
            guard = assembly.authentication.guards.get(self._settings.name)
            assembly.streams.began()
            try:
                refused = None if guard is None else await guard.refused(message, protocol)
                if refused is not None:
                    message.record.end(refused.status, 0)
                    yield refused
                    continue
                async with aclosing(answer_message(message, protocol, self._settings, select)) as replies:
                    async for reply in replies:
                        yield reply
            finally:
                assembly.streams.ended()


Row: TypeAlias = tuple[Protocol, str]
"""A listener's protocol, with its path prefix."""
Opened: TypeAlias = tuple[Listener, Serving]


class Listeners:
    """The listeners of a gateway. `all` maps names to Listeners.

    `protocols` contains the installed protocols, without the forms in configurations. `ready` returns whether the
    gateway is ready for clients. `addresses` returns the addresses of all endpoints, which brief errors must not
    contain. `tap` receives requests and responses."""

    def __init__(
        self,
        protocols: Mapping[str, Protocol],
        certificates: Certificates,
        observing: Observing,
        ready: Ready,
        addresses: Callable[[], list[str]],
        tap: Tap | None = None,
    ) -> None:
        self.all: dict[str, Listener] = {}
        self._serving: dict[str, Serving] = {}
        self._protocols = protocols
        self._certificates = certificates
        self._observing = observing
        self._ready = ready
        self._addresses = addresses
        self._tap = tap

    def rows(self, config: Config) -> dict[str, tuple[Row, ...]]:
        """Return each listener's protocols, with their path prefixes."""
        found, brief_errors = {}, ErrorRedaction(config, self._addresses)
        spoken = with_forms(self._protocols, config)
        for each in config.listeners:
            rows = paths.rows(each, config.routes, config.backends, spoken)
            if each.errors.detail == "brief":
                rows = tuple((brief_errors.protocol(protocol, each.name), prefix) for protocol, prefix in rows)
            found[each.name] = rows
        return found

    async def open(self, config: ListenerConfig, rows: Sequence[Row], assembly: Assembly) -> Opened:
        """Bind a new listener, which is not yet in `all`.

        Raises:
            BindError: the listener's address cannot be bound.
        """
        settings = self._settings(config, rows)
        log_calls = self._observing.log_calls(assembly.config)
        serving = Serving(settings, assembly, explains=config.allow_explain, log_calls=log_calls, tap=self._tap)
        with binding(f"listener {config.name!r}", config.bind):
            listener = await listen(settings, rows, self._exchanges(config, serving, assembly), config.bind)
        log.info("listener %r accepts %s at %s", config.name, ", ".join(config.protocols), listener.address)
        return listener, serving

    def add(self, name: str, opened: Opened) -> None:
        """Add an opened listener to `all`."""
        self.all[name], self._serving[name] = opened

    def change(
        self, served: Iterable[ListenerConfig], stays: Mapping[str, str], started: Mapping[str, Opened]
    ) -> list[Listener]:
        """Replace the contents of `all` with the listeners `served`.

        Every listener in `served` is newly `started`, or stays under its new name. Return the removed listeners."""
        before, serving = self.all, self._serving
        self.all, self._serving = {}, {}
        for name in (each.name for each in served):
            self.add(name, started[name] if name in started else (before[stays[name]], serving[stays[name]]))
        remaining = set(map(id, self.all.values()))
        return [each for each in before.values() if id(each) not in remaining]

    def renew(self, config: ListenerConfig, rows: Sequence[Row], assembly: Assembly) -> list["asyncio.Task[None]"]:
        """Use `assembly` for all new requests, and return the tasks of requests in flight."""
        serving, settings = self._serving[config.name], self._settings(config, rows)
        log_calls = self._observing.log_calls(assembly.config)
        serving.renew(settings, assembly, explains=config.allow_explain, log_calls=log_calls)
        return list(self.all[config.name].renew(settings, rows, self._exchanges(config, serving, assembly)))

    def _settings(self, config: ListenerConfig, rows: Sequence[Row]) -> ListenerSettings:
        tls = None
        if config.tls is not None:
            tls = self._certificates.server(config.tls, alpn(*(protocol for protocol, _ in rows)))
        return ListenerSettings(config.name, config.limits, config.model, tls, cross_origin=config.cross_origin)

    def _exchanges(self, config: ListenerConfig, serving: Serving, assembly: Assembly) -> Exchanges:
        handlers = serving.exchanges(self._ready, self._observing.recording(config, assembly.config))
        statistics = assembly.statistics.get(config.name)
        return statistics.record_exchanges(handlers) if statistics else handlers
