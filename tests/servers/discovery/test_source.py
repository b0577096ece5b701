"""The loop that asks a source again and again, and names by DNS."""

import asyncio
import logging
import socket
from typing import Any

import pytest

from gateway.servers.discovery.dns import DnsName, at_ip
from gateway.servers.discovery.source import Found, LookupFailedError, Watcher

A, B = Found("a:1"), Found("b:1")


class Script:
    """A Source that finds what a test says, one step per look."""

    description = "script"
    pause = 7.0

    def __init__(self, *steps: frozenset[Found] | Exception | None) -> None:
        self.steps = list(steps)

    async def look(self) -> frozenset[Found]:
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        if step is None:
            await asyncio.Event().wait()
        assert isinstance(step, frozenset)
        return step


async def test_a_failed_look_keeps_what_was_found_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.servers.discovery")
    reported: list[frozenset[Found]] = []
    fails = LookupFailedError("no such name")
    watcher = Watcher("lab", Script(frozenset({A}), fails, fails, RuntimeError("bug"), frozenset({B})), reported.append)
    for _ in range(5):
        await watcher.look()
    assert reported == [{A}, {B}]
    assert [record.getMessage() for record in caplog.records] == [
        "backend 'lab': script lookup failed: no such name; the gateway keeps the last addresses",
        "backend 'lab': script is available again",
    ]


async def test_a_look_that_hangs_is_a_failed_one(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[frozenset[Found]] = []
    await Watcher("lab", Script(None), reported.append, seconds=0.01).look()
    assert reported == []
    assert "script lookup failed: no answer within 0.01 s" in caplog.text


async def test_a_watcher_begins_with_what_another_one_of_the_same_source_has_found() -> None:
    reported: list[frozenset[Found]] = []
    before = Watcher("lab", Script(frozenset({A})), lambda found: None)
    await before.look()
    fails = LookupFailedError("no such name")
    for name in ("lab", "other"):
        after = Watcher(name, Script(fails), reported.append)
        after.inherit([Watcher("lab", Script(), reported.append), before])
        await after.look()
    assert reported == [{A}]


async def test_the_source_says_when_the_next_look_is_due() -> None:
    reported: list[frozenset[Found]] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Watcher("lab", Script(frozenset({A}), frozenset({B})), reported.append).run(sleep)
    assert slept == [7.0] * 3
    assert reported == [{A}, {B}]


@pytest.mark.parametrize(
    ("address", "host", "ip", "expected"),
    [
        ("models:8000", "models", "10.0.0.1", "10.0.0.1:8000"),
        ("HTTP://Http:80/http", "http", "10.0.0.1", "HTTP://10.0.0.1:80/http"),
        ("dns:///models:1", "models", "fd00::1", "dns:///[fd00::1]:1"),
        ("tcp://t:1", "t", "10.0.0.1", "tcp://10.0.0.1:1"),
    ],
)
def test_an_address_is_shown_with_the_ip_in_place_of_its_host(address: str, host: str, ip: str, expected: str) -> None:
    assert at_ip(address, host, ip) == expected


async def test_every_ip_address_of_a_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        assert (host, port, options) == ("models", 8000, {"type": socket.SOCK_STREAM})
        v4 = [(socket.AF_INET, 1, 6, "", (ip, port)) for ip in ("10.0.0.2", "10.0.0.1", "10.0.0.2")]
        return [*v4, (socket.AF_INET6, 1, 6, "", ("fd00::1", port, 0, 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    found = await DnsName("http://models:8000/x", "models", 8000, 5).look()
    assert sorted((each.ip, str(each)) for each in found) == [
        ("10.0.0.1", "http://10.0.0.1:8000/x"),
        ("10.0.0.2", "http://10.0.0.2:8000/x"),
        ("fd00::1", "http://[fd00::1]:8000/x"),
    ]
    assert {each.address for each in found} == {"http://models:8000/x"}


async def test_a_name_without_an_address_is_a_failed_look() -> None:
    with pytest.raises(LookupFailedError, match=r".+"):
        await DnsName("models.invalid:1", "models.invalid", 1, 5).look()  # RFC 6761: never resolves


async def test_a_watch_goes_on_where_what_was_found_cannot_be_taken_over(caplog: pytest.LogCaptureFixture) -> None:
    looks = Script(frozenset({A}), frozenset({B}), frozenset({A, B}))
    reported: list[frozenset[Found]] = []

    def report(found: frozenset[Found]) -> None:
        if found == {A}:
            raise ValueError("the fault")
        reported.append(found)

    async def sleep(seconds: float) -> None:
        if not looks.steps:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Watcher("lab", looks, report).run(sleep)
    assert reported == [{B}, {A, B}]
    assert "unexpected error in taking over what script has for backend 'lab'" in caplog.text
