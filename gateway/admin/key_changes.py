"""`POST /keys` and `POST /keys/revoke` of the status API: create and revoke API keys in the gateway's key file.

Only a port with `admin.auth` allows these changes, because otherwise any program on the machine could create a key for
itself. Only the response to the creation contains the new key. The file and the log contain only its id.
"""

import asyncio
import logging
import typing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from gateway.admin.console.access import ListedKey, listed_key
from gateway.admin.state import GatewayState
from gateway.auth.key_changes import UnknownKeyIdError, add_key, revoke_key
from gateway.auth.keys import KeyEntry, KeyFileError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from gateway.assembly.authentication import WatchedKeys

log = logging.getLogger(__name__)

LONGEST_KEY_NAME = 256
LONGEST_NOTE = 200


class KeyToCreate(BaseModel):
    """The key to create."""

    model_config = ConfigDict(extra="forbid")

    principal: Annotated[str, Field(min_length=1, max_length=LONGEST_KEY_NAME)]
    """The principal that the key authenticates. The principal has no permissions without an entry in `principals`."""
    expires: datetime | None = None
    """The time when the key expires, in UTC if the value has no time zone. Null if the key does not expire."""
    note: Annotated[str, Field(max_length=LONGEST_NOTE)] = ""
    """The purpose of the key."""


class CreatedKey(BaseModel):
    """A new key."""

    key: str
    """The key itself. The gateway stores only its digest, so no other response contains it."""
    entry: ListedKey


class KeyToRevoke(BaseModel):
    """The key to revoke."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(min_length=1, max_length=LONGEST_KEY_NAME)]
    """The key's id, as in `/api/keys`."""


def why_fixed(state: GatewayState) -> str:
    """Return the reason why the status API cannot change the gateway's keys; empty if it can."""
    if state.assembly.authentication.access.file is None:
        return "the configuration names no key file; set `auth: {keys: {file: PATH}}`"
    if state.config.admin is None or state.config.admin.auth is None:
        return "the admin port requires no key, so every program on this machine could create keys; set `admin.auth`"
    return ""


def add_key_changes(app: "FastAPI", state: GatewayState) -> None:
    """Add `POST /keys` and `POST /keys/revoke` to the admin port's application."""
    from fastapi import HTTPException, Response

    one_at_a_time = asyncio.Lock()
    refused: _Described = {409: {"description": "The keys cannot be changed; the text has the reason."}}

    def file() -> "WatchedKeys":
        why = why_fixed(state)
        if why:
            raise HTTPException(409, why)
        assert state.assembly.authentication.access.file is not None
        return state.assembly.authentication.access.file

    async def changed(change: "typing.Callable[[WatchedKeys], _Result]") -> "_Result":
        found = file()
        try:
            async with one_at_a_time:
                made = await asyncio.to_thread(change, found)
        except UnknownKeyIdError as error:
            raise HTTPException(404, f"no key has the id {error.id!r}; `/api/keys` lists the ids") from None
        except (KeyFileError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            log.warning("the key file %s is not changed: %s", found.path, why)
            raise HTTPException(409, f"the key file is not changed: {why}") from None
        await found.read_now()
        return made

    def shown(entry: KeyEntry) -> ListedKey:
        return listed_key(entry, state.assembly.authentication.access.credentials.uses.get(entry.id), datetime.now(UTC))

    @app.post("/keys", summary="Create an API key", responses=refused)
    async def create_key(asked: KeyToCreate, response: Response) -> CreatedKey:
        """Create an API key for a principal, in the gateway's key file. Only this response contains the key. The port
        must have `admin.auth`."""
        if not (asked.principal.isprintable() and asked.note.isprintable()):
            raise HTTPException(422, "`principal` and `note` must consist of printable characters")
        ends = asked.expires
        if ends is not None:
            ends = ends.replace(tzinfo=UTC) if ends.tzinfo is None else ends
            if ends <= datetime.now(UTC):
                raise HTTPException(422, "`expires` is in the past; expected a time in the future")
        key, entry = await changed(lambda keys: add_key(keys.path, asked.principal, ends, asked.note))
        log.info("key %s of %r is created", entry.id, entry.principal)
        response.headers["cache-control"] = "no-store"
        return CreatedKey(key=key, entry=shown(entry))

    @app.post("/keys/revoke", summary="Revoke an API key", responses=refused | _UNKNOWN)
    async def revoke(asked: KeyToRevoke) -> ListedKey:
        """Revoke an API key. This process rejects the key immediately. Worker processes and other gateways that use the
        same file reject it when they next check the file. The port must have `admin.auth`."""
        entry = await changed(lambda keys: revoke_key(keys.path, asked.id))
        log.info("key %s of %r is revoked", entry.id, entry.principal)
        return shown(entry)


_Result = typing.TypeVar("_Result")
_Described: typing.TypeAlias = dict[int | str, dict[str, typing.Any]]
_UNKNOWN: _Described = {404: {"description": "No key has this id."}}
