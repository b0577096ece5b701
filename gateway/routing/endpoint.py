"""One address of a backend, and what the gateway knows of it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from time import monotonic

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.transport import Connector
from gateway.core.types import Message, Request
from gateway.routing.health import Ejection, Health

CLIENT_SECONDS = 1.0
"""What a call whose deadline is its client's alone must have waited at an endpoint to count against it."""
_SLACK = 0.01
"""Timers may ring a little early."""


class Endpoint:
    """The calls in flight at one address. Backends that name the same address share it, and its slots with it.

    Itself a Connector, that notes whether the address answers.
    """

    __slots__ = (
        "_clock",
        "_is_closed",
        "_on_free",
        "_on_recovery",
        "_timer",
        "address",
        "connector",
        "health",
        "in_flight",
        "passthrough",
    )

    def __init__(
        self,
        address: str,
        connector: Connector,
        clock: Callable[[], float] = monotonic,
        ejection: Ejection | None = None,
    ) -> None:
        self.address = address
        self.health = Health(address, ejection or Ejection(), clock)
        self.connector = connector
        self.passthrough: PassthroughConnector | None = None
        """To the same address, for the messages of `passthrough` routes."""
        self.in_flight = 0
        self._clock = clock
        self._on_free: list[Callable[[Endpoint], bool]] = []
        self._on_recovery: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def watch(self, on_free: Callable[["Endpoint"], bool], on_recovery: Callable[[], None]) -> None:
        """`on_free` is called when a slot is free, and tells whether it took it; `on_recovery` when the address answers
        again after it was ejected, or has other models."""
        self._on_free.append(on_free)
        self._on_recovery.append(on_recovery)

    def take(self) -> None:
        """Count one more call in flight."""
        self.in_flight += 1

    def give_back(self) -> None:
        """A call is over: its slot goes to a backend that has somebody waiting."""
        self.in_flight -= 1
        self.offer()

    def offer(self) -> bool:
        """Offer a slot to the backends, each in its turn. Returns whether one took it."""
        for at, watcher in enumerate(self._on_free):
            if watcher(self):
                self._on_free.append(self._on_free.pop(at))
                return True
        return False

    def begin_attempt(self) -> "Attempt":
        """A call that has a deadline, or must not take for ever, goes to it."""
        return Attempt(self, self._clock)

    async def exchange(self, message: Message, connector: Connector | None = None) -> Message:
        """The Connector's exchange, or that of another one to this address.

        Raises:
            TransportError: the Connector's.
        """
        try:
            reply = await (connector or self.connector).exchange(message)
        except TransportError as error:
            self._failed(error)
            raise
        self._answered()
        return reply

    async def stream(self, message: Message, connector: Connector | None = None) -> AsyncGenerator[Message, None]:
        """The Connector's stream, or that of another one to this address.

        Raises:
            TransportError: the Connector's.
        """
        try:
            async with aclosing((connector or self.connector).stream(message)) as replies:
                async for reply in replies:
                    self._answered()
                    yield reply
        except TransportError as error:
            self._failed(error)
            raise

    async def close(self) -> None:
        """Close its Connectors."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self.connector.close()
        if self.passthrough is not None:
            await self.passthrough.close()

    def changed(self) -> None:
        """Its server was told to load or unload a model: what is known of its models is old."""
        for watcher in self._on_recovery:
            watcher()

    def note_failure(self, why: str, *, unreachable: bool) -> None:
        """A call failed. `unreachable`: there was no connection, or no more."""
        if not self._is_closed and self.health.failed(why, unreachable=unreachable):
            if self._timer is not None:
                self._timer.cancel()
            # Who waits in a queue can be the trial.
            self._timer = asyncio.get_running_loop().call_later(self.health.seconds_left, self.offer)

    def _answered(self) -> None:
        if self.health.answered():
            self.changed()
            while self.offer():
                pass

    def _failed(self, error: TransportError) -> None:
        """An answer beyond a limit is one, too. Of deadlines that passed see Attempt."""
        if error.answered:
            self._answered()
        elif error.status is Status.UNAVAILABLE:
            self.note_failure(error.message, unreachable=True)
        elif error.reason is Reason.INVALID_OUTPUT:
            self.note_failure(error.message, unreachable=False)


class Attempt:
    """One call's stay at an endpoint: whether its end, when it is given up, speaks against the endpoint."""

    __slots__ = ("_answers", "_began", "_clock", "_endpoint")

    def __init__(self, endpoint: Endpoint, clock: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self.responded()

    def responded(self) -> None:
        """A response of a stream came: from now on the next one is waited for."""
        self._began = self._clock()
        self._answers = self._endpoint.health.answers

    def given_up(self, request: Request, error: TransportError | None, *, runs_to_the_end: bool) -> None:
        """The call was cancelled, or failed with `error` because its time was over. That is a failure of the endpoint
        if

        - its time was over, and it is not its client that left;
        - it had a fair share of the time at the endpoint, the rest of which may have been spent in a queue: half of
          what the policy `timeout` gives it, or a second where only its client's deadline bounds it; for a connection
          half of that;
        - nobody else got an answer from the endpoint meanwhile: then it is slow, or busy, and not dead.

        Clients say nothing of servers whose calls take hours (`runs_to_the_end`): there only the policy counts.
        """
        now, time_limit = self._clock(), request.time_limit
        if time_limit is None and runs_to_the_end:
            return
        waited = now - self._began
        fair = CLIENT_SECONDS if time_limit is None else time_limit / 2
        is_over = error is not None or (time_limit is not None and waited >= time_limit - _SLACK)
        is_over |= request.deadline is not None and now >= request.deadline - _SLACK
        unreachable = error is not None and not error.sent
        if is_over and waited >= (fair / 2 if unreachable else fair) and self._answers == self._endpoint.health.answers:
            what = "connection" if unreachable else "answer"
            self._endpoint.note_failure(f"no {what} within {waited:.3g} s", unreachable=unreachable)


class PassthroughConnector:
    """A Connector beside an Endpoint's own, to the same address. What it finds out of that, the Endpoint notes."""

    __slots__ = ("_connector", "_endpoint")

    def __init__(self, endpoint: Endpoint, connector: Connector) -> None:
        self._endpoint = endpoint
        self._connector = connector

    async def exchange(self, message: Message) -> Message:
        """The Connector's. Raises TransportError as that does."""
        return await self._endpoint.exchange(message, self._connector)

    def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """The Connector's. Raises TransportError as that does."""
        return self._endpoint.stream(message, self._connector)

    async def close(self) -> None:
        """Close the Connector."""
        await self._connector.close()
