"""A reload between the two calls with which an event loop opens a connection: it creates the protocol's object, and
calls `connection_made` in the next turn. Requests of this connection belong to the new configuration, whose parts stay
until they end; the parts of the previous one are closed."""

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gateway.assembly.listening import shared
from gateway.assembly.registry import protocols, transport
from gateway.core.address import Address
from gateway.core.errors import Reason, refusal
from gateway.core.exchange import refuse
from gateway.core.messages import Message
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.core.transport import Exchanges, Listener
from gateway.transports.shared_listener import SharedListener
from tests.core.http2 import by_hand as http2
from tests.limits import GENEROUS
from tests.paused_server import port_of
from tests.transports.conftest import LOOPS

GET = b"GET /v2/models/a HTTP/1.1\r\nHost: a\r\n\r\n"
MIP = bytes.fromhex("0009000000000000")
BRPC = b"PRPC" + struct.pack(">LL", 4, 4) + bytes.fromhex("0a021a00")
GRPC = http2.request(b"/inference.GRPCInferenceService/ServerLive", b"")
OLD, NEW = b"the previous configuration", b"the new configuration"


def exchanges_of(configuration: bytes) -> Exchanges:
    """Each request is refused, with the name of the configuration that serves it."""

    async def exchange(message: Message, protocol: Protocol) -> Message:
        return refuse(refusal(Reason.NOT_READY, configuration.decode()), protocol, message)

    return Exchanges(exchange, None, refuse)  # type: ignore[arg-type]


async def first_answer(port: int, sent: bytes) -> bytes:
    """The bytes up to the name of a configuration."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    received = b""
    try:
        while OLD not in received and NEW not in received:
            more = await reader.read(65536)
            assert more, received
            received += more
    finally:
        writer.close()
    return received


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("names", "sent"),
    [
        (["v2-rest"], GET), (["v2-grpc"], GRPC), (["mip"], MIP), (["grps-brpc"], BRPC),
        (["v2-rest", "v2-grpc", "mip"], GET), (["v2-rest", "v2-grpc", "mip"], GRPC), (["v2-rest", "mip"], MIP),
    ],
)  # fmt: skip
def test_a_connection_that_opens_during_a_reload_is_served_by_the_new_configuration(
    names: Sequence[str], sent: bytes, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(protocols()[name], "") for name in names]
    settings = ListenerSettings("all", model="m")

    kind: Any = SharedListener if len(names) > 1 else transport(rows[0][0].transport).Listener
    serve = kind.serve

    def serve_and_reload(listener: Listener) -> asyncio.BaseProtocol:
        # `renew` runs after the object is created, and before the loop calls its `connection_made`.
        asyncio.get_running_loop().call_soon(listener.renew, settings, rows, exchanges_of(NEW))
        connection: asyncio.BaseProtocol = serve(listener)
        return connection

    monkeypatch.setattr(kind, "serve", serve_and_reload)

    async def answer_during_reload() -> bytes:
        make: Callable[..., Listener] = shared if len(names) > 1 else kind
        listener = make(settings, rows, exchanges_of(OLD))
        await listener.start(Address("127.0.0.1", 0))
        try:
            async with asyncio.timeout(GENEROUS):
                return await first_answer(port_of(listener.address), sent)
        finally:
            await listener.drain(0)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert NEW in runner.run(answer_during_reload())
