"""Who a client is, for what a listener hands over: its certificate's identity, and what the record says."""

import asyncio
from inspect import isawaitable
from pathlib import Path

import pytest

from gateway.admin.access import why_refused
from gateway.assembly.assembly import Assembly
from gateway.assembly.registry import policies, protocols
from gateway.config.access import AdminAuthConfig
from gateway.core.errors import GatewayError, Reason
from gateway.core.messages import NO_HEADERS, Headers, Message
from gateway.core.protocol import ListenerSettings
from gateway.core.record import Record
from gateway.core.transport import Exchanges
from gateway.runtime.app.listeners import Serving
from tests import records
from tests.assembled import assembled
from tests.auth.issuer import Issuer
from tests.running_gateway import config_of

CONFIG = """
auth: {certificates: [{identity: "spiffe://lab/ci-*", principal: "ci"}, {identity: "CN=*", principal: "*"}]}
principals: {ci: {permissions: [use]}}
listeners: [{name: guarded, bind: "tcp://127.0.0.1:1", protocols: [mip], model: m, auth: {}}]
backends: {lab: {protocol: v2-rest, endpoints: ["lab:1"], flavor: plain}}
routes: [{match: {}, backend: lab}]
"""
PING = Message(parts=(bytes.fromhex("0101000300000000"), b""))


def made(text: str) -> tuple[Assembly, Exchanges]:
    """For a configuration, what its listener `guarded` calls. No time passes."""
    assembly = assembled(config_of(text), lambda *_: None, policies=policies(), clock=lambda: 0.0)  # type: ignore[arg-type]
    serving = Serving(ListenerSettings("guarded", model="m"), assembly)
    return assembly, serving.exchanges(lambda: asyncio.sleep(0, True))


@pytest.fixture
async def exchanges() -> Exchanges:
    return made(CONFIG)[1]


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


JWT = CONFIG.replace("auth: {", f'auth: {{jwt: [{{issuer: "{Issuer().url}", jwks: JWKS, audience: [models]}}], ', 1)


def bearing(credential: str) -> Headers:
    return Headers([(b"authorization", f"Bearer {credential}".encode())])


def with_key_file(folder: Path) -> Issuer:
    """An issuer whose first key is in the file."""
    issuer = Issuer()
    issuer.rotate("ES256", "first")
    (folder / "jwks.json").write_bytes(issuer.jwks)
    return issuer


LATER = "the keys of the tokens' issuer are not known yet; try again later"
UNKNOWN = "the token is not accepted, because its issuer does not have its key; get a new token"


async def test_a_connection_with_a_token_is_admitted_once_the_keys_of_its_issuer_are_known(tmp_path: Path) -> None:
    issuer = with_key_file(tmp_path)
    assembly, exchanges = made(JWT.replace("JWKS", str(tmp_path / "jwks.json")))
    access = assembly.authentication.access

    def outcome(credential: str) -> str:
        assert exchanges.admit is not None
        try:
            exchanges.admit(bearing(credential), "", "10.0.0.7:1")
        except GatewayError as error:
            return error.message
        return ""

    assert outcome(issuer.token("ci")) == LATER
    await access.issuers[issuer.url]._begin_lookup()
    assert outcome(issuer.token("ci")) == ""
    issuer.rotate("ES256", "second")
    assert outcome(issuer.token("ci")) == UNKNOWN
    assert outcome("no token") == "expected a token: three parts with dots between them"
    with pytest.raises(GatewayError) as caught:
        await access.wait_for_keys(issuer.url)
    assert caught.value.message == UNKNOWN


async def test_a_client_of_the_admin_port_whose_key_its_issuer_lacks_is_refused(tmp_path: Path) -> None:
    issuer = with_key_file(tmp_path)
    access = made(JWT.replace("JWKS", str(tmp_path / "jwks.json")))[0].authentication.access
    asked = access.authenticator(AdminAuthConfig()), access.wait_for_keys
    issuer.rotate("ES256", "second")
    assert await why_refused(asked, bearing(issuer.token("ci")), "", "admin", "admin") == (401, UNKNOWN)
