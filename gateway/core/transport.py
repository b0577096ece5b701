"""The interfaces between transports and the rest: listeners call Exchanges, backends are reached by Connectors."""

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
    """The function that answers a Request: `local` immediately, `handler` asynchronously, `stream` with any number of
    Responses.

    `translate` are the settings that the answer is encoded with. `route` is the route's name (`models.NAME` for a
    graph's) and `backend` the name of its (first) backend; both are empty for what the gateway answers itself. `relay`
    is how clients' messages pass unread; None if they are read, and `reads` is why: the first key of the configuration
    that needs their content.
    """

    handler: Handler | None = None
    translate: Translate = Translate()
    local: Callable[[Request], Answer] | None = None
    stream: StreamHandler | None = None
    route: str = ""
    backend: str = ""
    relay: Relay | None = None
    reads: str = ""


Select: TypeAlias = Callable[[Request], Destination]
"""Finds the Destination of a Request. Raises GatewayError if there is none."""

EventualReply: TypeAlias = Message | Awaitable[Message]
"""A reply, or an awaitable of it, to be run in a task, if the reply has to be waited for."""

Exchange: TypeAlias = Callable[[Message, Protocol], EventualReply]
"""What a Listener calls with each Message that it received."""

ExchangeStream: TypeAlias = Callable[[AsyncIterator[Message], Protocol], AsyncGenerator[Message, None]]
"""What a Listener calls with the Messages of a client's stream. It pulls one reply at a time, writes it, waits until
the client has taken it, and closes the generator (`aclosing`) when the client leaves."""

Refuse: TypeAlias = Callable[[GatewayError, Protocol, Message], Message]
"""What a Listener calls for an error of its own (unknown path, too large, ...): returns the reply in the protocol's
form."""


Admit: TypeAlias = Callable[[Headers, str, str], None]
"""What a Listener calls with the headers of a request, the identity in the client's certificate and the client's
address, before it receives or decompresses much: raises GatewayError if the request would be refused."""

StartRecord: TypeAlias = Callable[[Message, Protocol, int], Record]
"""What a Listener calls with each request that has arrived and the bytes of its message, and with the Message of one
that it refuses (0 bytes), if requests are observed: sets `Message.record`, which the Listener ends when the reply is
written or given up. Records of streams end with the last reply to their message (`streaming.answer_message`)."""


def begun(start: StartRecord | None, message: Message, protocol: Protocol, size: int) -> Record:
    """The record of a request that has arrived with `message`, of `size` bytes, or is refused; UNRECORDED if `start` is
    None, since nobody observes."""
    return UNRECORDED if start is None else start(message, protocol, size)


Ready: TypeAlias = Callable[[], Awaitable[bool]]
"""Whether requests would be served now."""


async def always_ready() -> bool:
    """A Ready that is always true."""
    return True


async def awaited(reply: EventualReply) -> Message:
    """The reply, waited for if necessary."""
    return reply if isinstance(reply, Message) else await reply


def is_admitted(admit: Admit | None, headers: Headers, identity: str, peer: str) -> bool:
    """Whether a client needs no credentials (`admit` is None) or has them, so that errors may tell it more."""
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

    `ready` is the answer of the transport's own health service, if it has one (gRPC), until `announce_end`. `record` is
    None if nobody observes requests; `admit` if clients need no credentials.
    """

    exchange: Exchange
    stream: ExchangeStream
    refuse: Refuse
    ready: Ready = always_ready
    record: StartRecord | None = None
    admit: Admit | None = None


FixedFields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Headers that a Connector sends with every message, by their names in lower case. They take the place of those that
the message has. HOST is the name that the endpoint is asked for, in place of its address."""
HOST = "host"


class Connector(typing.Protocol):
    """Exchanges messages with one endpoint: the client side of a transport."""

    async def exchange(self, message: Message) -> Message:
        """Send `message` and wait for its reply. Cancelling gives the exchange up and closes its connection.

        Raises:
            TransportError: unreachable, reset, closed early, reply too large or malformed; `sent` says whether the
                endpoint may have seen the request.
        """

    def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send `message` and yield its replies one by one. Closing the generator gives the exchange up.

        Raises:
            TransportError: as `exchange`, also after some replies; UNIMPLEMENTED if the transport has no streams.
        """

    async def close(self) -> None:
        """Close every connection."""


class Listener(typing.Protocol):
    """Accepts clients at one address: the server side of a transport."""

    address: str
    """Where it is bound; for port 0 with the port that the system chose."""

    @property
    def refused_connections(self) -> int:
        """The number of connections refused because too many were open."""

    @property
    def unrecognised_connections(self) -> int:
        """The number of connections to an address of several transports whose first bytes were those of none."""

    @property
    def open_connections(self) -> int:
        """The number of connections that are served. May be read from any thread."""

    @property
    def unanswered_requests(self) -> int:
        """The number of requests that have begun to arrive and are not answered. May be read from any thread."""

    async def start(self, address: Address) -> None:
        """Bind, and accept connections.

        Raises:
            OSError: the address is in use, not permitted, or not one of this machine.
        """

    def why_not_renewed(self, protocols: Sequence[tuple[Protocol, str]]) -> str:
        """Why `renew` cannot serve these protocols at this address; empty if it can."""

    def renew(
        self, settings: ListenerSettings, protocols: Sequence[tuple[Protocol, str]], exchanges: Exchanges
    ) -> "list[asyncio.Task[None]]":
        """Serve every request that begins after this call with these arguments, which are those of the constructor, on
        open connections too. A request whose message has not arrived in full has not begun.

        Returns the tasks of the requests in flight that have one message each; they are answered as they began.
        """

    async def stop_accepting(self) -> None:
        """Accept nothing more, and let each connection end after its last reply. When this returns, the address is
        free."""

    def announce_end(self) -> None:
        """From now on tell clients that their connections will close, where the wire can say so. Everything is still
        accepted and answered; `drain` follows."""

    async def drain(self, seconds: float) -> int:
        """Accept nothing more, let requests in flight finish for at most `seconds`, then close.

        Returns the number of requests given up. May be cancelled and called again with less time.
        """
