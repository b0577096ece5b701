"""Handles a listener's requests with the Routers of the current Assembly. A reload switches all later requests to the
new Assembly, including requests on open streams."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeAlias

from gateway.assembly.assembly import Assembly
from gateway.assembly.explain.explaining import explaining_select
from gateway.assembly.payload_logs import LogCalls
from gateway.core.exchange import answer, refuse
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.core.streaming import answer_message
from gateway.core.transport import Exchange, Exchanges, Ready, Select, StartRecord

Tap: TypeAlias = Callable[[ListenerSettings, Select], Exchange]
"""Returns the function that a listener calls instead of `answer`.

The function has the same result as `answer`, and also receives requests and responses. Listeners call the function
after authentication, and not for streams."""


class Serving:
    """The settings of one listener, and the Assembly that handles its requests.

    `explains` is True if clients can request explanations. `log_calls` adds calls to the payload log, or is None if the
    log is disabled. `tap`, if given, receives requests and responses."""

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

        Other requests use them once the listener gets new Exchanges."""
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
