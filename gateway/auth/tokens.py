"""JSON Web Tokens (JWT, RFC 7519) from issuers. A token names its issuer, whose public keys (a JWKS, RFC 7517) verify
the token. `gateway/assembly/issuer_keys.py` fetches the keys.

This module accepts only signatures by private keys. With the algorithm `none`, anyone could forge a token. With HS256
to HS512, anyone who knows the public key could sign a token.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import jwt

from gateway.auth.authenticator import UnknownKeyError
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import frozen

Algorithm: TypeAlias = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # fmt: skip
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)

LONGEST_TOKEN = 16 * 2**10
"""Maximum size of a token, in bytes."""

MOST_KEYS = 100
"""Maximum number of issuer keys. Parsing a key takes tens of microseconds, during which the gateway handles no
requests."""

_OF_RSA = frozenset(each for each in ALGORITHMS if each[:2] in ("RS", "PS"))


@frozen
class Rules:
    """The claims that an issuer's tokens must contain, and the claims that select the principal and the permissions.

    - `principal`: the claim that names the principal; `prefix` is prepended to its value.
    - `permissions`: the claim that contains names of permission sets, as a list or as words in a string; empty if
      unused. Dots select claims inside objects: `realm_access.roles`.
    - `leeway`: the maximum clock difference, in seconds.
    """

    issuer: str
    audience: tuple[str, ...]
    algorithms: tuple[str, ...]
    leeway: float = 30.0
    principal: str = "sub"
    prefix: str = ""
    permissions: str = ""


@frozen
class Identity:
    """The claims of a verified token that the gateway uses: the principal's name, the names of permission sets, and the
    token's expiry time in seconds since 1970."""

    name: str
    claimed: tuple[str, ...]
    ends: float


class KeySetError(Exception):
    """The JWKS is invalid; the message gives the reason."""


@frozen
class PublicKey:
    """An issuer's public key, and its algorithms."""

    key: Any
    algorithms: frozenset[str]


KeySet: TypeAlias = Mapping[str, PublicKey]
"""Public keys by their `kid`. A key without a `kid` has the name ''."""


def parse_key_set(content: bytes) -> KeySet:
    """Return the public keys in a JWKS, except keys whose use is not signatures or whose type is unknown.

    Raises:
        KeySetError: the content is not a JWKS, contains more than MOST_KEYS keys, or contains no usable key.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        raise KeySetError("it is not JSON") from None
    rows = data.get("keys") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise KeySetError("it has no list `keys`")
    if len(rows) > MOST_KEYS:
        raise KeySetError(f"it has {len(rows)} keys; expected at most {MOST_KEYS}")
    found: dict[str, PublicKey] = {}
    for row in rows:
        if isinstance(row, dict) and row.get("kty") in ("RSA", "EC", "OKP") and row.get("use", "sig") == "sig":
            try:
                found[str(row.get("kid", ""))] = _public_key(row)
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                continue
    if not found:
        raise KeySetError("expected at least one usable public key")
    return found


def _public_key(row: Mapping[str, Any]) -> PublicKey:
    made = jwt.PyJWK({name: row[name] for name in row if name not in _PRIVATE})
    any_of_rsa = row["kty"] == "RSA" and "alg" not in row
    return PublicKey(made.key, _OF_RSA if any_of_rsa else frozenset({made.algorithm_name}))


_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})
"""The members of a private key. This module ignores them in a file that contains them by mistake."""


def is_token(credential: bytes) -> bool:
    """Return True if a credential has the format of a token: three parts separated by dots."""
    return credential.count(b".") == 2


def issuer_of(token: bytes) -> str:
    """Return the issuer that a token names. This function verifies nothing: the issuer's name only selects the keys and
    rules that verify the token.

    Raises:
        GatewayError: UNAUTHENTICATED if the token is too long or malformed, or names no issuer.
    """
    if len(token) > LONGEST_TOKEN:
        raise refused(f"it is longer than {LONGEST_TOKEN} bytes; request one with fewer claims")
    payload = token.split(b".")[1]
    try:
        claims = json.loads(urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        raise refused("it is malformed") from None
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    if not isinstance(issuer, str):
        raise refused("it has no claim 'iss'; get one from an issuer of this gateway")
    return issuer


def verify(token: bytes, keys: KeySet, rules: Rules) -> Identity:
    """Return the identity that a token proves.

    Raises:
        GatewayError: UNAUTHENTICATED if the token is malformed, expired, not yet valid, from another issuer or for
            another audience, or if its signature is wrong.
        UnknownKeyError: the token's key is not in `keys`.
    """
    if len(token) > LONGEST_TOKEN:
        raise refused(f"it is longer than {LONGEST_TOKEN} bytes; request one with fewer claims")
    try:
        head = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise refused("it is malformed") from None
    algorithm = head.get("alg")
    if algorithm not in rules.algorithms:
        raise refused(
            f"its algorithm is not one of {', '.join(rules.algorithms)}; get one that is signed with one of them"
        )
    key = _key(head.get("kid"), keys, rules.issuer)
    if algorithm not in key.algorithms:
        raise refused("its algorithm does not match its key; get a new one from the issuer")
    try:
        claims = jwt.decode(
            token, key.key, algorithms=[algorithm], audience=rules.audience, issuer=rules.issuer, leeway=rules.leeway,
            options={"require": ["exp", "iss", "aud"]},
        )  # fmt: skip
    except jwt.ExpiredSignatureError:
        raise refused("it has expired; get a new one") from None
    except jwt.InvalidAudienceError:
        raise refused("it is for another audience; get one for this gateway") from None
    except jwt.InvalidIssuerError:
        raise refused("it is of another issuer; get one from an issuer of this gateway") from None
    except jwt.ImmatureSignatureError:
        raise refused("it is not valid yet; wait, or compare the clocks of the issuer and the gateway") from None
    except jwt.MissingRequiredClaimError as error:
        raise refused(f"it has no claim {error.claim!r}; get one with this claim") from None
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
        raise refused("its signature or its claims are wrong; get a new one from the issuer") from None
    return _identity(claims, rules)


def _key(kid: object, keys: KeySet, issuer: str) -> PublicKey:
    if kid is None and len(keys) == 1:
        return next(iter(keys.values()))
    found = keys.get(kid) if isinstance(kid, str) else None
    if found is None:
        raise UnknownKeyError(issuer)
    return found


def _identity(claims: Mapping[str, Any], rules: Rules) -> Identity:
    name = _claim(claims, rules.principal)
    if not isinstance(name, str) or not name:
        raise refused(f"it has no claim {rules.principal!r} that names a principal; get one with this claim")
    listed = _claim(claims, rules.permissions) if rules.permissions else ()
    names: Iterable[object] = listed.split() if isinstance(listed, str) else listed if isinstance(listed, list) else ()
    claimed = tuple(each for each in names if isinstance(each, str))
    try:
        ends = float(claims["exp"]) + rules.leeway
    except OverflowError:
        raise refused("its claim 'exp' is not a time") from None
    return Identity(rules.prefix + name, claimed, ends)


def _claim(claims: Any, path: str) -> Any:
    # Look up the entire name first, because names such as `https://example.org/roles` contain dots.
    if isinstance(claims, dict) and path in claims:
        return claims[path]
    for step in path.split("."):
        claims = claims.get(step) if isinstance(claims, dict) else None
    return claims


def refused(text: str) -> GatewayError:
    """Return the error for a token; `text` describes the problem."""
    return refusal(Reason.UNAUTHENTICATED, f"the token is not accepted: {text}")
