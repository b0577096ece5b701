"""A Connector that notes what it was made for and whether it is closed. Nothing is sent over it."""

from collections.abc import AsyncGenerator

from gateway.core.messages import Message
from gateway.core.protocol import Limits


class FakeConnector:
    def __init__(self, address: str, limits: Limits, ip: str) -> None:
        self.address, self.limits, self.ip = address, limits, ip
        self.is_closed = False

    async def exchange(self, message: Message) -> Message:
        raise AssertionError("nothing is sent here")

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        yield await self.exchange(message)

    async def close(self) -> None:
        self.is_closed = True
