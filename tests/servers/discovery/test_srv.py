"""SRV records, from a small DNS server of the test's own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from dns.asyncresolver import Resolver

from gateway.servers.discovery.dns import SrvRecords
from gateway.servers.discovery.source import LookupFailedError
from gateway.transports.http.address import parse_address

NAME = "_http._tcp.models.default.svc"


class DnsServer(asyncio.DatagramProtocol):
    """Answers every question with `records`; None: that there is no such name."""

    def __init__(self, *records: str, ttl: int = 30) -> None:
        self.records: tuple[str, ...] | None = records
        self.ttl = ttl
        self.asked: list[str] = []

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str | object, int]) -> None:
        question = dns.message.from_wire(data)
        reply = dns.message.make_response(question)
        reply.flags |= dns.flags.RA
        name = question.question[0].name
        self.asked.append(name.to_text())
        if self.records is None:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        elif self.records:
            reply.answer.append(dns.rrset.from_text(name, self.ttl, "IN", "SRV", *self.records))
        self._transport.sendto(reply.to_wire(), address)


@asynccontextmanager
async def records_of(server: DnsServer) -> AsyncIterator[SrvRecords]:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: server, local_addr=("127.0.0.1", 0)
    )
    resolver = Resolver(configure=False)
    resolver.nameservers, resolver.port = ["127.0.0.1"], transport.get_extra_info("sockname")[1]
    try:
        yield SrvRecords(NAME, 5, parse_address, resolver)
    finally:
        transport.close()


async def addresses(records: SrvRecords) -> list[str]:
    return sorted(each.address for each in await records.look())


async def test_targets_with_their_ports_are_endpoints() -> None:
    server = DnsServer("0 50 8000 10-0-0-1.models.svc.", "0 50 8001 10-0-0-2.models.svc.")
    async with records_of(server) as records:
        assert await addresses(records) == ["10-0-0-1.models.svc:8000", "10-0-0-2.models.svc:8001"]
    assert server.asked == [f"{NAME}."]


async def test_only_the_first_priority_is_used() -> None:
    async with records_of(DnsServer("10 0 1 backup.", "5 0 1 first.", "5 9 2 first.")) as records:
        assert await addresses(records) == ["first:1", "first:2"]


@pytest.mark.parametrize(("ttl", "pause"), [(30, 30), (0, 5)])
async def test_records_hold_for_their_ttl_but_at_least_for_the_interval(ttl: int, pause: float) -> None:
    async with records_of(DnsServer("0 0 1 a.", ttl=ttl)) as records:
        await records.look()
        assert records.pause == pause


async def test_a_service_that_is_declared_absent_has_no_endpoints() -> None:
    async with records_of(DnsServer("0 0 0 .")) as records:
        assert await addresses(records) == []


async def test_a_target_that_is_no_address_is_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with records_of(DnsServer("0 0 0 zero.", "0 0 1 a.")) as records:
        assert await addresses(records) == ["a:1"]
    assert f"SRV record of {NAME} is skipped: bad address 'zero:0'" in caplog.text


async def test_a_name_that_is_gone_is_a_failed_look_and_asked_for_again_soon() -> None:
    server = DnsServer("0 0 1 a.", ttl=3600)
    async with records_of(server) as records:
        await records.look()
        server.records = None
        with pytest.raises(LookupFailedError, match="does not exist"):
            await records.look()
        assert records.pause == 5
        server.records = ()
        with pytest.raises(LookupFailedError, match="does not contain an answer"):
            await records.look()
