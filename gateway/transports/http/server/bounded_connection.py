"""A connection to a listener that limits the requests or the age of connections, or sheds load.

The class is separate, so other listeners have no additional cost per request.
"""

from copy import copy

from gateway.transports.http.server.connection import HttpServerConnection
from gateway.transports.http.server.context import HttpContext
from gateway.transports.http.server.dispatch import Dispatch
from gateway.transports.http.server.request_head import RequestHead
from gateway.transports.lifespan import Lifespan


class BoundedHttpConnection(HttpServerConnection):
    """A connection with limits. The reply to the last request contains `Connection: close`. When the gateway sheds
    load, it refuses a request after the head has arrived. It still receives a small body, so the connection can stay
    open."""

    def __init__(self, context: HttpContext) -> None:
        super().__init__(context)
        self._lifespan = Lifespan(context.limits, self._loop.time())
        self._shedding = context.connections.shedding

    def receive_whole(self, data: bytes) -> bool:
        """Return False, because `request_begun` decides for each request whether to shed it."""
        return False

    def request_begun(self, head: RequestHead, dispatch: Dispatch) -> None:
        error = self._shedding.refusal(head.length) if self._shedding is not None else None
        if error is not None:
            self._dispatch = dispatch = copy(dispatch)  # a copy, because the head cache also contains it
            dispatch.refused = error
        super().request_begun(head, dispatch)

    def connection_line(self) -> bytes:
        if self._lifespan.is_last(self._loop.time()):
            self._keep_alive = False
        return super().connection_line()
