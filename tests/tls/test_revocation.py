"""Client certificates that were revoked, and lists of them that cannot be used."""

import asyncio
import logging
import socket
import ssl
from pathlib import Path

import grpc.aio
import pytest

from gateway.config import ConfigError
from tests.limits import GENEROUS, until
from tests.running_gateway import config_of, running_gateway
from tests.tls.certificates import Authority, Files
from tests.tls.running import GET, ask, at, connected, credentials, reply

TEXT = """
reload: {{interval: 0.1}}
listeners:
  - {{name: http, bind: "127.0.0.1:0", protocols: [v2-rest], tls: {tls}}}
  - {{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc], tls: {tls}}}
"""


@pytest.fixture(autouse=True)
def _all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.fixture
def good(authority: Authority, tmp_path: Path) -> Files:
    return authority.issue(tmp_path, "good.lab", stem="good")


@pytest.fixture
def bad(authority: Authority, tmp_path: Path) -> Files:
    return authority.issue(tmp_path, "bad.lab", stem="bad")


def text(files: Files, crl: Path, client: str = "required") -> str:
    return TEXT.format(tls=files.asking(client, crl))


async def is_let_in(port: int, context: ssl.SSLContext) -> bool:
    try:
        return (await ask(port, context, GET))[0] == 200
    except (OSError, asyncio.IncompleteReadError):
        return False


async def test_a_revoked_certificate_is_refused_when_the_list_has_changed_and_others_go_on(
    authority: Authority, files: Files, good: Files, bad: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Over HTTP and gRPC; a session of TLS that began before cannot be resumed."""
    crl = authority.revoke(tmp_path / "crl.pem")
    revoked, other = files.trusting(bad), files.trusting(good)
    async with running_gateway(text(files, crl)) as gateway:
        port = at(gateway, "http")
        assert await is_let_in(port, revoked)
        assert await is_let_in(port, other)
        resumed = await asyncio.to_thread(Session, port, revoked)
        async with connected(port, other) as (reader, writer):
            authority.revoke(crl, bad)
            await until(lambda: caplog.text.count("reloaded the certificates") == 2)
            assert not await is_let_in(port, revoked)
            assert await is_let_in(port, other)
            writer.write(GET)
            assert (await reply(reader))[0] == 200
        assert "its certificate is revoked" in caplog.text
        assert not await asyncio.to_thread(resumed.is_let_in)
        for own, is_known in ((good, True), (bad, False)):
            known = credentials(files, own)
            async with grpc.aio.secure_channel(f"localhost:{at(gateway, 'grpc')}", known) as channel:
                call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"")
                code = await call.code()
                assert (code is grpc.StatusCode.OK) == is_known


class Session:
    """A blocking client, which offers the TLS session of its first connection for a second one."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port, self._context = port, context
        self._session: ssl.SSLSession | None = None
        assert self.is_let_in()
        assert self.is_let_in()  # with the same list the session can be used

    def is_let_in(self) -> bool:
        raw = socket.create_connection(("127.0.0.1", self._port), GENEROUS)
        try:
            with self._context.wrap_socket(raw, server_hostname="localhost", session=self._session) as client:
                client.sendall(GET)
                received = client.recv(4096)
                self._session = self._session or client.session
                return received.startswith(b"HTTP/1.1 200 ")
        except OSError:
            return False


async def test_a_list_that_breaks_is_logged_and_the_one_before_is_kept(
    authority: Authority, files: Files, good: Files, bad: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crl = authority.revoke(tmp_path / "crl.pem", bad)
    sound = crl.read_bytes()
    broken = {
        b"": "expected certificate revocation lists in PEM (BEGIN X509 CRL)",
        sound[:200]: "expected a readable certificate revocation list",
        sound.replace(b"-----\n", b"-----\nAAAA", 1): "expected a readable certificate revocation list",
        sound + files.ca.read_bytes(): "it also has CERTIFICATE",
        files.ca.read_bytes(): "it has CERTIFICATE",
        b"x" * (2**24 + 1): "larger than 16777216 bytes",
    }
    async with running_gateway(text(files, crl)) as gateway:
        port = at(gateway, "http")
        for content, why in broken.items():
            caplog.clear()
            new = tmp_path / "crl.new"
            new.write_bytes(content)
            new.replace(crl)
            await until(lambda: caplog.text.count("the gateway keeps the previous ones") == 2)
            (error,) = {each.error for each in gateway.state.status().certificates}
            assert error is not None
            assert why in error
            levels = [each.levelno for each in caplog.records if "keeps the previous ones" in each.message]
            assert levels == [logging.ERROR] * 2
            assert await is_let_in(port, files.trusting(good))
            assert not await is_let_in(port, files.trusting(bad))
        authority.revoke(crl, good)
        await until(lambda: not any(each.error for each in gateway.state.status().certificates))
        assert await is_let_in(port, files.trusting(bad))
        assert not await is_let_in(port, files.trusting(good))


@pytest.mark.parametrize("client", ["required", "optional"])
@pytest.mark.parametrize(
    ("own", "days", "why"),
    [
        (True, -1, "the revocation list of its CA has expired"),
        (False, 1, "the revocation list of the CA that signed its certificate is missing"),
    ],
    ids=["expired", "of another CA"],
)
async def test_without_a_list_that_holds_nobody_with_a_certificate_gets_in(
    own: bool, days: float, why: str, client: str, authority: Authority, files: Files, good: Files, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Clients without a certificate are as before."""
    crl = (authority if own else Authority()).revoke(tmp_path / "crl.pem", days=days)
    async with running_gateway(text(files, crl, client)) as gateway:
        port = at(gateway, "http")
        assert not await is_let_in(port, files.trusting(good))
        assert why in caplog.text
        assert await is_let_in(port, files.trusting()) == (client == "optional")


def test_what_is_wrong_with_the_key_is_told_before_the_start(
    authority: Authority, files: Files, tmp_path: Path
) -> None:
    broken = tmp_path / "crl.pem"
    broken.write_text("nothing")
    with pytest.raises(ConfigError, match="cannot be used: expected certificate revocation lists"):
        config_of(text(files, broken))
    with pytest.raises(ConfigError, match=r"expected an absolute path, got 'crl\.pem'"):
        config_of(text(files, Path("crl.pem")))
    alone = text(files, authority.revoke(broken)).replace(f"client_ca: {files.ca}, client: required, ", "")
    with pytest.raises(ConfigError, match="needs client_ca, the CAs that sign the lists"):
        config_of(alone)
