"""Changes of a key file that other processes change, and of one that is full."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from gateway.auth import key_changes
from gateway.auth.key_changes import UnknownKeyIdError, add_key, revoke_key
from gateway.auth.keys import KeyFileError, read_keys


def test_the_change_of_another_process_is_waited_for_and_then_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_changes, "PATIENCE", 0.0)
    other = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(KeyFileError, match="another process has locked its folder"):
        add_key(tmp_path / "keys", "alice", None, "")
    os.close(other)
    assert add_key(tmp_path / "keys", "alice", None, "")[1] == read_keys(tmp_path / "keys").entries[0]


def test_a_change_goes_on_when_the_other_process_has_ended_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(other, fcntl.LOCK_EX)
    monkeypatch.setattr(key_changes, "sleep", lambda seconds: os.close(other))
    assert add_key(tmp_path / "keys", "alice", None, "")[1] == read_keys(tmp_path / "keys").entries[0]


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key(tmp_path / "keys", "alice", None, "")

    def replace(made: str, file: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="Read-only file system"):
        add_key(tmp_path / "keys", "bob", None, "")
    assert [each.name for each in tmp_path.iterdir()] == ["keys"]


def test_a_file_that_would_be_too_large_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key(tmp_path / "keys", "alice", None, "")
    monkeypatch.setattr(key_changes, "MAX_FILE", 200)
    with pytest.raises(KeyFileError, match="remove old keys"):
        add_key(tmp_path / "keys", "bob", None, "")
    assert [each.principal for each in read_keys(tmp_path / "keys").entries] == ["alice"]
    assert [each.name for each in tmp_path.iterdir()] == ["keys"]


def test_a_revoked_key_keeps_the_time_of_its_first_revocation(tmp_path: Path) -> None:
    _, entry = add_key(tmp_path / "keys", "alice", None, "")
    first = revoke_key(tmp_path / "keys", entry.id)
    assert first.revoked is not None
    assert revoke_key(tmp_path / "keys", entry.id) == first
    with pytest.raises(UnknownKeyIdError):
        revoke_key(tmp_path / "keys", "none")
