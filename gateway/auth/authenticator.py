"""Authenticate a client by the key or token in its message, or by its certificate. Each listener with `auth` has an
Authenticator.

Clients send credentials in a separate header for keys, in `Authorization: Bearer`, or in `Authorization: Basic`. gRPC
metadata uses the same names. `Basic` is for clients that accept credentials only in a URL, such as UM-Bridge's Python
client (`http://user:KEY@host`). The password is the key or token; the gateway ignores the user name."""

import time
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TypeAlias

from gateway.auth.keys import KeyFile
from gateway.auth.permissions import Principals
from gateway.core.errors import Reason, refusal
from gateway.core.messages import Headers
from gateway.core.principal import Principal

AUTHORIZATION = b"authorization"

CHALLENGE = (b"WWW-Authenticate", b'Bearer realm="gateway", Basic realm="gateway"')
"""The header that a 401 response must contain (RFC 9110, section 15.5.2)."""


class UnknownKeyError(Exception):
    """A token is signed by an unknown key of its `issuer`, which might have published new keys."""

    def __init__(self, issuer: str) -> None:
        super().__init__(issuer)
        self.issuer = issuer


def _authorized(field: bytes) -> bytes:
    """Return the key or token from the value of an Authorization header, or empty bytes."""
    scheme, _, rest = field.partition(b" ")
    match scheme.lower():
        case b"bearer":
            return rest.strip()
        case b"basic":
            try:
                return b64decode(rest.strip(), validate=True).partition(b":")[2]
            except (Error, ValueError):
                return b""
    return b""


MOST_REMEMBERED = 4096
"""Maximum number of cached valid credentials. Invalid credentials are never cached, so they cannot fill the memory."""

_LONGEST_KEPT = 128
"""Maximum size of a credential that the cache stores unchanged, in bytes. For longer credentials, which are tokens, the
cache stores a digest."""

_NEVER = float("inf")


class KeyUse:
    """The use of an API key since the gateway started: the `number` of authentications, and the time of the `last`
    authentication in seconds since 1970."""

    __slots__ = ("last", "number")

    def __init__(self, last: float = 0.0, number: int = 0) -> None:
        self.last = last
        self.number = number


Found: TypeAlias = tuple[Principal, float, KeyUse | None]
"""The principal of a credential, the credential's expiry time in seconds since 1970, and the KeyUse of a key (None for
a token)."""


VerifiedToken: TypeAlias = tuple[str, tuple[str, ...], float]
"""The data of a token: the principal's name, the names of permission sets, and the expiry time in seconds since
1970."""

VerifyToken: TypeAlias = Callable[[bytes], VerifiedToken | None]
"""A function that verifies a token and returns its data, or returns None for a credential that does not have the format
of a token. Raises GatewayError for an invalid token, and UnknownKeyError if the token's key is unknown."""


class Credentials:
    """The API keys, tokens and certificates that authenticate the clients of one configuration.

    - `principals`: Returns the principal with a given name.
    - `verify`: Verifies tokens; None if the configuration has no issuer.
    - `certificates`: Principal names by the glob of their certificate identities. The first match applies. The identity
      replaces `*` in the principal name.
    - `header`: The name of the header for keys.
    - `clock`: Returns the time in seconds since 1970.
    - `uses`: The KeyUse of each used key, by id. A new configuration keeps the previous configuration's dict.
    """

    def __init__(
        self,
        principals: Principals,
        verify: VerifyToken | None = None,
        certificates: Sequence[tuple[str, str]] = (),
        header: str = "x-api-key",
        clock: Callable[[], float] = time.time,
        uses: dict[str, KeyUse] | None = None,
    ) -> None:
        self.uses = {} if uses is None else uses
        self.principals = principals
        self.verify = verify
        self.header = header.encode()
        self.clock = clock
        self._certificates = tuple(certificates)
        self._keys: KeyFile | None = None
        self.on_change: list[Callable[[], None]] = []
        """Functions to call when cached credentials might no longer be valid."""

    def use_keys(self, keys: KeyFile | None) -> None:
        """Accept only these keys from now on."""
        self._keys = keys
        self.changed()

    def changed(self) -> None:
        """Call the functions in `on_change`, so every credential is checked again."""
        for each in self.on_change:
            each()

    def of_key(self, key: bytes) -> Found:
        """Return the principal of this key.

        Raises:
            GatewayError: UNAUTHENTICATED.
        """
        entry = None if self._keys is None else self._keys.find(key)
        if entry is None:
            raise refusal(Reason.UNAUTHENTICATED, "unknown API key; ask the operator of this gateway for a valid one")
        why = entry.why_invalid(datetime.fromtimestamp(self.clock(), UTC))
        if why:
            raise refusal(Reason.UNAUTHENTICATED, why)
        ends = _NEVER if entry.expires is None else entry.expires.timestamp()
        return self.principals.find(entry.principal), ends, self.uses.setdefault(entry.id, KeyUse())

    def add_uses(self, id: str, last: float, number: int) -> None:
        """Add the uses of a key counted by another process. `last` is in seconds since 1970."""
        use = self.uses.setdefault(id, KeyUse())
        use.last, use.number = max(use.last, last), use.number + number

    def of_certificate(self, identity: str) -> Principal | None:
        """Return the principal for the identity in a verified certificate; None if no glob matches."""
        for glob, name in self._certificates:
            if fnmatchcase(identity, glob):
                return self.principals.find(name.replace("*", identity))
        return None


class Authenticator:
    """The authentication of one listener's clients. Safe to call from several threads.

    `keys`, `tokens` and `certificates` are True if the listener accepts this kind of credential. `anonymous` is the
    principal for clients without credentials; it is empty if credentials are required."""

    def __init__(
        self, credentials: Credentials, anonymous: str = "", *, keys: bool = True, tokens: bool = True,
        certificates: bool = True,
    ) -> None:  # fmt: skip
        self._credentials = credentials
        self._header = credentials.header
        self._clock = credentials.clock
        self._anonymous = credentials.principals.find(anonymous) if anonymous else None
        self._keys = keys
        self._tokens = tokens and credentials.verify is not None
        self._certificates = certificates
        self._by_header: dict[bytes, Found] = {}
        self._by_authorization: dict[bytes, Found] = {}
        """The principal and the expiry time for each valid Authorization header."""
        credentials.on_change.append(self._forget)

    def __len__(self) -> int:
        """Return the number of cached credentials."""
        return len(self._by_header) + len(self._by_authorization)

    def __call__(self, headers: Headers, identity: str) -> Principal:
        """Return the client's principal. `headers` contains the client's headers or metadata; `identity` comes from its
        verified certificate, and is empty without one. The header for keys takes precedence over Authorization. A wrong
        key or token is rejected even if the listener accepts clients without credentials.

        Raises:
            GatewayError: UNAUTHENTICATED.
            UnknownKeyError: a token is signed by an unknown key.
        """
        first = headers.first
        known, field = self._by_header, first.get(self._header)
        if field is None:
            known, field = self._by_authorization, first.get(AUTHORIZATION)
            if field is None:
                return self._without(identity)
        found, now = known.get(field if len(field) <= _LONGEST_KEPT else sha256(field).digest()), self._clock()
        if found is None or now >= found[1]:
            if not self._keys and not self._tokens:
                return self._without(identity)
            found = self._checked(field if known is self._by_header else _authorized(field))
            if len(known) >= MOST_REMEMBERED:
                known.clear()
            known[field if len(field) <= _LONGEST_KEPT else sha256(field).digest()] = found
        if (use := found[2]) is not None:
            use.last = now
            use.number += 1
        return found[0]

    def _checked(self, credential: bytes) -> Found:
        if not credential:
            text = "expected Authorization: Bearer KEY, or Basic with the key as password"
            raise refusal(Reason.UNAUTHENTICATED, text)
        verify = self._credentials.verify
        if self._tokens and verify is not None and (said := verify(credential)) is not None:
            name, claimed, ends = said
            return self._credentials.principals.find(name, claimed), ends, None
        if not self._keys:
            raise refusal(Reason.UNAUTHENTICATED, "expected a token: three parts with dots between them")
        return self._credentials.of_key(credential)

    def _without(self, identity: str) -> Principal:
        """Return the principal of a client that sent no key or token."""
        if identity and self._certificates:
            principal = self._credentials.of_certificate(identity)
            if principal is not None:
                return principal
        if self._anonymous is None:
            raise refusal(Reason.UNAUTHENTICATED, f"the request has no credentials; expected {self._expected()}")
        return self._anonymous

    def _expected(self) -> str:
        header = self._header.decode()
        wanted = [f"Authorization: Bearer KEY or {header}: KEY"] if self._keys else []
        wanted += ["Authorization: Bearer TOKEN"] if self._tokens and not self._keys else []
        wanted += ["a client certificate that this gateway knows"] if self._certificates else []
        return ", or ".join(wanted)

    def _forget(self) -> None:
        self._by_header.clear()
        self._by_authorization.clear()
