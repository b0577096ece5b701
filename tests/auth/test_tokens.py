"""Which tokens are accepted: real keys, and the attacks on JSON Web Tokens that are known by name."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.auth.authenticator import UnknownKeyError
from gateway.auth.tokens import ALGORITHMS, KeySetError, Rules, is_token, parse_key_set, verify
from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from tests.auth.issuer import AUDIENCE, Issuer

RULES = Rules("https://issuer.test", (AUDIENCE, "other"), ALGORITHMS)


def issuer(algorithm: str = "RS256") -> Issuer:
    made = Issuer()
    made.rotate(algorithm)
    return made


def read(issuer: Issuer, token: str | bytes, rules: Rules = RULES) -> tuple[str, tuple[str, ...]]:
    raw = token.encode() if isinstance(token, str) else token
    assert is_token(raw)
    said = verify(raw, parse_key_set(issuer.jwks), rules)
    return said.name, said.claimed


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_of_the_issuer_names_its_principal(algorithm: str) -> None:
    made = issuer(algorithm)
    assert read(made, made.token("alice")) == ("alice", ())


def test_a_claim_lists_permissions_as_a_list_or_as_words_also_within_an_object() -> None:
    made = issuer()
    assert read(made, made.token(scope="a b"), replace(RULES, permissions="scope"))[1] == ("a", "b")
    assert read(made, made.token(groups=["a", 1, "b c"]), replace(RULES, permissions="groups"))[1] == ("a", "b c")
    nested = replace(RULES, permissions="realm_access.roles")
    assert read(made, made.token(realm_access={"roles": ["a"]}), nested)[1] == ("a",)
    dotted = replace(RULES, permissions="https://x.test/roles")
    claim: dict[str, Any] = {"https://x.test/roles": ["a"]}
    assert read(made, made.token(**claim), dotted)[1] == ("a",)
    assert read(made, made.token(groups=7), replace(RULES, permissions="groups"))[1] == ()


def test_a_prefix_keeps_tokens_from_names_of_others() -> None:
    made = issuer()
    assert read(made, made.token("root"), replace(RULES, prefix="oidc:"))[0] == "oidc:root"


WRONG: dict[str, Callable[[Issuer], str]] = {
    "it has expired": lambda made: made.token(exp=int(time.time()) - 60),
    "it is not valid yet": lambda made: made.token(nbf=int(time.time()) + 600),
    "it is for another audience; get one for this gateway": lambda made: made.token(aud="someone"),
    "it is of another issuer; get one from an issuer of this gateway": lambda made: made.token(iss="https://evil.test"),
    "it has no claim 'exp'": lambda made: made.token(exp=None),
    "it has no claim 'aud'": lambda made: made.token(aud=None),
    "it has no claim 'sub' that names a principal; get one with this claim": lambda made: made.token(sub=""),
    "its signature or its claims are wrong; get a new one from the issuer": lambda made: made.token()[:-8] + "AAAAAAAA",
    "it is malformed": lambda made: "a.b.c",
    "it is longer than": lambda made: made.token(more="x" * 20_000),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_wrong_token_is_refused_with_the_reason(why: str) -> None:
    made = issuer()
    with pytest.raises(GatewayError, match=why) as refused:
        read(made, WRONG[why](made))
    assert refused.value.reason is Reason.UNAUTHENTICATED


def test_clocks_may_differ_by_the_leeway() -> None:
    made = issuer()
    assert read(made, made.token(exp=int(time.time()) - 10)) == ("alice", ())
    with pytest.raises(GatewayError, match="expired"):
        read(made, made.token(exp=int(time.time()) - 10), replace(RULES, leeway=0))


def part(data: Any) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=")


def claims(made: Issuer) -> dict[str, Any]:
    return {"iss": made.url, "aud": AUDIENCE, "sub": "mallory", "exp": int(time.time()) + 300}


@pytest.mark.parametrize("algorithm", ["none", "None", "", None, 7])
def test_a_token_without_a_signature_is_refused(algorithm: Any) -> None:
    made = issuer()
    for signature in (b"", b"AAAA"):
        token = b".".join((part({"alg": algorithm, "kid": "key-0"}), part(claims(made)), signature))
        with pytest.raises(GatewayError, match="not accepted"):
            read(made, token)


def test_a_token_signed_with_the_public_key_as_a_secret_is_refused() -> None:
    """The algorithm confusion: HS256 with what everybody knows."""
    made = issuer()
    public = made.public("key-0")
    for secret in (
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        made.jwks,
    ):
        signed = part({"alg": "HS256", "kid": "key-0"}) + b"." + part(claims(made))
        mac = base64.urlsafe_b64encode(hmac.digest(secret, signed, hashlib.sha256)).rstrip(b"=")
        with pytest.raises(GatewayError, match="its algorithm is not one of"):
            read(made, signed + b"." + mac)


def test_a_key_serves_only_its_own_algorithm() -> None:
    made = issuer("ES256")
    made.rotate("RS256", "rsa")
    with pytest.raises(GatewayError, match="algorithm does not match its key"):
        read(made, made.token(kid="rsa", head={"kid": "key-0"}))
    token = jwt.encode(claims(made), made.private["rsa"][1], algorithm="PS256", headers={"kid": "rsa"})
    with pytest.raises(GatewayError, match="algorithm does not match its key"):
        read(made, token)


def test_keys_and_urls_within_a_token_are_not_used() -> None:
    made, evil = issuer(), issuer()
    head = {"jwk": json.loads(evil.jwks)["keys"][0], "jku": "http://127.0.0.1:1/jwks", "x5u": "http://127.0.0.1:1/x"}
    with pytest.raises(GatewayError, match="signature"):
        read(made, evil.token("mallory", head=head))


def test_an_algorithm_that_is_not_allowed_is_refused() -> None:
    made = issuer("ES256")
    with pytest.raises(GatewayError, match="its algorithm is not one of RS256"):
        read(made, made.token(), replace(RULES, algorithms=("RS256",)))


def test_the_key_of_a_token_must_be_known() -> None:
    made, other = issuer(), issuer()
    other.rotate(kid="new")
    with pytest.raises(UnknownKeyError):
        read(made, other.token())
    two = issuer()
    two.rotate()
    unnamed = jwt.encode(claims(two), two.private["key-0"][1], algorithm="RS256")
    with pytest.raises(UnknownKeyError):
        read(two, unnamed)
    two.drop("key-1")
    assert read(two, unnamed) == ("mallory", ())  # the only key needs no name


def test_a_jwks_gives_public_keys_only_and_survives_strange_rows() -> None:
    made = issuer()
    rows = json.loads(made.jwks)["keys"]
    strange: list[Any] = [
        7,
        {},
        {"kty": "oct", "k": "AAAA", "kid": "s"},
        {"kty": "RSA", "n": 1},
        rows[0] | {"use": "enc", "kid": "e"},
    ]
    assert list(parse_key_set(json.dumps({"keys": strange + rows}).encode())) == ["key-0"]
    for wrong in (b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}', b"[" * 10_000):
        with pytest.raises(KeySetError):
            parse_key_set(wrong)
