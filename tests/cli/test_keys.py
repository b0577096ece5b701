"""`gateway keys`: a key is printed once, the file has its digest, and a running gateway follows the file."""

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.auth.keys import read_keys
from tests.cli.commands import gateway


def added(file: Path, *more: str) -> str:
    found = gateway("keys", "add", "--file", str(file), *more)
    assert found.exit_code == 0, found.output
    return found.stdout


def test_a_key_is_printed_as_the_last_word_and_only_its_digest_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    key = added(file, "--principal", "alice", "--note", "ci").split()[-1]
    entry = read_keys(file).find(key.encode())
    assert entry is not None
    assert (entry.principal, entry.note) == ("alice", "ci")
    assert key not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    listed = gateway("keys", "list", "--file", str(file)).stdout
    assert key not in listed
    assert entry.sha256 not in listed
    assert f"{entry.id}  alice" in listed


def test_a_revoked_key_stays_in_the_list_and_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    id = added(file, "--principal", "alice").split()[1]
    other = added(file, "--principal", "bob").split()[1]
    assert gateway("keys", "revoke", "--file", str(file), id).exit_code == 0
    states = {each.id: each.revoked is not None for each in read_keys(file).entries}
    assert states == {id: True, other: False}
    for line in gateway("keys", "list", "--file", str(file)).stdout.splitlines()[1:]:
        state = line.partition("  ")[2].split("  ")
        assert any(each.startswith("revoked ") for each in state) == (id in line), line
    unknown = gateway("keys", "revoke", "--file", str(file), "0")
    assert unknown.exit_code == 1
    assert "no key" in unknown.output


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    for command in (("list",), ("revoke", "0")):
        found = gateway("keys", *command, "--file", str(tmp_path / "none"))
        assert (found.exit_code, found.stderr) == (2, f"{tmp_path / 'none'}: no such file\n")
    found = gateway("keys", "add", "--file", str(tmp_path / "none" / "k"), "--principal", "alice")
    assert (found.exit_code, "cannot be written" in found.stderr) == (2, True)


@pytest.mark.parametrize(("when", "text"), [("tomorrow", "expected a time"), ("2001-01-01", "in the past")])
def test_a_wrong_end_is_refused_and_makes_no_key(when: str, text: str, tmp_path: Path) -> None:
    found = gateway("keys", "add", "--file", str(tmp_path / "k"), "--principal", "a", "--expires", when)
    assert found.exit_code == 2
    assert text in found.output
    assert not (tmp_path / "k").exists()


def test_an_end_may_be_a_time_or_a_duration(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    for when in ("90d", "12h", "2999-01-31", "2999-01-31T12:00Z"):
        assert "until" in added(file, "--principal", "alice", "--expires", when)
    assert all(each.expires is not None for each in read_keys(file).entries)


def test_a_file_with_errors_is_told_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text("keys: {}\n")
    found = gateway("keys", "add", "--file", str(file), "--principal", "alice")
    assert found.exit_code == 1
    assert str(file) in found.output
    assert file.read_text() == "keys: {}\n"


def test_two_commands_at_once_lose_no_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    command = [sys.executable, "-m", "gateway", "keys", "add", "--file", str(file), "--principal", "alice"]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: subprocess.run(command, check=True, capture_output=True), range(4)))
    assert len(read_keys(file).entries) == 4


def test_the_file_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "keys.yaml"
    link.symlink_to(tmp_path / "real" / "keys.yaml")
    added(link, "--principal", "alice")
    assert link.is_symlink()
    assert len(read_keys(link).entries) == 1
