import asyncio
import logging
import socket
from collections.abc import Awaitable
from contextlib import suppress

import pytest

from gateway.core.address import Address
from gateway.core.errors import Status
from gateway.core.messages import Message
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.core.transport import Exchanges
from gateway.transports.grpc import Listener
from tests.core.http2 import by_hand as http2
from tests.transports.grpc.toy import ECHO, TOY, Held, channel, code, echo, echo_twice, failed, listening, refuse


def listener() -> Listener:
    return Listener(ListenerSettings(), [(TOY, "")], Exchanges(echo, echo_twice, refuse))


async def test_the_address_has_the_port_that_the_system_chose() -> None:
    async with listening() as first, listening() as second:
        assert first.address.startswith("127.0.0.1:")
        assert first.address != second.address
        for each in (first, second):
            async with channel(each.address) as made:
                assert await made.unary_unary(ECHO)(b"x") == b"x"


async def test_an_ipv6_address_stands_in_brackets() -> None:
    made = listener()
    await made.start(Address("::1"))
    assert made.address.startswith("[::1]:")
    await made.drain(0)


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.name.invalid"])
async def test_an_address_of_another_machine_is_an_os_error(host: str) -> None:
    with pytest.raises(OSError, match=r"annot assign requested address|Name or service not known|name resolution"):
        await listener().start(Address(host))


async def test_what_never_started_can_be_drained() -> None:
    assert await listener().drain(0) == 0


async def until_refused(address: str) -> None:
    """What connects before that is still accepted, and answered."""
    host, _, port = address.rpartition(":")
    with suppress(ConnectionError):
        while True:
            (await asyncio.open_connection(host, int(port)))[1].close()


async def test_draining_lets_what_is_in_flight_finish_and_accepts_nothing_more() -> None:
    held = Held()
    async with listening(held) as made, channel(made.address) as busy:
        call = busy.unary_unary(ECHO)(b"body")
        await held.asked.get()
        draining = asyncio.ensure_future(made.drain(1000))
        await until_refused(made.address)
        async with channel(made.address) as late:
            assert code(await failed(late.unary_unary(ECHO)(b""))) is Status.UNAVAILABLE
        assert not draining.done()
        held.go.set()
        assert await call == b"body"
        assert await draining == 0


async def test_draining_is_bounded() -> None:
    held = Held()
    async with listening(held) as made, channel(made.address) as busy:
        call = busy.unary_unary(ECHO)(b"body")
        await held.asked.get()
        assert await made.drain(0.01) == 1
        await held.cancelled.wait()
        assert code(await failed(call)) is Status.UNAVAILABLE


async def test_a_drained_port_is_free() -> None:
    async with listening() as made:
        port = int(made.address.rpartition(":")[2])
        await made.drain(0)
        socket.create_server(("127.0.0.1", port)).close()


async def test_a_path_that_is_not_utf8_ends_neither_the_listener_nor_what_is_in_flight(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "grpc")
    held = Held()

    def exchange(message: Message, protocol: Protocol) -> Message | Awaitable[Message]:
        return held(message, protocol) if message.body == b"in flight" else message

    async with listening(exchange) as made, channel(made.address) as busy:
        call = busy.unary_unary(ECHO)(b"in flight")
        await held.asked.get()
        for _ in range(2):
            await send(made.address, http2.request(b"/toy.Toy/\xff", b""))
            async with channel(made.address) as later:
                assert await later.unary_unary(ECHO)(b"later", wait_for_ready=True) == b"later"
        held.go.set()
        assert await call == b"in flight"


async def send(address: str, data: bytes) -> None:
    """Send `data` and wait until its call has ended."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    await reader.readuntil(b"grpc-status")
    writer.close()
    await writer.wait_closed()


async def test_two_listeners_do_not_share_a_port_without_a_word() -> None:
    """Where SO_REUSEPORT is set, the second one would bind, and get half of the clients."""
    async with listening() as made:
        port = int(made.address.rpartition(":")[2])
        sharing = socket.socket()
        sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with pytest.raises(OSError, match="in use"):
            sharing.bind(("127.0.0.1", port))
        sharing.close()
