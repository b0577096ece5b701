"""Finds out who a client is by what came with its message: a key, a token, or its certificate."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TypeAlias

from gateway.auth.credentials import AUTHORIZATION, authorized
from gateway.auth.keys import KeyFile
from gateway.auth.permissions import Principals
from gateway.core.errors import Reason, refusal
from gateway.core.principal import Principal
from gateway.core.types import Headers

MOST_REMEMBERED = 4096
"""Credentials that are remembered because they were found valid. Those that were not are never remembered, so clients
cannot fill memory with them."""

_LONGEST_KEPT = 128
"""Bytes of a credential that is remembered as it is. Of a longer one, a token, a digest is kept."""

_NEVER = float("inf")

VerifiedToken: TypeAlias = tuple[str, tuple[str, ...], float]
"""Of a token: the principal's name, the names of permission sets, and when it ends, in seconds since 1970."""

VerifyToken: TypeAlias = Callable[[bytes], VerifiedToken | None]
"""What a token says; None for what has not the form of a token. Raises GatewayError for one that is not accepted, and
`tokens.UnknownKeyError`."""


class Credentials:
    """What is accepted by all listeners: the keys, tokens and certificates of one configuration.

    - `principals`: makes principals of names.
    - `verify`: verifies tokens; None if there is no issuer.
    - `certificates`: globs of identities in certificates, each with the name of a principal; the first that matches
      counts. In the name `*` stands for the identity.
    """

    def __init__(
        self,
        principals: Principals,
        verify: VerifyToken | None = None,
        certificates: Sequence[tuple[str, str]] = (),
        header: str = "x-api-key",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.principals = principals
        self.header = header.encode()
        self._verify = verify
        self._certificates = tuple(certificates)
        self._clock = clock
        self._keys: KeyFile | None = None
        self._known: dict[tuple[bool, bytes], tuple[Principal, float]] = {}
        """Who sent a credential that was found valid, and until when it is, by the header's kind and value."""

    def __len__(self) -> int:
        return len(self._known)

    def use_keys(self, keys: KeyFile | None) -> None:
        """Accept these keys from now on, and no others."""
        self._keys = keys
        self.forget()

    def forget(self) -> None:
        """Check every credential anew: keys of an issuer have changed."""
        self._known = {}

    def of_headers(self, headers: Headers, *, keys: bool, tokens: bool) -> Principal | None:
        """The principal of the credential in `headers`; None if there is none. The key's own header counts before
        Authorization. Safe to call from several threads.

        Raises:
            GatewayError: UNAUTHENTICATED, there is one and it is not valid.
            tokens.UnknownKeyError: it is a token signed by a key that is not known yet.
        """
        first = headers.first
        field = first.get(self.header)
        is_bare = field is not None
        if field is None:
            field = first.get(AUTHORIZATION)
            if field is None:
                return None
        known = self._known.get((is_bare, field if len(field) <= _LONGEST_KEPT else sha256(field).digest()))
        if known is not None and keys and tokens and self._clock() < known[1]:
            return known[0]
        credential = field if is_bare else authorized(field)
        if not credential:
            text = "expected Authorization: Bearer KEY, or Basic with the key as password"
            raise refusal(Reason.UNAUTHENTICATED, text)
        principal, until = self._found(credential, keys=keys, tokens=tokens)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[is_bare, field if len(field) <= _LONGEST_KEPT else sha256(field).digest()] = principal, until
        return principal

    def _found(self, credential: bytes, *, keys: bool, tokens: bool) -> tuple[Principal, float]:
        if tokens and self._verify is not None:
            said = self._verify(credential)
            if said is not None:
                name, claimed, ends = said
                return self.principals.find(name, claimed), ends
        entry = self._keys.find(credential) if keys and self._keys is not None else None
        if entry is None:
            raise refusal(Reason.UNAUTHENTICATED, "the key is not known here")
        now = self._clock()
        why = entry.why_invalid(datetime.fromtimestamp(now, UTC))
        if why:
            raise refusal(Reason.UNAUTHENTICATED, why)
        return self.principals.find(entry.principal), _NEVER if entry.expires is None else entry.expires.timestamp()

    def of_certificate(self, identity: str) -> Principal | None:
        """The principal of the identity in a verified certificate; None if no glob matches it."""
        for glob, name in self._certificates:
            if fnmatchcase(identity, glob):
                return self.principals.find(name.replace("*", identity))
        return None


class Authenticator:
    """What one listener asks its clients for.

    `keys`, `tokens`, `certificates`: which credentials it accepts. `anonymous`: the principal of clients without any;
    None if they are refused.
    """

    def __init__(
        self, credentials: Credentials, anonymous: str = "", *, keys: bool = True, tokens: bool = True,
        certificates: bool = True,
    ) -> None:  # fmt: skip
        self._credentials = credentials
        self._anonymous = credentials.principals.find(anonymous) if anonymous else None
        self._keys = keys
        self._tokens = tokens
        self._certificates = certificates

    def __call__(self, headers: Headers, identity: str) -> Principal:
        """Who the client is, by its headers or metadata, and the identity in its verified certificate (empty without
        one). A wrong key or token is refused also where clients without any are accepted.

        Raises:
            GatewayError: UNAUTHENTICATED.
            tokens.UnknownKeyError: a token is signed by a key that is not known yet.
        """
        credentials = self._credentials
        if headers.raw and (self._keys or self._tokens):
            principal = credentials.of_headers(headers, keys=self._keys, tokens=self._tokens)
            if principal is not None:
                return principal
        if identity and self._certificates:
            principal = credentials.of_certificate(identity)
            if principal is not None:
                return principal
        if self._anonymous is not None:
            return self._anonymous
        raise refusal(Reason.UNAUTHENTICATED, self._expected(identity))

    def _expected(self, identity: str) -> str:
        header = self._credentials.header.decode()
        wanted = [f"Authorization: Bearer KEY, or {header}: KEY"] if self._keys or self._tokens else []
        wanted += ["a client certificate that is known here"] if self._certificates else []
        return f"the request has no credentials; expected {', or '.join(wanted)}"
