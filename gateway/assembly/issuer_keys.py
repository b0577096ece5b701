"""Fetches a token issuer's public keys over HTTP or from a file, stores them, and refreshes them."""

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from gateway.assembly import registry
from gateway.assembly.certificates import port_alpn
from gateway.auth.tokens import KeySet, KeySetError, parse_key_set
from gateway.config.access import TokensConfig, is_url
from gateway.core.certificates import CertificateError, TlsFiles
from gateway.core.errors import GatewayError
from gateway.core.log_limit import LogLimit
from gateway.core.messages import Headers, Message
from gateway.core.protocol import Limits
from gateway.core.surviving import log_and_continue
from gateway.core.tasks import spawn
from gateway.core.transport import Connector
from gateway.transports.certificates import client_context
from gateway.transports.tls import ClientTls

log = logging.getLogger(__name__)

FETCH_SECONDS = 5.0
"""The time limit for a key lookup, and for a request that waits for the lookup, in seconds."""

LEAST_SECONDS = 10.0
"""Minimum time between two lookups, in seconds. It limits the number of lookups when clients send many tokens with
unknown keys."""

MAX_BYTES = 2**20
"""Maximum size of a JWKS or a discovery document, in bytes."""

_HEADERS = Headers(((b"accept", b"application/json"),))


class IssuerKeys:
    """The public keys of one issuer.

    Configurations with the same settings share one object; therefore, a reload does not interrupt a lookup.

    The first use starts the first lookup. Until this lookup ends, no keys are known. The keys are refreshed until the
    last use ends."""

    def __init__(self, config: TokensConfig, clock: Callable[[], float]) -> None:
        self.config = config
        self.keys: KeySet = {}
        self._clock = clock
        self._looked_at = -LEAST_SECONDS
        self._lookup: asyncio.Task[None] | None = None
        self._uses: dict[object, Callable[[], None]] = {}
        """The users of the keys, and for each user, the function to call when the keys have changed."""
        self._refreshing: asyncio.Task[None] | None = None
        self._lines = LogLimit(log)

    def begin_use(self, user: object, changed: Callable[[], None]) -> None:
        """From now on, refresh the keys. Call `changed` after each change of the keys."""
        self._uses[user] = changed
        if self._refreshing is None:
            self._refreshing = spawn(self._refresh())

    def end_use(self, user: object) -> None:
        """End the use by `user`, if it has begun."""
        self._uses.pop(user, None)
        if self._uses:
            return
        for task in (self._refreshing, self._lookup):
            if task is not None:
                task.cancel()
        self._refreshing = self._lookup = None

    async def _refresh(self) -> None:
        while True:
            await asyncio.wait({self._begin_lookup()})
            await asyncio.sleep(self.config.refresh if self.keys else min(self.config.refresh, LEAST_SECONDS))

    def lookup(self) -> "asyncio.Task[None] | None":
        """Return the running lookup, or start a lookup. Return None if the last lookup was too recent."""
        if self._lookup is None and self._clock() - self._looked_at < LEAST_SECONDS:
            return None
        return self._begin_lookup()

    def _begin_lookup(self) -> "asyncio.Task[None]":
        if self._lookup is None:
            self._looked_at = self._clock()
            self._lookup = spawn(self._look_up())
        return self._lookup

    async def _look_up(self) -> None:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                keys = parse_key_set(await self._content())
        except TimeoutError:
            self._failed(f"no response within {FETCH_SECONDS:g} s")
        except CertificateError as error:
            self._failed(f"cannot use its {error.key}: {error}")
        except (KeySetError, ValueError) as error:
            self._failed(str(error))
        except GatewayError as error:
            self._failed(error.message)
        except OSError as error:
            self._failed(error.strerror or "cannot be read")
        else:
            if {name: _shown(key.key) for name, key in keys.items()} != {
                name: _shown(key.key) for name, key in self.keys.items()
            }:
                log.info("issuer %s: %d keys", self.config.issuer, len(keys))
                self.keys = keys
                for changed in list(self._uses.values()):
                    with log_and_continue(f"using new keys from issuer {self.config.issuer}"):
                        changed()
        finally:
            if self._lookup is asyncio.current_task():
                self._lookup = None

    def _failed(self, text: str) -> None:
        kept = "the gateway keeps the previous keys" if self.keys else "the gateway refuses its tokens"
        issuer = self.config.issuer
        self._lines.write("failed", logging.WARNING, "issuer %s: cannot fetch its keys; %s: %s", issuer, kept, text)

    async def _content(self) -> bytes:
        place = self.config.jwks
        if place is None:
            place = await self._discovered()
        elif not is_url(place):
            return await asyncio.to_thread(_read, Path(place))
        return await self._fetch(place)

    async def _discovered(self) -> str:
        """Return the URL of the JWKS (OpenID Connect Discovery 1.0, section 4)."""
        issuer = self.config.issuer
        content = await self._fetch(issuer.rstrip("/") + "/.well-known/openid-configuration")
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            raise KeySetError("its openid-configuration is not JSON; check `issuer`, or set `jwks`") from None
        document = document if isinstance(document, dict) else {}
        # section 4.3: the issuer MUST be the one that was queried
        if document.get("issuer") != issuer:
            raise KeySetError("its openid-configuration has another issuer; write that one in the configuration")
        place = document.get("jwks_uri")
        if not isinstance(place, str) or not is_url(place):
            raise KeySetError("its openid-configuration has no jwks_uri; set `jwks`")
        if issuer.startswith("https://") and not place.startswith("https://"):
            raise KeySetError("its jwks_uri is not https; set `jwks` to an https URL")
        return place

    async def _fetch(self, url: str) -> bytes:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        tls = None if self.config.ca is None or parts.scheme != "https" else await self._tls(self.config.ca)
        connector: Connector = registry.transport("http").Connector(
            origin, connection_per_call=True, limits=Limits(message=MAX_BYTES), tls=tls
        )
        try:
            reply = await connector.exchange(Message("GET", parts.path or "/", _HEADERS, query=parts.query))
        finally:
            await connector.close()
        if reply.status != 200:
            raise KeySetError(f"{parts.path} was answered with status {reply.status}")
        return bytes(reply.body)

    async def _tls(self, path: str) -> ClientTls:
        alpn = port_alpn()
        context = await asyncio.to_thread(client_context, TlsFiles(authorities=path), alpn=alpn)
        return ClientTls(lambda: context)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)[:MAX_BYTES]


def _shown(key: object) -> object:
    numbers = getattr(key, "public_numbers", None)
    return numbers() if numbers is not None else key
