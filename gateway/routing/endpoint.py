"""One address of a backend, and what the gateway knows of it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from time import monotonic

from gateway.core.errors import Status, TransportError
from gateway.core.transport import Connector
from gateway.core.types import Message

SECONDS_AVOIDED = 1.0
"""How long an address that could not be reached comes after those that can."""


class Endpoint:
    """The calls in flight at one address. Backends that name the same address share it, and its slots with it.

    Itself a Connector, that notes whether the address answers.
    """

    __slots__ = (
        "_avoided_until",
        "_clock",
        "_on_free",
        "_on_recovery",
        "address",
        "connector",
        "in_flight",
        "passthrough",
        "reachable",
    )

    def __init__(self, address: str, connector: Connector, clock: Callable[[], float] = monotonic) -> None:
        self.address = address
        self.connector = connector
        self.passthrough: Beside | None = None
        """To the same address, for the messages of `passthrough` routes."""
        self.in_flight = 0
        self.reachable = True
        self._clock = clock
        self._avoided_until = 0.0
        self._on_free: list[Callable[[Endpoint], bool]] = []
        self._on_recovery: list[Callable[[], None]] = []

    @property
    def avoided(self) -> bool:
        """Whether the address could not be reached a moment ago."""
        return not self.reachable and self._clock() < self._avoided_until

    def watch(self, on_free: Callable[["Endpoint"], bool], on_recovery: Callable[[], None]) -> None:
        """`on_free` is called when a slot is given back, and tells whether it took it; `on_recovery` when the address
        answers again after it could not be reached, or has other models."""
        self._on_free.append(on_free)
        self._on_recovery.append(on_recovery)

    def take(self) -> None:
        """Count one more call in flight."""
        self.in_flight += 1

    def give_back(self) -> None:
        """A call is over: its slot goes to a backend that has somebody waiting, each in its turn."""
        self.in_flight -= 1
        for _ in range(len(self._on_free)):
            watcher = self._on_free.pop(0)
            self._on_free.append(watcher)
            if watcher(self):
                return

    async def exchange(self, message: Message, connector: Connector | None = None) -> Message:
        """The Connector's exchange, or that of another one to this address.

        Raises:
            TransportError: the Connector's.
        """
        try:
            reply = await (connector or self.connector).exchange(message)
        except TransportError as error:
            self._failed(error)
            raise
        self._answered()
        return reply

    async def stream(self, message: Message, connector: Connector | None = None) -> AsyncGenerator[Message, None]:
        """The Connector's stream, or that of another one to this address.

        Raises:
            TransportError: the Connector's.
        """
        try:
            async with aclosing((connector or self.connector).stream(message)) as replies:
                async for reply in replies:
                    self._answered()
                    yield reply
        except TransportError as error:
            self._failed(error)
            raise

    async def close(self) -> None:
        """Close its Connectors."""
        await self.connector.close()
        if self.passthrough is not None:
            await self.passthrough.close()

    def changed(self) -> None:
        """Its server was told to load or unload a model: what is known of its models is old."""
        for watcher in self._on_recovery:
            watcher()

    def _answered(self) -> None:
        if not self.reachable:
            self.reachable = True
            self.changed()

    def _failed(self, error: TransportError) -> None:
        """Only an address that could not be reached, or broke off, is avoided: an answer that is too large is one, too,
        and a deadline that had passed before anything was sent says nothing of it."""
        if error.status is Status.UNAVAILABLE:
            self.reachable = False
            self._avoided_until = self._clock() + SECONDS_AVOIDED


class Beside:
    """A Connector beside an Endpoint's own, to the same address. What it finds out of that, the Endpoint notes."""

    __slots__ = ("_connector", "_endpoint")

    def __init__(self, endpoint: Endpoint, connector: Connector) -> None:
        self._endpoint = endpoint
        self._connector = connector

    async def exchange(self, message: Message) -> Message:
        """The Connector's. Raises TransportError as that does."""
        return await self._endpoint.exchange(message, self._connector)

    def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """The Connector's. Raises TransportError as that does."""
        return self._endpoint.stream(message, self._connector)

    async def close(self) -> None:
        """Close the Connector."""
        await self._connector.close()
