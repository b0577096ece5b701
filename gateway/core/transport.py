"""What the transports promise to those who use them."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeAlias

from gateway.core.address import Address
from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen
from gateway.core.protocol import Protocol as WireForm
from gateway.core.types import Answer, Message, Request, Response, Translate

Handler: TypeAlias = Callable[[Request], Awaitable[Answer]]
StreamHandler: TypeAlias = Callable[[Request], AsyncGenerator[Response, None]]


@frozen
class Destination:
    """Where a Request goes: a Handler, and the settings its answer is written with. `local` answers without waiting;
    `stream` answers with any number of Responses."""

    handler: Handler | None = None
    translate: Translate = Translate()
    local: Callable[[Request], Answer] | None = None
    stream: StreamHandler | None = None


Select: TypeAlias = Callable[[Request], Destination]
"""Finds the Destination of a Request. Raises GatewayError where there is none."""

Exchange: TypeAlias = Callable[[Message, WireForm], Message | Awaitable[Message]]
"""What a Listener calls with each Message: the reply at once, or an awaitable of it to be run in a task."""

ExchangeStream: TypeAlias = Callable[[AsyncIterator[Message], WireForm], AsyncGenerator[Message, None]]
"""What a Listener calls with the Messages of a client's stream: the replies, in order. It pulls one, writes it, waits
until the client took it, and pulls the next; and it closes the iterator (`aclosing`) when the client goes."""

Refuse: TypeAlias = Callable[[GatewayError, WireForm, Message], Message]
"""What a Listener calls for an error of its own (no such path, too large, ...): the reply in the protocol's form."""


@frozen
class Exchanges:
    """What a Listener does with what it receives."""

    exchange: Exchange
    stream: ExchangeStream
    refuse: Refuse


class Connector(Protocol):
    """Exchanges messages with one endpoint."""

    async def exchange(self, message: Message) -> Message:
        """Send `message` and wait for its reply. Cancelling gives the exchange up and closes its connection.

        Raises:
            TransportError: unreachable, reset, closed early, too large, not the transport's language; `sent` tells
                whether the endpoint may have seen the request.
        """

    def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send `message` and yield each reply as it is pulled. Closing the iterator gives the exchange up.

        Raises:
            TransportError: as `exchange`, also after some replies; UNIMPLEMENTED if the transport has no streams.
        """

    async def close(self) -> None:
        """Close every connection."""


class Listener(Protocol):
    """Accepts clients at one address."""

    address: str
    """Where it is bound, with the port the system chose for port 0."""

    async def start(self, address: Address) -> None:
        """Bind, and accept connections.

        Raises:
            OSError: the address is taken, not allowed, or none of this machine.
        """

    def announce_end(self) -> None:
        """From now on tell clients, where the wire has a word for it, that their connections will close. Everything is
        still accepted and answered; `drain` follows."""

    async def drain(self, seconds: float) -> int:
        """Accept no more, let what is in flight finish for at most `seconds`, then close. Returns the number of
        requests given up. It may be cancelled and called again with less time."""
