"""Leases of servers that register themselves."""

import asyncio

import pytest

from gateway.servers.discovery import register
from gateway.servers.discovery.register import Leases, Registrations, TooManyLeasesError
from gateway.servers.discovery.source import Found
from gateway.transports.http.address import parse_address
from tests.clock import Clock


def registered(leases: Leases) -> list[str]:
    return sorted(each.address for each in leases.found)


def test_a_lease_ends_unless_it_is_renewed() -> None:
    clock = Clock(100.0)
    leases = Leases(60, parse_address, clock)
    one, two = leases.take("a:1", 10), leases.take("b:1", 20)
    assert leases.next_end == 110
    clock.now = 109
    assert leases.renew(one.id, 10).ends_at == 119
    clock.now = 119
    leases.expire()
    assert (registered(leases), leases.next_end) == (["b:1"], 120)
    with pytest.raises(KeyError):
        leases.renew(one.id)
    leases.end(two.id)
    leases.end(two.id)
    assert registered(leases) == []
    assert leases.next_end is None


def test_the_same_place_has_one_lease_however_it_is_written() -> None:
    clock = Clock(100.0)
    leases = Leases(60, parse_address, clock)
    first = leases.take("http://Lab:80", 10)
    clock.now += 5
    again = leases.take("lab:80", 10)
    assert (again.id, again.ends_at) == (first.id, 115)
    assert registered(leases) == ["http://Lab:80"]
    leases.end(first.id)
    assert leases.take("lab:80").id != first.id


def test_no_lease_is_longer_than_allowed() -> None:
    leases = Leases(60, parse_address, Clock(100.0))
    assert [leases.take("a:1", seconds).seconds for seconds in (None, 5, 3600)] == [60, 5, 60]


def test_an_invalid_address_gets_none() -> None:
    leases = Leases(60, parse_address, Clock(100.0))
    with pytest.raises(ValueError, match="bad address 'nowhere': it has no port"):
        leases.take("nowhere")
    assert registered(leases) == []


def test_their_number_is_bounded_and_ended_ones_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "MOST_LEASES", 2)
    clock = Clock(100.0)
    leases = Leases(60, parse_address, clock)
    leases.take("a:1", 10)
    leases.take("b:1")
    with pytest.raises(TooManyLeasesError):
        leases.take("c:1")
    leases.take("b:1")
    clock.now += 10
    leases.take("c:1")
    assert registered(leases) == ["b:1", "c:1"]


async def test_the_end_of_a_lease_is_reported_without_a_call() -> None:
    loop = asyncio.get_running_loop()
    reports: asyncio.Queue[frozenset[Found]] = asyncio.Queue()
    registrations = Registrations("secret", Leases(60, parse_address, loop.time), loop.time)
    registrations.on_change(reports.put_nowait)
    registrations.take("a:1", 0.02)
    registrations.take("b:1", 30)
    found: list[frozenset[Found]] = []
    while not found or Found("a:1") in found[-1]:
        found.append(await reports.get())
    assert found[-1] == {Found("b:1")}
    registrations.close()


def test_only_the_right_token_is_allowed() -> None:
    registrations = Registrations("sécret", Leases(60, parse_address, Clock(100.0)), Clock(100.0))
    allowed = [registrations.allows(token) for token in ("sécret", "sécre", "", "sécrets", "x")]
    assert allowed == [True, False, False, False, False]


async def test_leases_pass_to_the_next_configuration_unless_the_token_has_changed() -> None:
    clock = Clock(100.0)
    before = Registrations("secret", Leases(60, parse_address, clock), clock)
    lease = before.take("lab:1", 30)
    reports: list[frozenset[Found]] = []
    after, other = (Registrations(token, Leases(60, parse_address, clock), clock) for token in ("secret", "other"))
    for each in (after, other):
        each.on_change(reports.append)
        each.inherit(before)
    assert reports == [{Found("lab:1")}]
    assert after.renew(lease.id, 5).address == "lab:1"
    assert after.take("http://lab:1", 5).id == lease.id
    assert lease.id not in other
    before.close()
    after.close()
