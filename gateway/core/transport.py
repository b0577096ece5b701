"""The interfaces between transports and other code. Listeners call Exchanges; Connectors connect to backends."""

import asyncio
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

from gateway.core.address import Address
from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen
from gateway.core.protocol import ListenerSettings, Protocol, Relay
from gateway.core.record import UNRECORDED, Record
from gateway.core.types import Answer, Headers, Message, Request, Response, Translate

Handler: TypeAlias = Callable[[Request], Awaitable[Answer]]
"""Answers a Request: a backend, a bridge, or policies around a backend or bridge."""
StreamHandler: TypeAlias = Callable[[Request], AsyncGenerator[Response, None]]
"""Answers one Request with any number of Responses."""


@frozen
class Destination:
    """The functions that answer a Request: `local` immediately, `handler` asynchronously, and `stream` with any number
    of Responses.

    `translate` are the settings for encoding the response. `route` is the route's name (for a graph, `models.NAME`) and
    `backend` the name of its (first) backend. `route` and `backend` are empty for responses from the gateway itself.
    `relay` relays clients' messages without decoding them. If it is None, the gateway decodes them, and `reads` is the
    reason: the first configuration key that needs their content."""

    handler: Handler | None = None
    translate: Translate = Translate()
    local: Callable[[Request], Answer] | None = None
    stream: StreamHandler | None = None
    route: str = ""
    backend: str = ""
    relay: Relay | None = None
    reads: str = ""


Select: TypeAlias = Callable[[Request], Destination]
"""Finds the Destination of a Request. It raises GatewayError if no route matches."""

EventualReply: TypeAlias = Message | Awaitable[Message]
"""A reply, or an awaitable of a reply that takes time. The awaitable runs in a task."""

Exchange: TypeAlias = Callable[[Message, Protocol], EventualReply]
"""The function that a Listener calls with each Message that it received."""

ExchangeStream: TypeAlias = Callable[[AsyncIterator[Message], Protocol], AsyncGenerator[Message, None]]
"""The function that a Listener calls with the Messages of a client's stream. The Listener pulls one reply at a time,
writes it, waits until the client has taken it, and closes the generator (`aclosing`) when the client leaves."""

Refuse: TypeAlias = Callable[[GatewayError, Protocol, Message], Message]
"""The function that a Listener calls for a listener error (unknown path, message too large, ...). It returns the reply,
encoded in the protocol."""


Admit: TypeAlias = Callable[[Headers, str, str], None]
"""The function that a Listener calls before it receives or decompresses much of a request. The arguments are the
request headers, the identity in the client's certificate and the client's address. The function raises GatewayError to
refuse the request."""

StartRecord: TypeAlias = Callable[[Message, Protocol, int], Record]
"""The function that a Listener calls with each request that has arrived and the bytes of its message, and with the
Message of a refused request (0 bytes), if requests are observed. It sets `Message.record`. The Listener ends this
record when it has written or cancelled the reply. Records of streams end with the last reply to their message
(`streaming.answer_message`)."""


def begun(start: StartRecord | None, message: Message, protocol: Protocol, size: int) -> Record:
    """Return the record for a request that arrives with `message`, of `size` bytes, or for a refused request;
    UNRECORDED if `start` is None, because the request has no observers."""
    return UNRECORDED if start is None else start(message, protocol, size)


Ready: TypeAlias = Callable[[], Awaitable[bool]]
"""Returns whether the gateway would serve requests now."""


async def always_ready() -> bool:
    """Return True: a Ready that is always true."""
    return True


async def awaited(reply: EventualReply) -> Message:
    """Return the reply, and wait for it if necessary."""
    return reply if isinstance(reply, Message) else await reply


def is_admitted(admit: Admit | None, headers: Headers, identity: str, peer: str) -> bool:
    """Return whether a client needs no credentials (`admit` is None) or has valid ones, so errors can contain more
    details."""
    if admit is None:
        return True
    try:
        admit(headers, identity, peer)
    except GatewayError:
        return False
    return True


@frozen
class Exchanges:
    """The functions that a Listener calls with the messages that it receives.

    `ready` is the response of the transport's own health service, if it has one (gRPC), until `announce_end` is called.
    `record` is None without observers. `admit` is None if clients need no credentials."""

    exchange: Exchange
    stream: ExchangeStream
    refuse: Refuse
    ready: Ready = always_ready
    record: StartRecord | None = None
    admit: Admit | None = None


FixedFields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Headers that a Connector sends with every message, by their names in lower case.

They replace the message's headers of the same names. The value of HOST is the host name to use in requests to the
endpoint, instead of its address."""
HOST = "host"


class Connector(typing.Protocol):
    """Exchanges messages with one endpoint: the client side of a transport."""

    async def exchange(self, message: Message) -> Message:
        """Send `message` and wait for its reply. Cancelling this call abandons the exchange and closes its connection.

        Raises:
            TransportError: the endpoint is unreachable, the connection was reset or closed early, or the reply is too
                large or malformed. `sent` is True if the endpoint might have received the request.
        """

    def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send `message` and yield its replies one by one. Closing the generator cancels the exchange.

        Raises:
            TransportError: same as `exchange`, also after some replies; UNIMPLEMENTED if the transport has no streams.
        """

    async def close(self) -> None:
        """Close every connection."""


@typing.runtime_checkable
class KeepsConnections(typing.Protocol):
    """A Connector that keeps connections open between exchanges, and reports when none is left."""

    def on_disconnect(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when no open connection is left for the next exchange, whichever side closed the last one."""


class ListenerCounts(typing.Protocol):
    """The address and the counts of a Listener, for code that reports them."""

    address: str
    """The bound address. If the configured port is 0, it has the port that the system chose."""

    @property
    def refused_connections(self) -> int:
        """The number of connections refused because too many were open."""

    @property
    def unrecognised_connections(self) -> int:
        """The number of connections, to an address that several transports share, whose first bytes matched none of
        these transports."""

    @property
    def open_connections(self) -> int:
        """The number of open connections; safe to read from any thread."""

    @property
    def unanswered_requests(self) -> int:
        """The number of requests that have begun to arrive and have no reply yet; safe to read from any thread."""


class Listener(ListenerCounts, typing.Protocol):
    """Accepts clients at one address: the server side of a transport."""

    async def start(self, address: Address) -> None:
        """Bind, and accept connections.

        Raises:
            OSError: the address is in use, not permitted, or not an address of this machine.
        """

    def why_not_renewed(self, protocols: Sequence[tuple[Protocol, str]]) -> str:
        """Return the reason why `renew` cannot serve these protocols at this address; empty if it can."""

    def renew(
        self, settings: ListenerSettings, protocols: Sequence[tuple[Protocol, str]], exchanges: Exchanges
    ) -> "list[asyncio.Task[None]]":
        """Serve all later requests, including requests on open connections, with these arguments, which are the
        arguments of the constructor. A request starts when its message has arrived in full.

        Returns the tasks of the requests in flight that have one message each; they continue with the previous
        arguments."""

    async def stop_accepting(self) -> None:
        """Stop accepting, and let each connection end after its last reply. When this returns, the address is free."""

    def announce_end(self) -> None:
        """From now on, announce to clients that their connections will close, if the protocol supports it. The listener
        still accepts and answers everything; `drain` follows."""

    async def drain(self, seconds: float) -> int:
        """Stop accepting, let requests in flight finish for at most `seconds`, then close.

        Return the number of cancelled requests. The call can be cancelled and repeated with less time."""
