"""Queries a gateway for its overview, once or periodically."""

import time
from collections.abc import Callable
from datetime import datetime
from threading import Event, Thread
from typing import Any

from gateway.core.frozen import frozen, replace
from gateway.tools.admin_port import ASKED, AdminPort, AdminPortError
from gateway.tools.top.rows import GatewayOverview, overview
from gateway.tools.top.window import TrafficWindow


class WatchedGateway:
    """A gateway to query for its counts. `restarts` is the number of detected restarts."""

    def __init__(self, port: AdminPort) -> None:
        self.restarts = 0
        self._port = port
        self._window = TrafficWindow()
        self._topology: Any = None
        self._topology_tag = ""
        self._started: float | None = None
        self._time = 0.0

    def read(self) -> GatewayOverview:
        """Return the current overview. Its rates cover the time since earlier readings, but at most the window. Raise
        AdminPortError if a request fails."""
        try:
            return self._read()
        except (KeyError, TypeError, ValueError) as error:
            where = f"{self._port.url}/api/traffic"
            raise AdminPortError(where, f"the response is not as expected; {ASKED}") from error

    def _read(self) -> GatewayOverview:
        traffic, now = self._traffic(self._time)
        if self._started not in (None, traffic["started"]):
            traffic, now = self._traffic(0.0)  # a new process, whose counts begin again
            self.restarts += 1
            self._window.clear()
            self._topology_tag = ""
        if traffic["topology"] != self._topology_tag:
            self._topology = self._port.get("/api/topology")
        self._topology_tag, self._started, self._time = traffic["topology"], traffic["started"], now
        self._window.take(now, traffic["paths"])
        return overview(self._topology, traffic, self._window)

    def _traffic(self, since: float) -> tuple[Any, float]:
        reply = self._port.reply(f"/api/traffic?since={since:.6f}")
        return reply.value, float(reply.headers.get("gateway-time", 0.0))


@frozen
class Seen:
    """The last known state of a gateway. If the gateway does not respond, `trouble` contains the reason, and `overview`
    is the last known overview. `restarted` is the time when the last restart was detected."""

    overview: GatewayOverview
    at: datetime
    trouble: str = ""
    restarted: datetime | None = None


class GatewayWatch:
    """Queries the gateway every `interval` seconds in a separate thread, so a slow gateway does not delay key presses.
    `seen` is the latest state. It continues to query while the gateway is unreachable."""

    def __init__(self, gateway: WatchedGateway, first: Seen, interval: float) -> None:
        self.seen = first
        self._gateway = gateway
        self._interval = interval
        self._ends = Event()

    def __enter__(self) -> Callable[[], Seen]:
        Thread(target=self._run, daemon=True, name="watch").start()
        return lambda: self.seen

    def __exit__(self, *error: object) -> None:
        self._ends.set()  # do not wait for a query in flight

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ends.wait(max(0.0, due - time.monotonic())):
            due = time.monotonic() + self._interval
            self.seen = self._next(self.seen)

    def _next(self, last: Seen) -> Seen:
        before = self._gateway.restarts
        try:
            now = self._gateway.read()
        except AdminPortError as error:
            return replace(last, trouble=error.reason)
        has_restarted = self._gateway.restarts > before
        at = datetime.now()
        return Seen(now, at, restarted=at if has_restarted else last.restarted)
