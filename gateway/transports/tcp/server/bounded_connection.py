"""A connection to a listener that limits the requests or the age of connections, or sheds load.

The class is separate, so other listeners have no additional cost per message.
"""

import asyncio

from gateway.core.messages import Message
from gateway.transports.lifespan import Lifespan
from gateway.transports.tcp.server.connection import TcpContext, TcpServerConnection


class BoundedTcpConnection(TcpServerConnection):
    """A connection with limits.

    At its limit, it closes after the last reply. If replies have a tag (brpc), it stays open, because brpc clients fail
    all calls for 3 s after a connection closes. When the gateway sheds load, it refuses a request before it
    decompresses and decodes the request."""

    def __init__(self, context: TcpContext) -> None:
        super().__init__(context)
        self._lifespan = Lifespan(context.limits, self._loop.time()) if self._framing.tag is None else None
        self._shedding = context.connections.shedding

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new client."""
        super().connection_made(transport)
        if self._lifespan is not None:
            self._lifespan.call_at(self._loop, self._lifespan.ends_at, self.drain)

    def connection_lost(self, error: Exception | None) -> None:
        """Handle a connection that either side has closed."""
        super().connection_lost(error)
        if self._lifespan is not None:
            self._lifespan.stop()

    def begin(self, message: Message) -> None:
        error = self._shedding.refusal(len(message.parts[1])) if self._shedding is not None else None
        if error is not None:
            self._refuse(error, message)
        else:
            super().begin(message)
        if self._lifespan is not None and self._lifespan.is_last(self._loop.time()):
            self.drain()
