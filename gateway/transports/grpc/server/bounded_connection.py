"""A connection to a listener that limits the requests or the age of connections, or sheds load.

The class is separate, so other listeners have no additional cost per request.
"""

import asyncio
import math

from gateway.core.errors import Reason, refusal
from gateway.core.http2.connection import DataReceived, Stream
from gateway.core.http2.server import RequestReceived, RequestStarted
from gateway.transports.grpc.messages import announced_size
from gateway.transports.grpc.server.calls import ServerCall
from gateway.transports.grpc.server.connection import Event, GrpcServerConnection, Site
from gateway.transports.grpc.server.heads import CallHead
from gateway.transports.lifecycle import Phase
from gateway.transports.lifespan import Lifespan


class BoundedGrpcConnection(GrpcServerConnection):
    """A connection with limits.

    After the last permitted request, or at the maximum age, a GOAWAY asks the client to use another connection. This
    connection closes after its last call. The calls have `limits.connection_grace` seconds to end. When the gateway
    sheds load, it refuses a call as soon as it knows the size of the message, but it never refuses calls to gRPC's own
    services."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._lifespan = Lifespan(site.limits, self._loop.time())
        self._shedding = site.connections.shedding

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle the accepted connection."""
        super().connection_made(transport)
        self._lifespan.call_at(self._loop, self._lifespan.ends_at, self._end_of_life)

    def connection_lost(self, error: Exception | None) -> None:
        """Handle a connection that either side has closed."""
        super().connection_lost(error)
        self._lifespan.stop()

    def begin(self, stream: Stream, head: CallHead) -> None:
        super().begin(stream, head)
        if not self.is_draining and self._lifespan.is_last(self._loop.time()):
            self._end_of_life()

    def _end_of_life(self) -> None:
        grace = self.limits.connection_grace
        when = math.inf if grace is None else self._loop.time() + grace
        self._lifespan.call_at(self._loop, when, self._end_overdue_calls)
        self.retire()

    def _end_overdue_calls(self) -> None:
        if self._phase is not Phase.LINGERING:
            text = "the connection has reached its limits, and the call did not end within limits.connection_grace"
            self.end_calls(refusal(Reason.NOT_READY, text))

    def handle(self, event: Event) -> None:
        if self._shedding is None or not self._shedding.level:
            super().handle(event)
        elif type(event) is RequestReceived:
            super().handle(RequestStarted(event.stream, event.head))
            self._on_data(DataReceived(event.stream, event.data, True))
        elif type(event) is DataReceived:
            self._on_data(event)
        else:
            super().handle(event)

    def _on_data(self, event: DataReceived) -> None:
        """Handle data, and refuse its call if the gateway sheds load."""
        if self._shedding is not None:
            call: ServerCall | None = event.stream.handler
            if call is not None and call.may_be_shed:
                error = self._shedding.refusal(announced_size(event.data))
                if error is not None:
                    call.fail(error)
                    return
        super().handle(event)
