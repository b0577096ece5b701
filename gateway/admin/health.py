"""The health port: `/healthz` and `/readyz`, for kubelet and load balancers. It needs no key, and has nothing else.

It is served by a thread with an event loop of its own, so that a busy main loop does not fail a probe.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from time import monotonic
from typing import Any

from gateway.core import http_status
from gateway.core.address import Address
from gateway.core.errors import GatewayError
from gateway.core.protocol import HttpForm, Limits, ListenerSettings, Protocol
from gateway.core.transport import EventualReply, Exchanges
from gateway.core.types import Headers, Message
from gateway.transports.http.server.listener import HttpListener
from gateway.transports.listener_connections import ConnectionLimit
from gateway.transports.timeouts import DEFAULT_TIMEOUTS, Timeouts

STALLED_SECONDS = 30.0
"""How long the main loop may stand still before `/healthz` fails. A restart ends all calls: only a loop that will
hardly go on is worth it."""
ANSWER_SECONDS = 0.5
"""How long `/readyz` waits for the main loop, which asks the backends; kubelet waits for 1 s by default."""
KEPT_SECONDS = 30.0
"""How long the last answer stands in for one that does not come in time."""
CONNECTIONS = 64

_TICK = 1.0
_LIMITS = Limits(message=1024, headers=8 * 2**10)
_TEXT = Headers([(b"content-type", b"text/plain; charset=utf-8")])


class HealthServer:
    """`up`: whether the gateway takes requests, which any thread may ask. `ready`: whether its backends are such that
    `/readyz` may say so, asked on the loop that starts this; None if they do not matter."""

    address: str
    """`host:port`, once started."""

    def __init__(
        self,
        up: Callable[[], bool],
        ready: Callable[[], Awaitable[bool]] | None,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._up = up
        self._ready = ready
        self._timeouts = timeouts
        self._main: asyncio.AbstractEventLoop
        self._own: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._end: asyncio.Event
        self._ticked = monotonic()
        self._ticking: asyncio.TimerHandle | None = None
        self._asking: Future[None] | None = None
        self._last = False, self._ticked
        """What `ready` said, and when."""

    async def start(self, address: Address) -> None:
        """Bind, and accept connections. Raises OSError where that cannot be."""
        self._main = asyncio.get_running_loop()
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
        """Close."""
        if self._ticking is not None:
            self._ticking.cancel()
        if self._thread is not None:
            thread, self._thread = self._thread, None
            if self._own is not None:
                self._own.call_soon_threadsafe(self._end.set)
            await asyncio.to_thread(thread.join)

    def _tick(self) -> None:
        self._ticked = monotonic()
        self._ticking = self._main.call_later(_TICK, self._tick)

    # What the thread does.

    def _run(self, address: Address, started: "Future[str]") -> None:
        try:
            asyncio.run(self._serve(address, started))
        except BaseException as error:
            if not started.done():
                started.set_exception(error)

    async def _serve(self, address: Address, started: "Future[str]") -> None:
        self._end = asyncio.Event()
        exchanges: Any = Exchanges(self._answer, _no_stream, _refuse)
        settings = ListenerSettings("health", _LIMITS)
        listener = HttpListener(
            settings,
            [(_PROTOCOL, "")],
            exchanges,
            timeouts=self._timeouts,
            connection_limit=ConnectionLimit(CONNECTIONS),
        )
        await listener.start(address)
        self._own = asyncio.get_running_loop()
        started.set_result(listener.address)
        try:
            await self._end.wait()
        finally:
            self._own = None
            await listener.drain(0)

    def _answer(self, message: Message, protocol: Protocol) -> EventualReply:
        is_alive = monotonic() - self._ticked < STALLED_SECONDS
        if message.path == "/healthz":
            return _reply(200, "ok") if is_alive else _reply(503, f"nothing moved for {STALLED_SECONDS:g} s")
        if not is_alive or not self._up():
            return _NOT_READY
        return _READY if self._ready is None else self._asked(self._ready)

    async def _asked(self, ready: Callable[[], Awaitable[bool]]) -> Message:
        """One question at a time is put to the main loop; it is not given up, so that a later probe has its answer."""

        async def ask() -> None:
            self._last = await ready(), monotonic()

        if self._asking is None or self._asking.done():
            self._asking = asyncio.run_coroutine_threadsafe(ask(), self._main)
        await asyncio.wait([asyncio.wrap_future(self._asking)], timeout=ANSWER_SECONDS)
        was_ready, at = self._last
        is_ready = was_ready and monotonic() - at < KEPT_SECONDS
        return _READY if is_ready and self._up() else _NOT_READY


def _reply(status: int, text: str) -> Message:
    return Message(status=status, headers=_TEXT, parts=(text.encode(),))


_READY, _NOT_READY = _reply(200, "ready"), _reply(503, "not ready")


def _refuse(error: GatewayError, protocol: Protocol, message: Message) -> Message:
    return _reply(http_status.number(error), error.message)


def _unused(*_: Any) -> Any:
    raise NotImplementedError("the health port has no codec")


_no_stream = _unused

_PROTOCOL = Protocol(
    name="health",
    carrier=HttpForm(),
    patterns=("GET /healthz", "GET /readyz"),
    decode_request=_unused,
    encode_response=_unused,
    encode_error=_unused,
    encode_request=_unused,
    decode_response=_unused,
)
