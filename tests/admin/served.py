"""Serves an admin application on loopback for a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.admin.access import ASGI
from gateway.admin.server import AdminServer
from gateway.core.address import Address
from tests.paused_server import ask, get, port_of


class Served:
    """Sends requests to a served application; gives the status and body of each reply."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def get(self, path: str) -> tuple[int, str]:
        return await self.send(get(path))

    async def send(self, request: bytes) -> tuple[int, str]:
        head, _, body = (await ask(self.port, request)).decode("utf-8", "replace").partition("\r\n\r\n")
        return int(head.split(" ")[1]), body


@asynccontextmanager
async def served(application: ASGI) -> AsyncIterator[Served]:
    server = AdminServer(application)
    await server.start(Address("127.0.0.1", 0))
    try:
        yield Served(port_of(server.address))
    finally:
        await server.stop()
