"""An address of a backend, with its calls in flight, its health, its Connectors, and its drain for maintenance. A
drained endpoint receives no new calls until an operator undoes the drain.

| state | meaning |
|---|---|
| serving | it receives calls |
| draining | it receives no new calls; calls in flight, and sequences with state on it, continue for a limited time |
| drained | it has no calls or sequences left; you can stop its server |

If the backend loads models on demand, other endpoints first load the models of the endpoint to drain. Until then, this
endpoint still receives calls.

A drain applies to all backends that share the endpoint, and survives configuration reloads. If an endpoint is removed
from the configuration or discovery no longer finds it, the endpoint serves again when it returns.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from datetime import UTC, datetime
from enum import Enum
from math import inf
from time import monotonic
from typing import TypeAlias

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.messages import Message
from gateway.core.requests import Request
from gateway.core.surviving import log_and_continue
from gateway.core.transport import Connector, KeepsConnections
from gateway.routing.health import Ejection, EndpointHealth


class DrainState(Enum):
    """The progress of a drain. The values are the words that `/status` shows."""

    DRAINING = "draining"
    DRAINED = "drained"


class Drain:
    """The drain of one endpoint: it receives no new calls until an operator undoes the drain. Sequences with state on
    the endpoint can continue for `seconds`."""

    __slots__ = ("_ends", "failed_moves", "is_moving", "since", "state")

    def __init__(self, seconds: float, *, is_moving: bool = False) -> None:
        self.since = datetime.now(UTC)
        self.state = DrainState.DRAINING
        """The progress. The code that waits for the calls to end sets this attribute to DRAINED."""
        self.is_moving = is_moving
        """True while other endpoints are loading the endpoint's models."""
        self.failed_moves: tuple[str, ...] = ()
        """The models that other endpoints could not load, and the reasons."""
        self._ends = asyncio.get_running_loop().time() + seconds

    @property
    def seconds_left(self) -> float:
        """The remaining time for which sequences can continue on the endpoint, in seconds."""
        return max(0.0, self._ends - asyncio.get_running_loop().time())


CLIENT_SECONDS = 1.0
"""Minimum time, in seconds, that a call without a `timeout` policy must have waited at an endpoint before its failure
counts against the endpoint."""
_SLACK = 0.01
"""The maximum time by which a timer can fire early, in seconds."""


class Endpoint:
    """An address of one or more backends. Backends with the same address share the Endpoint and its slots.

    An Endpoint is a Connector: it forwards messages to its own `connector`, and records in `health` whether the address
    responds.

    - `slot`: capacity for one call in flight; `max_in_flight` is the number of slots.
    """

    __slots__ = (
        "_is_closed",
        "_on_disconnect",
        "_on_drain",
        "_on_free",
        "_on_outage",
        "_on_recovery",
        "_on_reply",
        "_others",
        "_timer",
        "address",
        "clock",
        "connector",
        "drain",
        "health",
        "in_flight",
        "next_probe",
        "passthrough",
        "probe",
        "since",
        "takes_calls",
    )

    def __init__(
        self,
        address: str,
        connector: Connector,
        clock: Callable[[], float] = monotonic,
        ejection: Ejection | None = None,
    ) -> None:
        self.address = address
        self.health = EndpointHealth(address, ejection or Ejection(), clock)
        self.connector = connector
        self.passthrough: PassthroughConnector | None = None
        """The Connector to the same address for messages of `passthrough` routes."""
        self.in_flight = 0
        self._others = 0
        """The number of requests in flight that do not take a slot, such as metadata requests."""
        self.next_probe: float | None = None
        """The time of the next probe, on the Probers' clock. Backends that share the Endpoint also share this time."""
        self.probe: asyncio.Task[None] | None = None
        """The task of the running probe."""
        self.since = -inf
        """The beginning of the endpoint's slow start: the time when it returned after its last ejection, or was added
        to a running gateway."""
        self.drain: Drain | None = None
        """The endpoint's drain; None while the endpoint is serving."""
        self.takes_calls = True
        """True if the endpoint receives new calls because it is not drained."""
        self.clock = clock
        self._on_free: list[Callable[[Endpoint], bool]] = []
        self._on_recovery: list[Callable[[Endpoint], None]] = []
        self._on_reply: tuple[OnReply, ...] = ()
        self._on_drain: list[Callable[[Endpoint], None]] = []
        self._on_outage: list[Callable[[Endpoint], None]] = []
        self._on_disconnect: list[Callable[[Endpoint], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def watch(
        self,
        on_free: Callable[["Endpoint"], bool] | None,
        on_recovery: Callable[["Endpoint"], None],
        on_drain: Callable[["Endpoint"], None] | None = None,
        on_outage: Callable[["Endpoint"], None] | None = None,
        on_disconnect: Callable[["Endpoint"], None] | None = None,
    ) -> None:
        """Register a backend's callbacks. Omit `on_free` if the backend's calls never wait for a slot.

        - `on_free` is called when a slot becomes free. It returns whether it has used the slot.
        - `on_recovery` is called when the address responds again after being down, and when its models have changed.
        - `on_drain` is called when `drain` has changed.
        - `on_outage` is called when a connection attempt fails or a connection breaks.
        - `on_disconnect` is called when no open connection is left, whichever side closed the last one.
        """
        if on_free is not None:
            self._on_free.append(on_free)
        self._on_recovery.append(on_recovery)
        if on_drain is not None:
            self._on_drain.append(on_drain)
        if on_outage is not None:
            self._on_outage.append(on_outage)
        if on_disconnect is not None:
            self._on_disconnect.append(on_disconnect)
            self.use(self.connector)

    def unwatch(
        self,
        on_free: Callable[["Endpoint"], bool] | None,
        on_recovery: Callable[["Endpoint"], None],
        on_drain: Callable[["Endpoint"], None] | None = None,
        on_outage: Callable[["Endpoint"], None] | None = None,
        on_disconnect: Callable[["Endpoint"], None] | None = None,
    ) -> None:
        """Remove a backend's callbacks. Its calls in flight are not affected."""
        if on_free is not None and on_free in self._on_free:
            self._on_free.remove(on_free)
        if on_recovery in self._on_recovery:
            self._on_recovery.remove(on_recovery)
        if on_drain is not None and on_drain in self._on_drain:
            self._on_drain.remove(on_drain)
        if on_outage is not None and on_outage in self._on_outage:
            self._on_outage.remove(on_outage)
        if on_disconnect is not None and on_disconnect in self._on_disconnect:
            self._on_disconnect.remove(on_disconnect)

    def use(self, connector: Connector) -> None:
        """From now on, use `connector` for every call."""
        self.connector = connector
        if self._on_disconnect and isinstance(connector, KeepsConnections):
            connector.on_disconnect(self._disconnected)

    def set_drain(self, drain: Drain | None) -> None:
        """Drain the endpoint, or return it to service if `drain` is None, and notify the backends. Call this method
        again when `drain.is_moving` has changed."""
        self.drain = drain
        self.takes_calls = drain is None or drain.is_moving
        for watcher in tuple(self._on_drain):
            with log_and_continue(f"announcing that the drain of {self.address} has changed"):
                watcher(self)

    def watch_replies(self, on_reply: "OnReply") -> None:
        """Call `on_reply` with the endpoint and each reply, or only the first reply of a stream."""
        self._on_reply = (*self._on_reply, on_reply)

    def unwatch_replies(self, on_reply: "OnReply") -> None:
        """Stop calling `on_reply`. Do nothing if it is not registered."""
        self._on_reply = tuple(each for each in self._on_reply if each != on_reply)

    @property
    def is_closed(self) -> bool:
        """True after the Connectors were closed permanently."""
        return self._is_closed

    def enter(self) -> None:
        """Count a request that takes no slot. `idle` then waits for the request."""
        self._others += 1

    def leave(self, answered: bool = False) -> None:
        """Stop counting a request that takes no slot. For `answered`, see `give_back`."""
        self._others -= 1
        if self._others == 0 and self._on_free:
            self.offer()

    @property
    def is_idle(self) -> bool:
        """True if no requests are in flight, with or without a slot."""
        return not self.in_flight and not self._others

    async def idle(self) -> None:
        """Wait until no requests are in flight. New requests can begin later if a backend still has the endpoint."""
        is_idle = asyncio.Event()

        def check(endpoint: Endpoint) -> bool:
            if self.is_idle:
                is_idle.set()
            return False

        check(self)
        self._on_free.append(check)
        try:
            await is_idle.wait()
        finally:
            self._on_free.remove(check)

    def take(self) -> None:
        """Add a call to the number of calls in flight."""
        self.in_flight += 1

    def give_back(self, answered: bool = False) -> None:
        """Subtract a call from the number of calls in flight, and offer its slot to the backends.

        This method implements `slots.Ended`; it ignores `answered`."""
        self.in_flight -= 1
        if self._on_free:
            self.offer()

    def offer(self) -> bool:
        """Offer a free slot to the backends in turn. Return whether a backend used it."""
        for at, watcher in enumerate(self._on_free):
            if watcher(self):
                self._on_free.append(self._on_free.pop(at))
                return True
        return False

    def attempt(self, began: float, answers: int) -> "Attempt":
        """Return the Attempt for a call that might time out. When the call `began`, `health` had counted `answers`
        responses."""
        return Attempt(self, self.clock, began, answers)

    async def exchange(self, message: Message, connector: Connector | None = None) -> Message:
        """Send a message and return the reply, through `connector` (default: the endpoint's own).

        Raises:
            TransportError: raised by the Connector.
        """
        try:
            reply = await (connector or self.connector).exchange(message)
        except TransportError as error:
            self._failed(error)
            raise
        if self.health.answered():
            self._recovered()
        if self._on_reply:
            self._show(reply)
        return reply

    async def stream(self, message: Message, connector: Connector | None = None) -> AsyncGenerator[Message, None]:
        """Stream messages through `connector` (default: the endpoint's own).

        Raises:
            TransportError: raised by the Connector.
        """
        is_shown = not self._on_reply
        try:
            async with aclosing((connector or self.connector).stream(message)) as replies:
                async for reply in replies:
                    self.note_answer()
                    if not is_shown:
                        self._show(reply)
                        is_shown = True
                    yield reply
        except TransportError as error:
            self._failed(error)
            raise

    async def close(self) -> None:
        """Close the Connectors."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self.connector.close()
        if self.passthrough is not None:
            await self.passthrough.close()

    def changed(self) -> None:
        """Notify the backends that the server's models might have changed."""
        for watcher in self._on_recovery:
            with log_and_continue(f"announcing that {self.address} has changed"):
                watcher(self)

    def note_failure(self, why: str, *, unreachable: bool) -> None:
        """Record a failed call. `unreachable` is True if the connection attempt failed or the connection broke."""
        if unreachable:
            for watcher in self._on_outage:
                with log_and_continue(f"announcing that {self.address} is away"):
                    watcher(self)
        if not self._is_closed and self.health.failed(why, unreachable=unreachable):
            if self._timer is not None:
                self._timer.cancel()
            # At the end of the ejection, a queued call can be the trial call.
            self._timer = asyncio.get_running_loop().call_later(self.health.seconds_left, self.offer)

    def probe_passed(self, healthy: int) -> None:
        """See `EndpointHealth.probe_passed`. If the endpoint was down, it receives calls again."""
        if not self._is_closed and self.health.probe_passed(healthy):
            self._recovered()

    def probe_failed(self, why: str, unhealthy: int, *, refused: bool) -> None:
        """See `EndpointHealth.probe_failed`."""
        if not self._is_closed:
            self.health.probe_failed(why, unhealthy, refused=refused)

    def note_answer(self) -> None:
        """Record a response to a call."""
        if self.health.answered():
            self._recovered()

    def _disconnected(self) -> None:
        for watcher in self._on_disconnect:
            with log_and_continue(f"announcing that no connection to {self.address} is left"):
                watcher(self)

    def _show(self, reply: Message) -> None:
        for watcher in self._on_reply:
            with log_and_continue(f"reading a response of {self.address}"):
                watcher(self, reply)

    def _recovered(self) -> None:
        self.since = self.clock()
        self.changed()
        while self.offer():
            pass

    def _failed(self, error: TransportError) -> None:
        """Record the effect of a call's error on the endpoint's health.

        A rejected request and a reply that exceeds a limit count as responses. Attempt handles expired deadlines. A
        proxy's report that it received no reply counts as a single failure, because one client's call might crash the
        server or take too long."""
        if error.answered:
            self.note_answer()
        elif error.status is Status.UNAVAILABLE:
            self.note_failure(error.message, unreachable=not error.by_proxy)
        elif error.reason is Reason.INVALID_OUTPUT:
            self.note_failure(error.message, unreachable=False)


OnReply: TypeAlias = Callable[[Endpoint, Message], None]


class Attempt:
    """A call that was sent to an endpoint. If the call times out or is cancelled, Attempt decides whether this counts
    as a failure of the endpoint."""

    __slots__ = ("_answers", "_began", "_clock", "_endpoint")

    def __init__(self, endpoint: Endpoint, clock: Callable[[], float], began: float, answers: int) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._began = began
        self._answers = answers

    def responded(self) -> None:
        """Record a streamed response. The time limit for the next response begins now."""
        self._began = self._clock()
        self._answers = self._endpoint.health.answers

    def given_up(self, request: Request, error: TransportError | None, *, runs_to_the_end: bool) -> None:
        """Record that the call was cancelled, or failed with `error` because its time limit expired.

        The call counts as a failure of the endpoint if all these conditions hold:

        - The time limit expired before the client disconnected.
        - The call spent enough of its time at the endpoint rather than in a queue: half of its policy's `timeout`, or
          CLIENT_SECONDS if only the client's deadline limits the call. If the call had no connection, half of this time
          is enough.
        - No other call received a response from the endpoint during this time. Otherwise, the endpoint is slow or busy,
          but not dead.

        For servers whose calls can take hours (`runs_to_the_end`), only a policy's `timeout` counts, not a client's
        deadline."""
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
    """A second Connector to an Endpoint's address, for `passthrough` routes. The Endpoint records the results of this
    Connector's calls."""

    __slots__ = ("_connector", "_endpoint")

    def __init__(self, endpoint: Endpoint, connector: Connector) -> None:
        self._endpoint = endpoint
        self._connector = connector

    async def exchange(self, message: Message) -> Message:
        """See `Endpoint.exchange`. Uses this Connector."""
        return await self._endpoint.exchange(message, self._connector)

    def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """See `Endpoint.stream`. Uses this Connector."""
        return self._endpoint.stream(message, self._connector)

    async def close(self) -> None:
        """Close the Connector."""
        await self._connector.close()


def adopt_drains(endpoints: Iterable[Endpoint], previous: Iterable[Endpoint]) -> None:
    """If `endpoints` contains an address that was drained under a different Endpoint object, for example one without
    TLS, apply the drain to the new Endpoint."""
    drains = {each.address: each.drain for each in previous if each.drain is not None}
    for each in endpoints:
        if each.drain is None and each.address in drains:
            each.set_drain(drains[each.address])
