"""The health port: `/healthz` and `/readyz` for kubelet and load balancers, and `/metrics` for Prometheus. Probes need
no key. The metrics page requires a key if authentication is configured. The port serves no other paths.

A thread with its own event loop serves the port, so probes do not fail while the main event loop is busy. A third
thread renders the metrics, so no probe waits for them.
"""

import asyncio
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from time import monotonic
from typing import Any

from gateway.admin.access import why_refused
from gateway.admin.metrics import MetricsPage
from gateway.assembly.authentication import Asked
from gateway.auth.authenticator import CHALLENGE
from gateway.core import http_status
from gateway.core.address import Address
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.log_limit import LogLimit
from gateway.core.messages import Headers, Message
from gateway.core.protocol import HttpBinding, Limits, ListenerSettings, Protocol, without_codec
from gateway.core.transport import EventualReply, Exchanges, awaited
from gateway.transports.http.server.listener import HttpListener
from gateway.transports.listener_connections import PORT_CONNECTIONS, ConnectionLimit
from gateway.transports.timeouts import PORT_TIMEOUTS, Timeouts

_lines = LogLimit(logging.getLogger(__name__))

STALLED_SECONDS = 30.0
"""Seconds for which the main event loop can be blocked before `/healthz` fails. The limit is long because, after a
failure, kubelet restarts the gateway, which ends all calls."""
ANSWER_SECONDS = 0.5
"""Time limit for the backend check that `/readyz` requests in the main event loop, in seconds. By default, kubelet
itself waits for 1 s."""
COUNT_SECONDS = 1.0
"""Time limit for `/metrics` to count the completed requests in the main event loop, in seconds. By default, Prometheus
itself waits for 10 s."""
LAST_RESULT_SECONDS = 30.0
"""Seconds for which the last result stays valid if a check does not finish in time."""

_TICK = 1.0
_LIMITS = Limits(message=1024, headers=8 * 2**10)
_TEXT = Headers([(b"content-type", b"text/plain; charset=utf-8")])


class HealthServer:
    """Serves the health port.

    - `is_accepting` returns True if the gateway accepts requests. The server's thread calls it.
    - `backends_ready` returns True if the backends are ready. It runs on the event loop that calls `start`. None means
      that readiness does not depend on backends.
    - `metrics` is the page of `/metrics`, or None. Before the server renders the page, it calls `count` on the event
      loop that calls `start`. `count` adds recently completed requests to the counters.
    - `asked` authenticates clients of the metrics page, and waits for issuer keys on the same loop. None means that
      authentication is off.
    - `tls` is the same as in ListenerSettings. The server's thread calls it.
    """

    address: str
    """The server's `host:port`, set by `start`."""

    def __init__(
        self,
        is_accepting: Callable[[], bool],
        backends_ready: Callable[[], Awaitable[bool]] | None,
        *,
        metrics: MetricsPage | None = None,
        count: Callable[[], Awaitable[None] | None] | None = None,
        asked: Asked | None = None,
        timeouts: Timeouts = PORT_TIMEOUTS,
        tls: Callable[[], ssl.SSLContext | None] | None = None,
    ) -> None:
        self._tls = tls
        self._is_accepting = is_accepting
        self.backends_ready = backends_ready
        self.metrics = metrics
        self._count = count
        self.asked = asked
        """The caller can change `asked`, `metrics` and `backends_ready` while the server is running."""
        self._scraping = asyncio.Lock()
        self._timeouts = timeouts
        self._main_loop: asyncio.AbstractEventLoop
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping: asyncio.Event
        self._last_tick = monotonic()
        self._next_tick: asyncio.TimerHandle | None = None
        self._running_check: Future[None] | None = None
        self._last_result = False, self._last_tick
        """The last result of `backends_ready`, and its time."""

    async def start(self, address: Address) -> None:
        """Bind and accept connections. Raises OSError if the address cannot be bound."""
        self._main_loop = asyncio.get_running_loop()
        self._tick()
        started: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(address, started), name="health", daemon=True)
        self._thread.start()
        try:
            self.address = await asyncio.wrap_future(started)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close the port and stop the thread."""
        if self._next_tick is not None:
            self._next_tick.cancel()
        if self._thread is not None:
            thread, self._thread = self._thread, None
            if self._thread_loop is not None:
                self._thread_loop.call_soon_threadsafe(self._stopping.set)
            await asyncio.to_thread(thread.join)

    def _tick(self) -> None:
        self._last_tick = monotonic()
        self._next_tick = self._main_loop.call_later(_TICK, self._tick)

    # The methods below run in the thread.

    def _run(self, address: Address, started: "Future[str]") -> None:
        try:
            asyncio.run(self._serve(address, started))
        except BaseException as error:
            if not started.done():
                started.set_exception(error)

    async def _serve(self, address: Address, started: "Future[str]") -> None:
        self._stopping = asyncio.Event()
        exchanges: Any = Exchanges(self._answer, _no_streams, _refuse)
        settings = ListenerSettings("health", _LIMITS, tls=self._tls)
        listener = HttpListener(
            settings,
            [(_PROTOCOL, "")],
            exchanges,
            timeouts=self._timeouts,
            connection_limit=ConnectionLimit(PORT_CONNECTIONS, makes_room=True),
        )
        await listener.start(address)
        self._thread_loop = asyncio.get_running_loop()
        started.set_result(listener.address)
        try:
            await self._stopping.wait()
        finally:
            self._thread_loop = None
            await listener.drain(0)

    def _answer(self, message: Message, protocol: Protocol) -> EventualReply:
        if message.path == "/metrics":
            return self._metrics_for_anybody(message) if self.asked is None else self._metrics(self.asked, message)
        is_alive = monotonic() - self._last_tick < STALLED_SECONDS
        if message.path == "/healthz":
            return _ALIVE if is_alive else _reply(503, f"event loop blocked for {STALLED_SECONDS:g} s")
        if not is_alive or not self._is_accepting():
            return _NOT_READY
        backends_ready = self.backends_ready
        return _READY if backends_ready is None else self._check_backends(backends_ready)

    def _metrics_for_anybody(self, message: Message) -> EventualReply:
        return _NO_METRICS if self.metrics is None else self._scrape(self.metrics, message)

    async def _metrics(self, asked: Asked, message: Message) -> Message:
        """Return the metrics, or an error for clients without the permission."""
        authenticator, wait_for_keys = asked

        async def lookup(issuer: str) -> None:
            await wait_for_keys(issuer)

        async def wait(issuer: str) -> None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(lookup(issuer), self._main_loop))

        refused = await why_refused((authenticator, wait), message.headers, message.identity, "metrics", "health")
        if refused is None:
            return await awaited(self._metrics_for_anybody(message))
        status, text = refused
        if status in (401, 403):
            _lines.write("refused", logging.WARNING, "the health port refuses client %s: %s", message.peer or "-", text)
        reply = _reply(status, text)
        return replace(reply, headers=Headers((*reply.headers.raw, CHALLENGE))) if status == 401 else reply

    async def _scrape(self, page: MetricsPage, message: Message) -> Message:
        """Return the metrics. The server renders only one page at a time, because parallel rendering would slow down
        the main event loop."""

        async def count() -> None:
            if self._count is not None and (counted := self._count()) is not None:
                await counted

        async with self._scraping:
            counted = asyncio.run_coroutine_threadsafe(count(), self._main_loop)
            await asyncio.wait([asyncio.wrap_future(counted)], timeout=COUNT_SECONDS)
            return await asyncio.to_thread(page.reply, message)

    async def _check_backends(self, backends_ready: Callable[[], Awaitable[bool]]) -> Message:
        """Return the response to `/readyz`. At most one check runs at a time. A check that takes too long continues,
        and a later probe gets its result."""

        async def check() -> None:
            self._last_result = await backends_ready(), monotonic()

        if self._running_check is None or self._running_check.done():
            self._running_check = asyncio.run_coroutine_threadsafe(check(), self._main_loop)
        await asyncio.wait([asyncio.wrap_future(self._running_check)], timeout=ANSWER_SECONDS)
        was_ready, at = self._last_result
        is_ready = was_ready and monotonic() - at < LAST_RESULT_SECONDS
        return _READY if is_ready and self._is_accepting() else _NOT_READY


def _reply(status: int, text: str) -> Message:
    return Message(status=status, headers=_TEXT, parts=(text.encode(),))


_ALIVE, _READY, _NOT_READY = _reply(200, "ok"), _reply(200, "ready"), _reply(503, "not ready")
_NO_METRICS = _reply(404, "metrics are off; set metrics.enabled in the configuration")


def _refuse(error: GatewayError, protocol: Protocol, message: Message) -> Message:
    return _reply(http_status.number(error), error.message)


def _no_streams(*_: Any) -> Any:
    raise NotImplementedError("the health port has no streams")


_PROTOCOL = without_codec("health", HttpBinding(), ("GET /healthz", "GET /readyz", "GET /metrics"))
