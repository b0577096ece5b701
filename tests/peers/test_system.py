"""`make peers` says which system programs are missing, and does not fail for them."""

import pytest

from tests.peers import system


def test_what_there_is_is_not_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "missing", dict)
    assert system.install() == "system programs: up to date"


def test_who_may_not_install_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "missing", lambda: {"redis-server": "redis-server", "nginx": "nginx-light"})
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    told = system.install()
    assert "redis-server, nginx missing" in told
    assert "apt-get install redis-server nginx-light" in told


def test_a_program_that_no_machine_has_is_missing() -> None:
    assert system.missing({"no-such-program": "none", "sh": "dash"}) == {"no-such-program": "none"}
