"""The interfaces between the transports and other code. Listeners call Exchanges, and backends call Connectors."""

import asyncio
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

from gateway.core.address import Address
from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen
from gateway.core.messages import Headers, Message
from gateway.core.protocol import ListenerSettings, Protocol, Relay
from gateway.core.record import UNRECORDED, Record
from gateway.core.requests import Answer, Request, Response, Translate

Handler: TypeAlias = Callable[[Request], Awaitable[Answer]]
"""A function that returns the Answer to a Request: a backend, a bridge, or policies around a backend or bridge."""
StreamHandler: TypeAlias = Callable[[Request], AsyncGenerator[Response, None]]
"""A function that yields any number of Responses to one Request."""


@frozen
class Destination:
    """The functions that respond to a Request. `local` responds immediately, `handler` responds asynchronously, and
    `stream` yields any number of Responses.

    `translate` contains the settings for encoding the response. `route` is the route's name (for a graph,
    `models.NAME`), and `backend` is the name of its (first) backend. Responses from the gateway itself have neither
    name. `relay` relays client messages without decoding them. If `relay` is None, the gateway decodes the messages,
    and `reads` is the reason: the first configuration key that needs their content."""

    handler: Handler | None = None
    translate: Translate = Translate()
    local: Callable[[Request], Answer] | None = None
    stream: StreamHandler | None = None
    route: str = ""
    backend: str = ""
    relay: Relay | None = None
    reads: str = ""


Select: TypeAlias = Callable[[Request], Destination]
"""Returns the Destination of a Request. Raises GatewayError if no route matches."""

EventualReply: TypeAlias = Message | Awaitable[Message]
"""A reply or, if the reply takes time, an awaitable that returns it. The awaitable runs in a task."""

Exchange: TypeAlias = Callable[[Message, Protocol], EventualReply]
"""The function that a Listener calls with each received Message."""

ExchangeStream: TypeAlias = Callable[[AsyncIterator[Message], Protocol], AsyncGenerator[Message, None]]
"""The function that a Listener calls with the Messages of a client's stream. The Listener pulls one reply at a time,
writes the reply, and waits until the client has read it. When the client disconnects, the Listener closes the generator
(`aclosing`)."""

Refuse: TypeAlias = Callable[[GatewayError, Protocol, Message], Message]
"""The function that a Listener calls for an error that the Listener itself detects (unknown path, message too large,
...). The function returns the reply, encoded in the protocol."""


Admit: TypeAlias = Callable[[Headers, str, str], None]
"""The function that a Listener calls before it receives or decompresses much of a request. The arguments are the
request headers, the identity in the client certificate, and the client's address. The function raises GatewayError to
reject the request."""

StartRecord: TypeAlias = Callable[[Message, Protocol, int], Record]
"""The function that a Listener calls if requests are observed. The arguments are the Message of a request that has
arrived and its size in bytes, or the Message of a rejected request and 0. The function sets `Message.record`. The
Listener ends this record when it has written or cancelled the reply. In a stream, a message's record ends with the last
reply to the message (`streaming.answer_message`)."""


def begun(start: StartRecord | None, message: Message, protocol: Protocol, size: int) -> Record:
    """Return the record for a request that arrives in `message`, which has `size` bytes, or for a rejected request. If
    `start` is None, nothing observes the request, and the result is UNRECORDED."""
    return UNRECORDED if start is None else start(message, protocol, size)


Ready: TypeAlias = Callable[[], Awaitable[bool]]
"""Returns whether the gateway is ready to serve requests."""


async def always_ready() -> bool:
    """Return True. This is the Ready of listeners that are always ready."""
    return True


async def awaited(reply: EventualReply) -> Message:
    """Return the reply, and wait for it if necessary."""
    return reply if isinstance(reply, Message) else await reply


def is_admitted(admit: Admit | None, headers: Headers, identity: str, peer: str) -> bool:
    """Return whether errors for this client can contain more details. This is the case if the client has valid
    credentials, or does not need credentials (`admit` is None)."""
    if admit is None:
        return True
    try:
        admit(headers, identity, peer)
    except GatewayError:
        return False
    return True


@frozen
class Exchanges:
    """The functions that a Listener calls for the messages that it receives.

    If a transport has its own health service (gRPC), this service reports the result of `ready` until `announce_end` is
    called. `record` is None without observers. `admit` is None if clients need no credentials."""

    exchange: Exchange
    stream: ExchangeStream
    refuse: Refuse
    ready: Ready = always_ready
    record: StartRecord | None = None
    admit: Admit | None = None


FixedFields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Headers that a Connector sends with every message. Their names are lowercase.

These headers replace the message's headers with the same names. The value of HOST replaces the endpoint's address as
the host name in requests."""
HOST = "host"


class Connector(typing.Protocol):
    """The client side of a transport, which exchanges messages with one endpoint."""

    async def exchange(self, message: Message) -> Message:
        """Send `message` and wait for its reply. Cancelling this call stops the exchange and closes its connection.

        Raises:
            TransportError: the endpoint is unreachable, the connection was reset or closed early, or the reply is too
                large or malformed. `sent` is True if the endpoint might have received the request.
        """

    def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send `message`, and yield its replies one by one. Closing the generator cancels the exchange.

        Raises:
            TransportError: same as `exchange`, even after some replies; UNIMPLEMENTED if the transport does not support
                streams.
        """

    async def close(self) -> None:
        """Close every connection."""


@typing.runtime_checkable
class KeepsConnections(typing.Protocol):
    """A Connector that keeps connections open between exchanges, and reports when none is left."""

    def on_disconnect(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when no open connection is left for the next exchange, regardless of which side closed the
        last connection."""


class ListenerCounts(typing.Protocol):
    """The address and the counters of a Listener, for status pages and metrics."""

    address: str
    """The bound address. If the configured port is 0, the address contains the port that the operating system chose."""

    @property
    def refused_connections(self) -> int:
        """The number of connections that the listener has rejected because too many were open."""

    @property
    def unrecognised_connections(self) -> int:
        """The number of connections whose first bytes matched none of the transports that share the address."""

    @property
    def open_connections(self) -> int:
        """The number of open connections. Any thread can read this property."""

    @property
    def unanswered_requests(self) -> int:
        """The number of requests that have begun to arrive and do not have a reply yet. Any thread can read this
        property."""


class Listener(ListenerCounts, typing.Protocol):
    """The server side of a transport, which accepts clients at one address."""

    async def start(self, address: Address) -> None:
        """Bind the address, and accept connections.

        Raises:
            OSError: the address is in use, not permitted, or not an address of this machine.
        """

    def why_not_renewed(self, protocols: Sequence[tuple[Protocol, str]]) -> str:
        """Return the reason why `renew` cannot serve these protocols at this address, or an empty string if it can."""

    def renew(
        self, settings: ListenerSettings, protocols: Sequence[tuple[Protocol, str]], exchanges: Exchanges
    ) -> "list[asyncio.Task[None]]":
        """Serve all later requests, including requests on open connections, with these arguments. The arguments have
        the same meaning as in the constructor. A request starts when its complete message has arrived.

        Return the tasks of the requests in flight (without streams). These requests continue with the previous
        arguments."""

    async def stop_accepting(self) -> None:
        """Stop accepting connections, and let each open connection end after its last reply. The address is free when
        this method returns."""

    def announce_end(self) -> None:
        """Announce to clients that their connections will close, if the protocol supports this. The listener still
        accepts connections and serves requests. The caller calls `drain` next."""

    async def drain(self, seconds: float) -> int:
        """Stop accepting connections, wait at most `seconds` for requests in flight to finish, and then close all
        connections.

        Return the number of cancelled requests. The caller can cancel this method and call it again with less time."""
