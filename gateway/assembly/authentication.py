"""Authenticates clients of the parts that require credentials: listeners with `auth`, the status API, and the metrics
page. The gateway authenticates a client before it decodes the client's message.

In the background, the gateway reloads changed key files and fetches issuer keys. A configuration reload does not
interrupt the use of unchanged keys."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gateway.auth.authenticator import CHALLENGE, Authenticator, Credentials, UnknownKeyError, VerifiedToken
from gateway.auth.keys import KeyFile, KeyFileError, read_keys
from gateway.auth.permissions import Principals
from gateway.config.access import AdminAuthConfig, HealthAuthConfig, ListenerAuthConfig
from gateway.config.keys import Config
from gateway.config.watching import Look, Watched, look
from gateway.core import exchange
from gateway.core.errors import GatewayError, Reason, Status, refusal
from gateway.core.frozen import replace, set_field
from gateway.core.log_limit import LogLimit
from gateway.core.messages import NO_HEADERS, Headers, Message
from gateway.core.principal import Grant, Principal
from gateway.core.protocol import HttpBinding, Protocol, StreamBinding
from gateway.core.surviving import log_and_continue
from gateway.core.tasks import spawn
from gateway.core.transport import EventualReply, Exchanges, awaited

if TYPE_CHECKING:
    from gateway.assembly.issuer_keys import IssuerKeys

log = logging.getLogger(__name__)
_lines = LogLimit(log)


LOOKS = 2
"""The number of checks in one `reload.interval`. A change takes effect after two checks. Therefore, a revoked key stops
working within one interval.
"""
MOST_CHANGING = 3
"""The number of checks after which the gateway reads a file even if the file keeps changing. Otherwise, constant writes
could keep a revoked key valid."""


class WatchedKeys:
    """The API keys of one file.

    Configurations that contain the same file share one object; therefore, a reload does not interrupt checks. The
    gateway checks the file from the first use until the last use ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._watched = Watched(look([path]))
        self._changing = 0
        """The number of consecutive checks in which the file differed from the version that was last read."""
        self._uses: dict[object, Callable[[], None]] = {}
        """The users of the keys, and for each user, the function to call when the keys have changed."""
        self._interval = 1.0
        self._watching: asyncio.Task[None] | None = None
        self.keys: KeyFile | None = None
        try:
            self.keys = read_keys(path)
        except KeyFileError as error:  # the file was valid before the start, and has become invalid since
            log.error("cannot read the API keys in %s, so the gateway accepts no key: %s", path, error)

    def begin_use(self, user: object, interval: float, changed: Callable[[], None]) -> None:
        """From now on, check the file at the configured `interval`. Call `changed` after each change of the keys."""
        self._interval = interval
        self._uses[user] = changed
        if self._watching is None:
            self._watching = spawn(self._watch())

    def end_use(self, user: object) -> None:
        """End the use by `user`, if it has begun."""
        self._uses.pop(user, None)
        if not self._uses and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval / LOOKS)
            with log_and_continue("reading the file of API keys again"):
                if await self.read_if_changed():
                    self._changed()

    def _changed(self) -> None:
        for changed in list(self._uses.values()):
            changed()

    async def read_now(self) -> None:
        """Reload the file, because this process has changed it.

        Other processes detect the change at their next checks."""
        found = await asyncio.to_thread(look, [self.path])
        if await self._read(found):
            self._changed()

    async def read_if_changed(self) -> bool:
        """Reload the file if it has changed.

        If the file has errors, continue to use the previous keys. Return True if the keys have changed."""
        found = await asyncio.to_thread(look, [self.path])
        self._changing = self._changing + 1 if self._watched.differs(found) else 0
        if not self._watched.has_changed(found) and self._changing < MOST_CHANGING:
            return False
        return await self._read(found)

    async def _read(self, found: Look) -> bool:
        """Read the file, whose last known state is `found`. Return True if its keys are now in use."""
        self._changing = 0
        self._watched.loaded(found)
        try:
            self.keys = await asyncio.to_thread(read_keys, self.path)
        except KeyFileError as error:
            log.error("cannot read the API keys in %s, so the gateway keeps the previous ones: %s", self.path, error)
            return False
        log.info("keys of %s: %d", self.path, len(self.keys.entries))
        return True


class Access:
    """The permissions of one configuration. `previous` is the Access of the previous configuration."""

    def __init__(self, config: Config, clock: Callable[[], float], previous: "Access | None" = None) -> None:
        auth = config.auth
        self._interval = config.reload.interval
        self._ways = auth.ways if auth is not None else ()
        self.file = _file(config, previous)
        self.issuers = _issuers(config, clock, previous)
        """The keys of each issuer, by the issuer's name in tokens (`iss`)."""
        sets = {
            name: tuple(Grant(frozenset(each.operations), each.models, each.listeners) for each in grants)
            for name, grants in config.permissions.items()
        }
        principals = Principals(sets, {name: each.permissions for name, each in config.principals.items()})
        certificates = [(each.identity, each.principal) for each in auth.certificates] if auth is not None else []
        header = auth.keys.header if auth is not None and auth.keys is not None else "x-api-key"
        uses = {} if previous is None else previous.credentials.uses
        self.credentials: Credentials = Credentials(
            principals, _verifier(self.issuers), certificates, header, uses=uses
        )
        self._use_keys()

    def authenticator(self, config: ListenerAuthConfig | AdminAuthConfig | HealthAuthConfig) -> Authenticator:
        """Return the Authenticator for a listener, the status API or the health port."""
        ways = config.accept or self._ways
        anonymous = config.anonymous if isinstance(config, ListenerAuthConfig) else None
        return Authenticator(
            self.credentials, anonymous or "", keys="keys" in ways, tokens="jwt" in ways,
            certificates="certificates" in ways and not isinstance(config, AdminAuthConfig),
        )  # fmt: skip

    def begin(self) -> None:
        """Start keeping the keys up to date. Call this before `end` of the previous configuration: keys that both
        configurations use then stay up to date."""
        for issuer in self.issuers.values():
            issuer.begin_use(self, self.credentials.changed)
        if self.file is not None:
            self.file.begin_use(self, self._interval, self._use_keys)
            if self.file.keys is not self._keys:  # the keys might have changed since this object was made
                self._use_keys()

    def end(self) -> None:
        """Stop keeping the keys up to date. A call before `begin` has no effect."""
        for issuer in self.issuers.values():
            issuer.end_use(self)
        if self.file is not None:
            self.file.end_use(self)

    def _use_keys(self) -> None:
        keys = self._keys = None if self.file is None else self.file.keys
        self.credentials.use_keys(keys)
        if keys is not None:
            names = dict.fromkeys(each.principal for each in keys.entries if each.revoked is None)
            unknown = [name for name in names if not self.credentials.principals.knows(name)]
            if unknown:
                shown = ", ".join(map(repr, unknown[:10]))
                log.warning("keys of principals that have no permissions in `principals`: %s", shown)

    async def wait_for_keys(self, name: str) -> None:
        """Return when the keys of this issuer have been fetched.

        Raises:
            GatewayError: UNAUTHENTICATED if the last lookup of the keys was too recent for another lookup; UNAVAILABLE
                if the keys are unknown.
        """
        issuer = self.issuers[name]
        lookup = issuer.lookup()
        if lookup is not None:
            await asyncio.wait({lookup})
        if not issuer.keys:
            raise _keys_not_known()
        if lookup is None:
            raise _unknown_key()


def _keys_not_known() -> GatewayError:
    """Return the error for a token whose issuer's keys are still unknown."""
    text = "the keys of the tokens' issuer are not known yet; try again later"
    return refusal(Reason.NOT_READY, text, retry_after=1.0)


def _unknown_key() -> GatewayError:
    """Return the error for a token whose signing key does not belong to the issuer."""
    return refusal(
        Reason.UNAUTHENTICATED, "the token is not accepted, because its issuer does not have its key; get a new token"
    )


def _file(config: Config, previous: Access | None) -> WatchedKeys | None:
    if config.auth is None or config.auth.keys is None:
        return None
    path = Path(config.auth.keys.file)
    if previous is not None and previous.file is not None and previous.file.path == path:
        return previous.file
    return WatchedKeys(path)


def _issuers(config: Config, clock: Callable[[], float], previous: Access | None) -> "dict[str, IssuerKeys]":
    if config.auth is None or not config.auth.jwt:
        return {}
    from gateway.assembly.issuer_keys import IssuerKeys  # imported here because it needs PyJWT

    before = {each.config: each for each in previous.issuers.values()} if previous is not None else {}
    return {each.issuer: before.get(each) or IssuerKeys(each, clock) for each in config.auth.jwt}


def _verifier(issuers: "Mapping[str, IssuerKeys]") -> Callable[[bytes], VerifiedToken | None] | None:
    if not issuers:
        return None
    from gateway.auth import tokens  # imported here because it needs PyJWT

    rules = {
        name: tokens.Rules(
            name, of.audience, of.algorithms, of.leeway, of.principal, of.prefix, of.permissions or ""
        )
        for name, of in ((name, each.config) for name, each in issuers.items())
    }  # fmt: skip

    def verify(token: bytes) -> VerifiedToken | None:
        if not tokens.is_token(token):
            return None
        name = tokens.issuer_of(token)
        if name not in issuers:
            raise tokens.refused("it is of another issuer; get one from an issuer of this gateway")
        said = tokens.verify(token, issuers[name].keys, rules[name])
        return said.name, said.claimed, said.ends

    return verify


class ListenerAuthentication:
    """Authenticates the clients of one listener before the Exchange receives their messages."""

    def __init__(self, listener: str, access: Access, authenticator: Authenticator) -> None:
        self._listener = listener
        self._access = access
        self._authenticator = authenticator

    def exchanges(self, inner: Exchanges) -> Exchanges:
        """Wrap `inner` to pass on only messages from authenticated clients. For streams, `refused` makes this check for
        each message instead."""

        def answered(message: Message, protocol: Protocol) -> EventualReply:
            try:
                self._identify(message, protocol)
            except GatewayError as error:
                return refuse(error, protocol, message)
            except UnknownKeyError:
                return answered_later(message, protocol)
            return inner.exchange(message, protocol)

        async def answered_later(message: Message, protocol: Protocol) -> Message:
            reply = await self.refused(message, protocol)
            return reply or await awaited(inner.exchange(message, protocol))

        return replace(inner, exchange=answered, refuse=refuse, admit=self._admit)

    async def refused(self, message: Message, protocol: Protocol) -> Message | None:
        """Return the response to a message from an unauthenticated client, or None if the client is authenticated.

        A message with a token whose key is unknown waits until the issuer's keys have been fetched."""
        try:
            try:
                self._identify(message, protocol)
            except UnknownKeyError as unknown:
                await self._access.wait_for_keys(unknown.issuer)
                self._identify(message, protocol)
        except GatewayError as error:
            return refuse(error, protocol, message)
        except UnknownKeyError:
            return refuse(_unknown_key(), protocol, message)
        return None

    @property
    def key_header(self) -> bytes:
        """Return the name of the header that can contain a key, in addition to Authorization."""
        return self._access.credentials.header

    def principal(self, headers: Headers) -> Principal:
        """Return the principal of a client that sends these headers and no certificate.

        Raises:
            GatewayError: UNAUTHENTICATED if the credentials are missing or invalid.
            UnknownKeyError: the key that signed a token is still unknown.
        """
        return self._authenticator(headers, "")

    def _identify(self, message: Message, protocol: Protocol) -> None:
        binding, headers = protocol.binding, message.headers
        if isinstance(binding, StreamBinding):  # the credential is not in the headers of the message
            headers = NO_HEADERS if binding.credential is None else binding.credential(message)
        try:
            principal = self._authenticator(headers, message.identity)
        except GatewayError as error:
            self._log(error, message.peer)
            raise
        set_field(message, "principal", principal)

    def _admit(self, headers: Headers, identity: str, peer: str) -> None:
        try:
            self._authenticator(headers, identity)
        except GatewayError as error:
            self._log(error, peer)
            raise
        except UnknownKeyError as unknown:
            issuer = self._access.issuers[unknown.issuer]
            if issuer.lookup() is None and issuer.keys:
                raise _unknown_key() from None
            raise _keys_not_known() from None

    def _log(self, error: GatewayError, peer: str) -> None:
        name = self._listener
        _lines.write(name, logging.WARNING, "listener %r refuses client %s: %s", name, peer or "-", error.message)


def refuse(error: GatewayError, protocol: Protocol, message: Message) -> Message:
    """Return the response for a listener error. Over HTTP, a 401 response describes the expected credentials."""
    reply = exchange.refuse(error, protocol, message)
    if error.status is Status.UNAUTHENTICATED and isinstance(protocol.binding, HttpBinding):
        return replace(reply, headers=Headers((*reply.headers.raw, CHALLENGE)))
    return reply


Asked: TypeAlias = tuple[Authenticator, Callable[[str], Awaitable[None]]]
"""For one port: a function that authenticates its clients, and a function that waits for issuer keys."""


class Authentication:
    """Authenticates clients as one Config specifies. `previous` is the Authentication of the previous configuration."""

    def __init__(self, config: Config, clock: Callable[[], float], previous: "Authentication | None" = None) -> None:
        self.access: Access = Access(config, clock, None if previous is None else previous.access)
        """The permissions of the clients."""
        self.guards = {
            each.name: ListenerAuthentication(each.name, self.access, self.access.authenticator(each.auth))
            for each in config.listeners
            if each.auth is not None
        }
        """The authentication of each listener that requires credentials, by listener name."""
        self.of_admin = self._asked(None if config.admin is None else config.admin.auth)
        """Authenticates clients of the status API; None if the status API requires no credentials."""
        self.of_metrics = self._asked(None if config.health is None else config.health.auth)
        """Authenticates clients of the metrics page; None if the page requires no credentials."""

    def _asked(self, config: AdminAuthConfig | HealthAuthConfig | None) -> Asked | None:
        return None if config is None else (self.access.authenticator(config), self.access.wait_for_keys)
