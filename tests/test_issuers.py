"""Several issuers of tokens, over TLS with a CA of their own, and those who would be taken for one of them."""

import asyncio
import hmac
import json
import logging
import ssl
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.assembly import issuer_keys
from gateway.config import ConfigError
from gateway.runtime.app import Gateway
from tests.auth.issuer import Issuer, served
from tests.limits import GENEROUS, until
from tests.running_gateway import config_of, running_gateway
from tests.tls.certificates import Authority, Files

TEXT = """
auth:
  jwt:
    - {issuer: "FIRST", audience: [models], prefix: "a:", permissions: groups, ca: "CA"}
    - {issuer: "SECOND", audience: [others], prefix: "b:", principal: email, algorithms: [ES256], ca: "CA"}
principals:
  "a:alice": {permissions: [use]}
  "b:alice@lab": {permissions: [use]}
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest], model: m, auth: {}}]
backends: {lab: {protocol: v2-rest, endpoints: ["127.0.0.1:1"], flavor: plain}}
routes: [{match: {model: m}, backend: lab}]
"""


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> Files:
    return authority.issue(tmp_path, "localhost")


@pytest.fixture(autouse=True)
def _at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_keys, "LEAST_SECONDS", 0.0)


OTHERS: dict[str, Any] = {"aud": "others", "email": "alice@lab"}
"""The claims by which the second issuer's token is that of a principal."""


class Two:
    """A gateway with two issuers, each with a key of the same name."""

    def __init__(self, gateway: Gateway, first: Issuer, second: Issuer, client: httpx.AsyncClient) -> None:
        self.gateway, self.first, self.second, self._client = gateway, first, second, client

    async def status(self, token: str) -> int:
        """401: not accepted; 403: accepted, but may do nothing; 503: the issuer's keys are not known; 200: accepted."""
        url = f"http://{self.gateway.state.listeners['http'].address}/v2/models/m"
        reply = await self._client.get(url, headers={"authorization": f"Bearer {token}"})
        # there is no server behind the backend
        is_accepted = reply.status_code == 503 and "issuer" not in reply.text
        return 200 if is_accepted else reply.status_code


@asynccontextmanager
async def two(files: Files, text: str = TEXT) -> AsyncIterator[Two]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(served(Issuer(), context)) for _ in range(2)]
        first.rotate("ES256", "same")
        second.rotate("ES256", "same")
        written = text.replace("FIRST", first.url).replace("SECOND", second.url).replace("CA", str(files.ca))
        gateway = await stack.enter_async_context(running_gateway(written))
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=GENEROUS, trust_env=False))
        yield Two(gateway, first, second, client)


async def test_each_issuer_has_its_audience_claims_and_names(files: Files) -> None:
    async with two(files) as found:
        assert await found.status(found.first.token("alice")) == 200
        assert await found.status(found.first.token("bob", groups=["use"])) == 200
        assert await found.status(found.second.token(**OTHERS)) == 200
        assert await found.status(found.first.token("alice", aud="others")) == 401
        assert await found.status(found.second.token(email="alice@lab")) == 401
        assert await found.status(found.second.token("alice", aud="others")) == 401
        # neither the names of the other issuer nor its claim of permissions
        assert await found.status(found.second.token(aud="others", email="alice")) == 403
        assert await found.status(found.second.token(aud="others", email="bob", groups=["use"])) == 403


async def test_a_key_signs_for_its_own_issuer_only(files: Files) -> None:
    """Both issuers have a key of the same name, and what is signed is what the other one would sign."""
    async with two(files) as found:
        first, second = found.first, found.second
        pairs: list[tuple[Issuer, Issuer, dict[str, Any]]] = [
            (second, first, {"aud": "models", "subject": "alice"}),
            (first, second, OTHERS),
        ]
        for signer, other, claims in pairs:
            assert await found.status(signer.token(iss=other.url, **claims)) == 401
            assert await found.status(signer.token(iss=None, **claims)) == 401
            assert await found.status(signer.token(iss=other.url + "/", **claims)) == 401
        both: dict[str, Any] = {"aud": ["models", "others"], "email": "alice@lab"}
        assert await found.status(second.token("alice", **both, iss=first.url)) == 401


def signed(key: Any, claims: dict[str, Any]) -> str:
    """A token whose signature is right, also where the library would not write its claims."""
    return jwt.PyJWS().encode(json.dumps(claims).encode(), key, algorithm="ES256", headers={"kid": "same"})


def by_hmac(key: bytes, claims: dict[str, Any]) -> str:
    """A token that a public key signed as if it were a secret."""
    text = unsigned({"alg": "HS256", "kid": "same"}, claims).rpartition(".")[0]
    signature = urlsafe_b64encode(hmac.digest(key, text.encode(), "sha256")).rstrip(b"=").decode()
    return f"{text}.{signature}"


def pem(key: Any) -> bytes:
    found: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def unsigned(head: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(head).encode(), json.dumps(claims).encode(), signature]
    return ".".join(urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts)


async def test_tokens_that_are_forged_or_no_tokens_are_refused(files: Files) -> None:
    async with two(files) as found:
        first = found.first
        real = first.token("alice")
        head, payload, signature = real.split(".")
        claims = jwt.decode(real, options={"verify_signature": False})
        public = json.loads(first.jwks)["keys"][0]
        forged = [
            unsigned({"alg": "none"}, claims),
            unsigned({"alg": "None", "kid": "same"}, claims, b"x"),
            unsigned({"alg": "ES256", "kid": "same"}, claims),
            unsigned({"alg": "ES256", "kid": "same"}, claims, b"\0" * 64),
            unsigned({"alg": "ES256", "kid": "same", "jwk": public}, claims, b"\1" * 64),
            unsigned({"alg": "ES256", "kid": ["same"]}, claims, b"\1" * 64),
            unsigned({"alg": ["ES256"], "kid": "same"}, claims, b"\1" * 64),
            signed(first.private["same"][1], {**claims, "iss": [first.url]}),
            signed(first.private["same"][1], {**claims, "iss": {first.url: 1}}),
            by_hmac(first.jwks, claims),
            by_hmac(pem(first.public("same")), claims),
            jwt.encode(claims, "secret" * 11, algorithm="HS512", headers={"kid": "same", "jku": first.url + "/jwks"}),
            f"{head}.{payload}.",
            f"{head}..{signature}",
            f".{payload}.{signature}",
            "..",
            f"{head}.{urlsafe_b64encode(b'[' * 8000).decode()}.{signature}",
            f"{head}.{urlsafe_b64encode(b'{' + b'1' * 6000).decode()}.{signature}",
            f"{head}.{urlsafe_b64encode(json.dumps({'iss': {'a': 1}}).encode()).decode()}.{signature}",
            f"{head}.{'A' * 15_000}.{signature}",
            first.token("alice", exp=10**400),
            first.token("alice", note="x" * 14_000),  # longer than a token may be
        ]
        for token in forged:
            assert await found.status(token) in (401, 431), token[:100]
        assert await found.status(real) == 200


async def test_an_issuer_whose_certificate_another_ca_signed_is_not_asked(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor one by the certificates of the system. The other issuer goes on; a CA that is put right is used at once."""
    wrong = tmp_path / "wrong.pem"
    wrong.write_bytes(Authority().issue(tmp_path, "x", stem="x").ca.read_bytes())
    text = TEXT.replace('ca: "CA"}', f'ca: "{wrong}"}}', 1)
    async with two(files, text) as found:
        await until(lambda: "signed by an unknown CA" in caplog.text)
        assert found.first.asked == 0
        assert await found.status(found.first.token("alice")) == 503
        assert await found.status(found.second.token(**OTHERS)) == 200
        wrong.write_bytes(files.ca.read_bytes())
        async with asyncio.timeout(GENEROUS):
            while await found.status(found.first.token("alice")) != 200:
                pass
    caplog.clear()
    async with two(files, TEXT.replace(', ca: "CA"', "")) as found:
        await until(lambda: "signed by an unknown CA" in caplog.text)
        assert found.first.asked == found.second.asked == 0


ES256 = {"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "x": "A" * 43, "y": "A" * 43}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[" * 100_000,
        b'{"keys": []}',
        b'{"keys": {"same": 1}}',
        json.dumps({"keys": [ES256]}).encode(),
        json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "same", "alg": "HS256"}]}).encode(),
        json.dumps({"keys": [ES256] * 2000}).encode(),
        b'{"keys": [' + b" " * 2**21 + b"]}",
    ],
    ids=["empty", "deep", "no keys", "a map", "not on the curve", "symmetric", "many keys", "too large"],
)
async def test_a_jwks_that_cannot_be_used_leaves_the_keys_from_before(
    content: bytes, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """The other issuer does not notice."""
    caplog.set_level(logging.INFO)
    async with two(files) as found:
        assert await found.status(found.first.token("alice")) == 200
        found.first.content = content
        assert await found.status(found.first.token("alice", head={"kid": "unknown"})) == 401
        assert "cannot fetch its keys; the gateway keeps the previous keys" in caplog.text
        assert await found.status(found.first.token("alice", jti="new")) == 200
        assert await found.status(found.second.token(**OTHERS)) == 200


async def test_a_jwks_that_hangs_holds_up_nobody_else(files: Files) -> None:
    async with two(files) as found:
        assert await found.status(found.first.token("alice")) == 200
        found.first.silent = True
        waiting = asyncio.ensure_future(found.status(found.first.token("alice", head={"kid": "unknown"})))
        await until(lambda: found.first.unanswered > 0)
        for number in range(20):
            assert await found.status(found.first.token("alice", jti=str(number))) == 200
            assert await found.status(found.second.token(**OTHERS, jti=str(number))) == 200
        assert not waiting.done()
        waiting.cancel()


async def test_a_reload_keeps_the_keys_of_issuers_that_stay(files: Files) -> None:
    async with two(files) as found:
        assert await found.status(found.first.token("alice")) == 200
        assert await found.status(found.second.token(**OTHERS)) == 200
        text = TEXT.replace("FIRST", found.first.url).replace("SECOND", found.second.url).replace("CA", str(files.ca))
        lines = [line for line in text.splitlines(keepends=True) if found.second.url not in line]
        asked = found.first.asked
        await found.gateway.reload(config_of("".join(lines)))
        found.first.silent = True
        assert await found.status(found.first.token("alice", jti="new")) == 200
        assert await found.status(found.second.token(**OTHERS, jti="new")) == 401
        assert found.first.asked <= asked + 1


def test_what_is_wrong_with_issuers_is_told_with_its_place(files: Files, tmp_path: Path) -> None:
    def wrong(auth: str) -> str:
        with pytest.raises(ConfigError) as raised:
            config_of("listeners: [{name: a, bind: '127.0.0.1:0', protocols: [v2-rest]}]\n" + auth)
        return str(raised.value)

    one = "{issuer: 'https://i.test', audience: [m]}"
    assert "test.yaml:2:66: 'https://i.test' is listed twice" in wrong(f"auth: {{jwt: [{one}, {one}]}}")
    assert "ca.pem' cannot be used: cannot read the file" in wrong(f"auth: {{jwt: {one[:-1]}, ca: /ca.pem}}}}")
    assert "expected an absolute path, got 'ca.pem'" in wrong(f"auth: {{jwt: {one[:-1]}, ca: ca.pem}}}}")
    plain = one.replace("https", "http")
    assert "do not come over https" in wrong(f"auth: {{jwt: [{plain[:-1]}, ca: {files.ca}}}]}}")
    assert wrong(f"auth: {{jwt: {one[:-1]}, leeway: x}}}}").startswith("test.yaml:2:63: expected a number")
    assert "unknown key 'isuer'; did you mean 'issuer'?" in wrong("auth: {jwt: {isuer: a}}")
