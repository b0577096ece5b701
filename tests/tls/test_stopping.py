"""A listener with TLS stops as fast as one without, whatever its idle clients do."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.runtime.app import Gateway
from tests.core.http2.conversation import OPENING
from tests.limits import GENEROUS
from tests.running_gateway import reference, running_gateway
from tests.tls.certificates import Files
from tests.tls.running import GET, at

DRAIN = 60
"""The time that calls in flight would have. The loops wait 30 s for a client's end of TLS."""
SOON = 15

PORTS = {"https": "v2-rest", "grpcs": "v2-grpc", "mip": "mip", "brpc": "grps-brpc", "shared": "v2-rest, v2-grpc"}
FIRST = {"https": GET, "grpcs": OPENING, "mip": b"", "brpc": b"", "shared": GET}
"""What a client sends before it is idle."""
ALPN = {"grpcs": "h2"}


@asynccontextmanager
async def serving(files: Files) -> AsyncIterator[Gateway]:
    listeners = "".join(
        f"  - {{name: {name}, bind: 127.0.0.1:0, protocols: [{protocols}], model: m, tls: {files.server}}}\n"
        for name, protocols in PORTS.items()
    )
    async with reference("v2-rest", "posterior") as server:
        backend = f'backends: {{lab: {{protocol: v2-rest, endpoints: ["{server}"]}}}}'
        text = f"listeners:\n{listeners}{backend}\nroutes: [{{match: {{model: m}}, backend: lab}}]\n"
        async with running_gateway(text) as gateway:
            yield gateway


def idle(port: int, context: ssl.SSLContext, first: bytes) -> ssl.SSLSocket:
    """A client that has had its answer, and from now on does nothing at all: it does not even read."""
    client = context.wrap_socket(
        socket.create_connection(("127.0.0.1", port)), server_hostname="localhost", suppress_ragged_eofs=False
    )
    client.settimeout(GENEROUS)
    if first:
        client.sendall(first)
        assert client.recv(2**16)
    return client


@pytest.mark.long
@pytest.mark.parametrize("begins", [True, False], ids=["after a request", "without a request"])
@pytest.mark.parametrize("port", PORTS)
async def test_an_idle_client_that_does_not_end_tls_is_not_waited_for(files: Files, port: str, begins: bool) -> None:
    async with asyncio.timeout(GENEROUS), serving(files) as gateway:
        first = FIRST[port] if begins else b""
        context = files.trusting(alpn=ALPN.get(port, ""))
        client = await asyncio.to_thread(idle, at(gateway, port), context, first)
        try:
            async with asyncio.timeout(SOON):
                assert await gateway.drain(DRAIN) == 0
            # It was told: the end of the stream is TLS's own, which nobody between the two can have made.
            while await asyncio.to_thread(client.recv, 2**16):
                pass
        finally:
            client.close()
