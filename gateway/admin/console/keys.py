"""The API keys by id, with their last use: `/api/keys`. The responses contain no keys and no digests."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Literal

from pydantic import BaseModel

from gateway.auth.authenticator import KeyUse
from gateway.auth.keys import KeyEntry, KeyFile

MOST_KEYS = 500
"""Maximum number of listed keys."""


class ListedKey(BaseModel):
    """An API key."""

    id: str
    """The name of the key in lists, such as the output of `gateway keys`. The name does not help an attacker to guess
    the key."""
    principal: str
    state: Literal["valid", "expired", "revoked"]
    created: datetime | None
    expires: datetime | None
    note: str
    uses: int
    """The number of authentications with the key since the gateway started: one per request or, on some connections,
    one per message."""
    last_used: datetime | None
    """The time of the last authentication with the key, in UTC; null if the key has been unused since the gateway
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


def keys_of(keys: KeyFile | None, uses: Mapping[str, KeyUse], principal: str) -> list[ListedKey]:
    """Return the first MOST_KEYS keys of a principal. `uses` is described at `listed_keys`."""
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
