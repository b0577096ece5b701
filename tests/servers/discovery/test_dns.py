"""What a name without addresses means."""

import asyncio
import socket
from contextlib import nullcontext

import pytest

from gateway.servers.discovery.dns import DnsName
from gateway.servers.discovery.source import LookupFailedError


@pytest.mark.parametrize(("number", "is_empty"), [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False)])
async def test_only_a_name_that_does_not_exist_may_mean_that_there_is_no_server(
    number: int, is_empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def getaddrinfo(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "no")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
    name = ("http://pods:1", "pods", 1, 5.0)
    with pytest.raises(LookupFailedError):
        await DnsName(*name).look()
    with nullcontext() if is_empty else pytest.raises(LookupFailedError):
        assert await DnsName(*name, may_be_empty=True).look() == frozenset()
