"""Calls that are given up at any moment of the opening of their connection leave nothing behind."""

import asyncio
from pathlib import Path

import pytest

from tests.descriptors import open_descriptors
from tests.tls.certificates import Authority
from tests.transports.abandoning import MAKE, connections_left, connector_to, give_up, silent_server
from tests.transports.conftest import LOOPS as LOOPS

CALLS = 240
GENEROUS = 60
KEPT = 2
"""Connections that the calls that come next may use: one that is open, and one that is being opened."""


@pytest.mark.long
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("wire", MAKE)
async def test_nothing_is_left_of_calls_that_are_given_up_while_their_connection_is_opened(
    wire: str, is_tls: bool, tmp_path: Path
) -> None:
    files = Authority().issue(tmp_path, "localhost") if is_tls else None
    before = connections_left()
    async with asyncio.timeout(GENEROUS), silent_server(wire, files) as server:
        connector, message = connector_to(wire, files, server.port)
        opened = open_descriptors()
        await give_up(connector, message, CALLS)
        while len(server.open) > KEPT:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)
        kept = connections_left() - before
        assert kept <= 2 * KEPT  # over TLS one of them is two objects
        await connector.close()
        await server.until_all_are_closed()
        await asyncio.sleep(0)
        assert open_descriptors() <= opened
    del server, connector
    assert connections_left() == before
