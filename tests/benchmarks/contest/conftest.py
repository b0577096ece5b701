import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio

from tests.benchmarks.contest.echo import Grpc, Rest

Serve = Callable[[type[Rest] | type[Grpc]], Awaitable[str]]


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves a protocol on loopback and says at which address; closed with the test, connections included."""
    servers: list[asyncio.Server] = []
    connections: list[Rest | Grpc] = []

    async def start(protocol: type[Rest] | type[Grpc]) -> str:
        def connected() -> Rest | Grpc:
            connections.append(protocol())
            return connections[-1]

        server = await asyncio.get_running_loop().create_server(connected, "127.0.0.1", 0)
        servers.append(server)
        host, port = server.sockets[0].getsockname()
        return f"{host}:{port}"

    yield start
    for server in servers:
        server.close()
    for connection in connections:
        connection.transport.abort()
    await asyncio.sleep(0)  # a transport closes its socket in the next turn
    await asyncio.sleep(0)
