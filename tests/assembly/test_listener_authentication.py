"""Who a client is, for what a listener hands over: its certificate's identity, and what the record says."""

import asyncio
from inspect import isawaitable

import pytest

from gateway.assembly.registry import policies, protocols
from gateway.core.errors import GatewayError, Reason
from gateway.core.messages import NO_HEADERS, Message
from gateway.core.protocol import ListenerSettings
from gateway.core.record import Record
from gateway.core.transport import Exchanges
from gateway.runtime.app.listeners import Serving
from tests import records
from tests.assembled import assembled
from tests.running_gateway import config_of

CONFIG = """
auth: {certificates: [{identity: "spiffe://lab/ci-*", principal: "ci"}, {identity: "CN=*", principal: "*"}]}
principals: {ci: {permissions: [use]}}
listeners: [{name: guarded, bind: "tcp://127.0.0.1:1", protocols: [mip], model: m, auth: {}}]
backends: {lab: {protocol: v2-rest, endpoints: ["lab:1"], flavor: plain}}
routes: [{match: {}, backend: lab}]
"""
PING = Message(parts=(bytes.fromhex("0101000300000000"), b""))


@pytest.fixture
async def exchanges() -> Exchanges:
    assembly = assembled(config_of(CONFIG), lambda *_: None, policies=policies())  # type: ignore[arg-type]
    return Serving(ListenerSettings("guarded", model="m"), assembly).exchanges(lambda: asyncio.sleep(0, True))


async def status(exchanges: Exchanges, identity: str) -> tuple[str, str]:
    """The principal and the reason that the record of a message has."""
    seen: list[Record] = []
    record = records.made([seen.append], "id", "mip", "mip", "", 0.0, 0)
    message = Message(parts=PING.parts, identity=identity, record=record)
    reply = exchanges.exchange(message, protocols()["mip"])
    if isawaitable(reply):
        await reply
    return record.principal, record.reason


async def test_the_identity_of_a_certificate_stands_for_a_principal(exchanges: Exchanges) -> None:
    principal, reason = await status(exchanges, "spiffe://lab/ci-7")
    assert principal == "ci"
    assert reason not in (Reason.UNAUTHENTICATED.value, Reason.PERMISSION_DENIED.value)
    assert (await status(exchanges, "CN=bob"))[0] == "CN=bob"


@pytest.mark.parametrize("identity", ["", "spiffe://evil/ci-7"])
async def test_a_client_without_a_known_certificate_is_refused(
    identity: str, exchanges: Exchanges, caplog: pytest.LogCaptureFixture
) -> None:
    assert await status(exchanges, identity) == ("", Reason.UNAUTHENTICATED.value)
    assert exchanges.admit is not None
    with pytest.raises(GatewayError):
        exchanges.admit(NO_HEADERS, identity, "10.0.0.7:1")
    assert "listener 'guarded' refuses client 10.0.0.7:1: " in caplog.text
