"""API keys, and the file with their digests.

A key is `gw_` and 32 random bytes in base64url. The file contains only the key's SHA-256 digest. Unlike passwords, keys
do not need a slow hash: nobody can try 2^256 keys, however fast each attempt is. Because keys are looked up by digest,
the duration of a lookup reveals nothing about other keys.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gateway.core.frozen import frozen

PREFIX = "gw_"
_RANDOM_BYTES = 32

MAX_FILE = 16 * 2**20
"""Maximum size of a key file, in bytes (about 60,000 keys)."""

_ID = 12
"""Number of characters of a key's digest that serve as the key's id in lists."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class KeyFileError(Exception):
    """The key file is unreadable or invalid. The message gives the reason, and contains no digest."""


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise ValueError("expected a SHA-256 digest of 64 hexadecimal digits in lower case")
    return text


def _with_zone(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


Time = Annotated[datetime, AfterValidator(_with_zone)]


class KeyEntry(BaseModel):
    """One key in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: Annotated[str, AfterValidator(_digest)]
    principal: Annotated[str, Field(min_length=1)]
    created: Time | None = None
    expires: Time | None = None
    revoked: Time | None = None
    note: str = ""

    @property
    def id(self) -> str:
        """The name of the key in lists. The id does not help an attacker guess the key."""
        return self.sha256[:_ID]

    def why_invalid(self, now: datetime) -> str:
        """Return the reason why the key is invalid at this time; empty if the key is valid."""
        if self.revoked is not None:
            return "the key is revoked"
        return "the key has expired" if self.expires is not None and self.expires <= now else ""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: tuple[KeyEntry, ...]


@frozen
class KeyFile:
    """The keys in a file."""

    entries: tuple[KeyEntry, ...]
    by_digest: Mapping[bytes, KeyEntry]

    def find(self, key: bytes) -> KeyEntry | None:
        """Return the entry of a key, or None if the file does not contain the key."""
        return self.by_digest.get(sha256(key).digest())


def key_file(entries: Iterable[KeyEntry]) -> KeyFile:
    """Return a KeyFile with these entries. Raises KeyFileError if a key occurs twice."""
    listed = tuple(entries)
    by_digest = {bytes.fromhex(entry.sha256): entry for entry in listed}
    if len(by_digest) != len(listed):
        raise KeyFileError("a key is listed twice; remove one entry")
    return KeyFile(listed, by_digest)


def new_key(principal: str, expires: datetime | None = None, note: str = "") -> tuple[str, KeyEntry]:
    """Return a new random key, and its entry."""
    key = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    now = datetime.now(UTC).replace(microsecond=0)
    digest = sha256(key.encode()).hexdigest()
    return key, KeyEntry(sha256=digest, principal=principal, created=now, expires=expires, note=note)


def read_keys(path: Path) -> KeyFile:
    """Return the keys in a YAML or JSON file.

    Raises:
        KeyFileError: the file is unreadable, or is not a key file.
    """
    try:
        if path.exists() and not path.is_file():
            raise KeyFileError("not a regular file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise KeyFileError(f"cannot read the file: {error.strerror}; check the path and its permissions") from None
    if len(content) > MAX_FILE:
        raise KeyFileError(f"larger than {MAX_FILE} bytes")
    return parse_keys(content)


def parse_keys(content: bytes) -> KeyFile:
    """Return the keys in a YAML or JSON text: `keys:` with a list of `{sha256, principal, created, expires, revoked,
    note}`. The first two fields are required.

    Raises:
        KeyFileError: the content has a different format. The message gives the position, but contains no values.
    """
    try:
        # BaseLoader leaves every scalar as text, so a principal `no` or an id `12e4` does not change.
        data: Any = yaml.load(content, yaml.CBaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise KeyFileError(f"it is not YAML{f': line {mark.line + 1}' if mark else ''}") from None
    if data is None:
        raise KeyFileError("it is empty; a file without keys says `keys: []`")
    if not isinstance(data, dict):
        raise KeyFileError("expected a map with a list under `keys`")
    try:
        return key_file(_File.model_validate(data).keys)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]).lstrip(".")
        raise KeyFileError(f"{place or 'the file'}: {first['msg']}") from None


def write_keys(entries: Iterable[KeyEntry]) -> str:
    """Return the content of a file with these entries."""
    rows = [entry.model_dump(mode="json", exclude_none=True, exclude_defaults=True) for entry in entries]
    return yaml.dump({"keys": rows}, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
