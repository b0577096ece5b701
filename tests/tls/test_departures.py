"""Clients of TLS that leave while their calls are in flight."""

import asyncio
import socket
import ssl
import struct

import pytest

from gateway.core.address import Address
from gateway.core.certificates import TlsFiles
from gateway.core.messages import Message
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.core.transport import Exchanges
from gateway.transports.certificates import server_context
from gateway.transports.grpc import Listener
from tests.core.http2.conversation import OPENING, request
from tests.limits import GENEROUS, until
from tests.paused_server import port_of
from tests.tls.certificates import Files
from tests.transports.grpc import toy

CALLS, AT_ONCE = 90, 15
RESET = struct.pack("ii", 1, 0)
"""Closing resets the connection."""


@pytest.mark.parametrize("way", ["resets the connection", "ends TLS and reads nothing"])
async def test_answers_to_a_client_that_has_left_are_not_written_and_not_logged(
    files: Files, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    """The loop would log a line for each of them, and clients could fill the log."""
    waiting: list[asyncio.Future[Message]] = []

    async def answer(message: Message, protocol: Protocol) -> Message:
        waiting.append(asyncio.get_running_loop().create_future())
        return await waiting[-1]

    context = server_context(TlsFiles(str(files.certificate), str(files.key)), "none", ("h2",))
    exchanges = Exchanges(answer, toy.echo_twice, toy.refuse)
    listener = Listener(ListenerSettings(tls=lambda: context), [(toy.TOY, "")], exchanges)
    await listener.start(Address("127.0.0.1"))
    try:
        async with asyncio.timeout(GENEROUS):
            client = await asyncio.to_thread(connect, files, port_of(listener.address))
            await asyncio.to_thread(client.sendall, OPENING + b"".join(request(1 + 2 * at) for at in range(CALLS)))
            await until(lambda: len(waiting) >= CALLS, 0)
            if way == "resets the connection":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                client.close()
            else:
                client.setblocking(False)
                with pytest.raises(OSError):  # noqa: PT011 - it reads no answer
                    client.unwrap()
                client.close()
            # Some answers come in each turn of the loop: also between those in which TLS and gRPC hear of the end.
            while listener._connections:
                for each in waiting[:AT_ONCE]:
                    if not each.cancelled():
                        each.set_result(Message(parts=(b"x",)))
                del waiting[:AT_ONCE]
                await asyncio.sleep(0)
    finally:
        await listener.drain(0)
    assert "SSL connection is closed" not in caplog.text


def connect(files: Files, port: int) -> ssl.SSLSocket:
    return files.trusting(alpn="h2").wrap_socket(
        socket.create_connection(("127.0.0.1", port), GENEROUS), server_hostname="localhost"
    )
