"""Add and revoke keys in a key file, for `gateway keys` and the status API.

Each change replaces the file atomically, with a file that only its owner can read. Processes that change the file wait
for each other.
"""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep

from gateway.auth.keys import MAX_FILE, KeyEntry, KeyFileError, new_key, read_keys, write_keys

PATIENCE = 10.0
"""Maximum time to wait for another process's change, in seconds."""
_PAUSE = 0.02
"""Seconds between two attempts to lock the folder."""


class UnknownKeyIdError(LookupError):
    """The file contains no key with this `id`."""

    def __init__(self, file: Path, id: str) -> None:
        super().__init__(f"no key in {file} has the id {id!r}; `gateway keys list --file {file}` lists the ids")
        self.id = id


def add_key(file: Path, principal: str, expires: datetime | None, note: str) -> tuple[str, KeyEntry]:
    """Add a new random key to `file`, and return the key and its entry. If the file does not exist, create it.

    Raises:
        KeyFileError: the file contains errors or would become too large, or another process does not finish its change.
        OSError: the file cannot be written.
    """
    key, entry = new_key(principal, expires, note)
    _change(file, lambda entries: [*entries, entry])
    return key, entry


def revoke_key(file: Path, id: str) -> KeyEntry:
    """Revoke the key with this id, and return its entry. If the key was already revoked, keep the recorded time of
    revocation.

    Raises:
        UnknownKeyIdError: the file contains no such key.
        KeyFileError, OSError: like `add_key`.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    found: list[KeyEntry] = []

    def revoked(entries: Sequence[KeyEntry]) -> list[KeyEntry]:
        changed = [
            each.model_copy(update={"revoked": now}) if each.id == id and each.revoked is None else each
            for each in entries
        ]
        found.extend(each for each in changed if each.id == id)
        if not found:
            raise UnknownKeyIdError(file, id)
        return changed

    _change(file, revoked)
    return found[0]


def _change(file: Path, change: Callable[[Sequence[KeyEntry]], list[KeyEntry]]) -> None:
    file = file.resolve()  # do not replace a symbolic link
    with _locked(file.parent):
        is_new = not file.exists() or not file.stat().st_size
        content = write_keys(change(() if is_new else read_keys(file).entries)).encode()
        if len(content) > MAX_FILE:
            raise KeyFileError(f"it would be larger than {MAX_FILE} bytes; remove old keys from it")
        descriptor, made = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # mode 0600
        try:
            with open(descriptor, "wb") as target:
                target.write(content)
                target.flush()
                os.fsync(descriptor)
            os.replace(made, file)
        except BaseException:
            os.unlink(made)
            raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    until = monotonic() + PATIENCE
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if monotonic() >= until:
                    text = f"another process has locked its folder for more than {PATIENCE:g} s"
                    raise KeyFileError(f"{text}; try again when that process has ended") from None
                sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)
