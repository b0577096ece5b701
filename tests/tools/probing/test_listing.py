"""The models that a server lists, and what is told if it stops to answer."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing, suppress

import pytest

from gateway.client import AsyncClient, Timeout
from gateway.core.tasks import spawn
from gateway.tools.probing.listing import list_models
from tests.paused_server import http
from tests.skipping_loop import skip

SERVER = {"name": "s", "version": "1", "extensions": ["model_repository"]}
MODEL = {"name": "m", "platform": "p", "inputs": [], "outputs": []}
INDEX = [
    {"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
    {"name": "m", "version": "2", "state": "READY", "reason": ""},
    {"name": "m", "version": "2", "state": "LOADING", "reason": "again"},
    {"name": "m", "version": "3", "state": "UNAVAILABLE", "reason": "too large"},
]


@asynccontextmanager
async def server(told: Mapping[str, object], quiet: str, silent: asyncio.Event) -> AsyncIterator[str]:
    """The address of a server that has these pages and no others. It sets `silent` at the request for the page `quiet`,
    which it does not answer."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError):
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
                if path == quiet:
                    silent.set()
                    continue
                status, body = (
                    (b"200 OK", told[path]) if path in told else (b"404 Not Found", {"error": "no such page"})
                )
                head = b"HTTP/1.1 %b\r\nContent-Type: application/json" % status
                writer.write(http(head, json.dumps(body).encode()))

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as listening:
        yield f"v2-rest://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


TOLD = {"/v2": SERVER, "/v2/repository/index": INDEX, "/v2/models/m": MODEL}


async def test_the_versions_of_a_model_are_one_model_with_the_state_of_the_first_that_is_ready() -> None:
    async with server(TOLD, "", asyncio.Event()) as address, AsyncClient(address) as client:
        [found] = (await list_models(client)).models
    assert (found.name, found.versions, found.state, found.reason) == ("m", ("1", "2", "3"), "READY", "")


@pytest.mark.parametrize("quiet", TOLD)
async def test_a_server_that_stops_to_answer_is_told_as_such(quiet: str) -> None:
    silent = asyncio.Event()
    async with server(TOLD, quiet, silent) as address, AsyncClient(address, timeout=1000) as client:
        listing = spawn(list_models(client))
        await silent.wait()
        await skip(2000)
        with pytest.raises(Timeout, match=r"no answer within 1000 s"):
            await listing
