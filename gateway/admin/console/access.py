"""`/api/keys` and `/api/principal`: the API keys by id, with their last use, and the permissions of a principal. The
responses contain no keys and no digests."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Literal

from pydantic import BaseModel

from gateway.assembly.authentication import Access
from gateway.auth.authenticator import KeyUse
from gateway.auth.keys import KeyEntry, KeyFile
from gateway.auth.permissions import BUILT_IN
from gateway.config.keys import Config

MOST_KEYS = 500
"""Maximum number of listed keys."""


class ListedKey(BaseModel):
    """An API key."""

    id: str
    """The name of the key in lists, such as the output of `gateway keys`. The id does not help an attacker guess the
    key."""
    principal: str
    state: Literal["valid", "expired", "revoked"]
    created: datetime | None
    expires: datetime | None
    note: str
    uses: int
    """The number of authentications with the key since the gateway started: one per request or, on some connections,
    one per message."""
    last_used: datetime | None
    """The time of the last authentication with the key, in UTC; null if the key has not been used since the gateway
    started."""


class ListedKeys(BaseModel):
    """The API keys that match the search, sorted by principal."""

    file: str | None
    """The key file; null if the gateway has no keys."""
    keys: list[ListedKey]
    """At most 500 of the matching keys."""
    matching: int
    """Total number of matching keys."""
    why_fixed: str
    """The reason why `POST /keys` cannot create or revoke keys; empty if it can."""


def _keys_of(keys: KeyFile | None, uses: Mapping[str, KeyUse], principal: str) -> list[ListedKey]:
    """Return the first MOST_KEYS keys of a principal. For `uses`, see `listed_keys`."""
    now = datetime.now(UTC)
    found = (each for each in (() if keys is None else keys.entries) if each.principal == principal)
    return [listed_key(each, uses.get(each.id), now) for each in islice(found, MOST_KEYS)]


def listed_keys(
    file: str | None, keys: KeyFile | None, uses: Mapping[str, KeyUse], text: str, why_fixed: str = ""
) -> ListedKeys:
    """Return the keys whose id, principal or note contains `text`, ignoring case. `uses` contains the KeyUse of each
    used key, by id."""
    wanted, now = text.casefold(), datetime.now(UTC)
    found = [
        each
        for each in (() if keys is None else keys.entries)
        if any(wanted in one.casefold() for one in (each.id, each.principal, each.note))
    ]
    found.sort(key=lambda each: (each.principal, each.id))
    return ListedKeys(
        file=file,
        keys=[listed_key(each, uses.get(each.id), now) for each in found[:MOST_KEYS]],
        matching=len(found),
        why_fixed=why_fixed,
    )


def listed_key(key: KeyEntry, use: KeyUse | None, now: datetime) -> ListedKey:
    """Return a key in the format of the list, with its state at the time `now`."""
    if key.revoked is not None:
        state: Literal["valid", "expired", "revoked"] = "revoked"
    else:
        state = "expired" if key.why_invalid(now) else "valid"
    return ListedKey(
        id=key.id, principal=key.principal, state=state, created=key.created, expires=key.expires, note=key.note,
        uses=0 if use is None else use.number,
        last_used=datetime.fromtimestamp(use.last, UTC) if use is not None and use.number else None,
    )  # fmt: skip


class DescribedGrant(BaseModel):
    """A grant: the permitted operations on models. `models` and `listeners` are globs."""

    operations: list[str]
    models: list[str]
    listeners: list[str]


class PermissionSet(BaseModel):
    """A set of permissions."""

    name: str
    is_built_in: bool
    grants: list[DescribedGrant]


class PrincipalLimit(BaseModel):
    """A `rate_limit` policy that counts requests by principal."""

    place: str
    """A route's name, or `backends.NAME`."""
    requests: int
    """The number of requests permitted per `seconds`. `burst` is the maximum number of requests in a burst."""
    seconds: float
    burst: int
    left: int | None
    """The number of requests that the principal can send immediately. `left` and `full_in` are null if Redis stores the
    counts."""
    full_in: float | None
    """Seconds until `left` equals `burst` again."""


class TokenIssuer(BaseModel):
    """An issuer whose tokens can authenticate clients as the principal."""

    issuer: str
    claim: str | None
    """The token claim that lists additional permission sets, or null."""


class DescribedPrincipal(BaseModel):
    """A principal, as described by the configuration in use."""

    name: str
    entry: str | None
    """The entry in `principals` for this principal: its name, or the first glob that matches it. Null if no entry
    matches, in which case the principal has no permissions."""
    sets: list[PermissionSet]
    """The permission sets in the entry."""
    limits: list[PrincipalLimit]
    keys: list[ListedKey]
    """Up to 500 of the principal's API keys."""
    tokens: list[TokenIssuer]
    certificates: list[str]
    """Globs of client certificate identities that map to the principal."""
    anonymous_on: list[str]
    """The listeners that assign this principal to clients without credentials."""
    open_listeners: list[str]
    """The listeners without authentication, on which every client has full access."""


def described_principal(
    name: str, config: Config, access: Access, states: Sequence[tuple[str, str, Mapping[str, Any]]]
) -> DescribedPrincipal:
    """Return the principal with this name. For each policy with data about the principal, `states` contains the
    policy's place, its name, and the data."""
    principals, keys = access.credentials.principals, None if access.file is None else access.file.keys
    entry, auth = principals.entry(name), config.auth
    return DescribedPrincipal(
        name=name,
        entry=None if entry is None else entry.pattern,
        sets=[] if entry is None else [_set(each, access) for each in dict.fromkeys(entry.sets)],
        limits=[PrincipalLimit(place=place, **state) for place, policy, state in states if policy == "rate_limit"],
        keys=_keys_of(keys, access.credentials.uses, name),
        tokens=[
            TokenIssuer(issuer=each.issuer, claim=each.permissions)
            for each in (() if auth is None else auth.jwt)
            if name.startswith(each.prefix)
        ],
        certificates=[
            each.identity
            for each in (() if auth is None else auth.certificates)
            if fnmatchcase(name, _literal(each.principal))
        ],
        anonymous_on=[
            each.name for each in config.listeners if each.auth is not None and each.auth.anonymous == name
        ],
        open_listeners=[each.name for each in config.listeners if each.auth is None],
    )  # fmt: skip


def _set(name: str, access: Access) -> PermissionSet:
    grants = access.credentials.principals.grants(name)
    return PermissionSet(
        name=name,
        is_built_in=name in BUILT_IN,
        grants=[
            DescribedGrant(
                operations=sorted(each.permissions), models=list(each.models), listeners=list(each.listeners)
            )
            for each in grants
        ],
    )


def _literal(pattern: str) -> str:
    """Return a glob for the principal names that `pattern` can produce. In `pattern`, only `*` is special: it stands
    for the identity."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
