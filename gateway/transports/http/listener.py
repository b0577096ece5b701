"""The HTTP/1 listener: an asyncio.Protocol on httptools."""

import asyncio
import socket
from collections.abc import Sequence

from gateway.core.patterns import PathTable
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.core.transport import Exchange, Refuse
from gateway.transports.http.connection import Connection, Site
from gateway.transports.http.known_heads import KnownHeads
from gateway.transports.http.timeouts import DEFAULT_TIMEOUTS, Timeouts

# Connections that the kernel completes while the loop is busy; Linux caps it at net.core.somaxconn.
_BACKLOG = 2048

# A host that vanished is noticed after two minutes: 60 s of silence, then six probes 10 s apart.
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))


class HttpListener:
    """Accepts clients of `protocols`, each below its prefix, at one address."""

    address: str
    """`host:port`, once started."""

    def __init__(
        self,
        settings: ListenerSettings,
        protocols: Sequence[tuple[Protocol, str]],
        exchange: Exchange,
        refuse: Refuse,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._connections: set[Connection] = set()
        table = PathTable(protocols)
        heads = KnownHeads(table, settings.limits.headers)
        self._site = Site(table, heads, settings.limits, timeouts, exchange, refuse, self._connections)
        self._server: asyncio.Server | None = None

    async def start(self, sock: socket.socket) -> None:
        """Accept connections on `sock`, which is bound."""
        _keep_probing(sock)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self._site), sock=sock, backlog=_BACKLOG)
        host, port = sock.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def drain(self, seconds: float) -> None:
        """Accept no more and close what is idle; let what is in flight finish for at most `seconds`, then break off."""
        if self._server is not None:
            self._server.close()
        closed = [connection.drain() for connection in list(self._connections)]
        if closed:
            await asyncio.wait(closed, timeout=seconds)
        for connection in list(self._connections):
            connection.abort()
        if closed:
            await asyncio.wait(closed)


def _keep_probing(sock: socket.socket) -> None:
    """Accepted sockets inherit these from the one that listens."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, number in _KEEPALIVE:
        if hasattr(socket, name):  # macOS has no TCP_KEEPIDLE
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), number)
