"""Endpoints that several backends or sources share, and when they are closed."""

import logging

import pytest

from gateway.assembly.endpoints import SharedEndpoints
from gateway.assembly.environment import Host
from gateway.assembly.error_redaction import ErrorRedaction
from gateway.config.keys import Config
from gateway.core.errors import invalid_output
from gateway.core.messages import Message
from gateway.core.protocol import Limits, Protocol
from gateway.routing.endpoint import Endpoint
from gateway.servers.discovery.source import Found
from gateway.transports.http.address import parse_address
from tests.assembled import assembled
from tests.assembly.connector import FakeConnector
from tests.limits import settle
from tests.running_gateway import config_of

LISTENER = 'listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, grps-rest]}]\n'
TWO = """
backends:
  lab: {protocol: umbridge, endpoints: ["fixed:1"], discovery: {files: "/absent/a", srv: lab.test}}
  other: {protocol: umbridge, endpoints: ["shared:1"]}
"""


class Assembled:
    """An Assembly, and what each source of the backend `lab` reports."""

    def __init__(self, text: str) -> None:
        self.wires: list[FakeConnector] = []
        self.refuses = False
        """Whether no further Connector can be made."""
        self.shared = SharedEndpoints()
        self.config: Config = config_of(LISTENER + text)
        self.assembly = assembled(
            self.config,
            self._connect,
            parse_address=lambda address, protocol: parse_address(address),
            host=Host(self.shared),
        )
        self.lab = self.assembly.backends["lab"]
        self.report = [watcher._report for watcher in self.assembly.discovery._watchers]

    def _connect(self, address: str, protocol: Protocol, limits: Limits, ip: str) -> FakeConnector:
        if self.refuses:
            raise OSError("too many open files")
        self.wires.append(FakeConnector(address, limits, ip))
        return self.wires[-1]

    def find(self, *addresses: str, source: int = 0) -> None:
        self.report[source](frozenset(map(Found, addresses)))

    @property
    def addresses(self) -> list[str]:
        return [endpoint.address for endpoint in self.lab.endpoints]

    def wire(self, address: str) -> FakeConnector:
        return next(wire for wire in self.wires if wire.address == address)

    def endpoint(self, address: str) -> Endpoint:
        return next(each for each in self.lab.endpoints if each.address == address)


async def test_an_endpoint_stays_while_any_source_has_it_and_what_is_configured_always_does() -> None:
    here = Assembled(TWO)
    here.find("b:1", "a:1", "fixed:1")
    here.find("a:1", source=1)
    assert here.addresses == ["fixed:1", "a:1", "b:1"]
    here.find("c:1")
    assert here.addresses == ["fixed:1", "a:1", "c:1"]
    here.find(source=1)
    here.find()
    await settle()
    assert here.addresses == ["fixed:1"]
    assert [wire.address for wire in here.wires if not wire.is_closed] == ["fixed:1", "shared:1"]
    assert len(here.assembly.endpoints) == 2


async def test_a_backend_gets_at_most_a_thousand_addresses_of_all_sources(caplog: pytest.LogCaptureFixture) -> None:
    """Those that it has stay, and that there are more is told once."""
    here = Assembled(TWO)
    here.find(*(f"b:{port}" for port in range(1, 801)))
    here.find(*(f"a:{port}" for port in range(1, 801)), source=1)
    assert len(here.addresses) == 1 + 1000
    assert sum(each.startswith("b:") for each in here.addresses) == 800
    here.find(*(f"a:{port}" for port in range(1, 901)), source=1)
    here.find(*(f"b:{port}" for port in range(1, 51)))
    assert len(here.addresses) == 1 + 50 + 900
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert told == ["backend 'lab': discovery has found more than 1000 addresses; those beyond are left out"]


async def test_an_endpoint_of_another_backend_is_not_closed() -> None:
    here = Assembled(TWO)
    here.find("http://shared:1")
    assert here.lab.endpoints[1] is here.assembly.backends["other"].endpoints[0]
    here.find()
    await settle()
    assert here.addresses == ["fixed:1"]
    assert not here.wire("shared:1").is_closed


async def test_an_endpoint_is_closed_after_its_last_call() -> None:
    here = Assembled(TWO)
    here.find("a:1")
    endpoint = here.endpoint("a:1")
    endpoint.take()
    here.find()
    await settle()
    assert not here.wire("a:1").is_closed
    endpoint.give_back()
    await settle()
    assert here.wire("a:1").is_closed


async def test_an_endpoint_that_comes_back_while_it_is_drained_stays_the_same() -> None:
    here = Assembled(TWO)
    here.find("a:1")
    endpoint = here.endpoint("a:1")
    endpoint.take()
    here.find()
    await settle()
    here.find("a:1")
    assert here.endpoint("a:1") is endpoint
    endpoint.give_back()
    await settle()
    assert not here.wire("a:1").is_closed
    here.find()
    await settle()
    assert here.wire("a:1").is_closed


async def test_a_change_is_one_log_line_however_many_endpoints_it_has(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.assembly")
    here = Assembled(TWO)
    here.find(*(f"h{number:02}:1" for number in range(12)))
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("backend 'lab': added h00:1, h01:1, ")
    assert line.endswith("h09:1 and 2 more; it has 13 now")


async def test_names_are_looked_up_and_other_addresses_never_change() -> None:
    here = Assembled(
        """
backends: {lab: {protocol: umbridge, endpoints: ["10.0.0.1:1", "models:1", "[fd00::1]:1"], discovery: {dns: all}}}
"""
    )
    assert here.addresses == ["10.0.0.1:1", "[fd00::1]:1"]
    [report] = here.report
    report(frozenset({Found("models:1", "10.0.0.2", "10.0.0.2:1"), Found("models:1", "10.0.0.3", "10.0.0.3:1")}))
    assert here.addresses == ["10.0.0.1:1", "[fd00::1]:1", "10.0.0.2:1", "10.0.0.3:1"]
    assert [(wire.address, wire.ip) for wire in here.wires[2:]] == [("models:1", "10.0.0.2"), ("models:1", "10.0.0.3")]


async def test_found_endpoints_take_part_in_passthrough_routes() -> None:
    here = Assembled(
        """
backends: {lab: {protocol: grps-rest, discovery: {files: /absent/a}}}
routes: [{match: {protocol: grps-rest, path: /own}, backend: lab, passthrough: true}]
"""
    )
    here.find("a:1")
    assert here.endpoint("a:1").passthrough is not None
    here.find()
    await settle()
    assert [(wire.address, wire.is_closed) for wire in here.wires] == [("a:1", True), ("a:1", True)]


async def test_rows_of_a_batch_in_flight_follow_the_number_of_endpoints() -> None:
    here = Assembled(TWO)
    side = here.assembly.backend_sides["lab"]
    assert side.rows_at_once() == 2
    here.find("a:1", "b:1")
    assert side.rows_at_once() == 4


async def test_brief_errors_do_not_name_found_addresses() -> None:
    here = Assembled(TWO)
    brief = ErrorRedaction(here.config, here.shared.addresses)
    text = "backend 'lab' at http://10.0.0.1:4242: bad reply of 10.0.0.1:4242"

    def shortened() -> str:
        return brief._shortened(invalid_output(text), "http", None, Message()).message

    assert "10.0.0.1" in shortened()
    here.find("http://10.0.0.1:4242")
    assert shortened() == "a model server: bad reply of its address"


async def test_the_next_configuration_begins_with_what_was_found() -> None:
    before, after = Assembled(TWO), Assembled(TWO)
    before.assembly.discovery._watchers[0]._reported(frozenset({Found("a:1")}))
    after.assembly.discovery.inherit(before.assembly.discovery)
    assert after.addresses == ["fixed:1", "a:1"]


async def test_an_endpoint_that_cannot_be_made_is_tried_again_with_the_next_report() -> None:
    here = Assembled(TWO)
    here.refuses = True
    with pytest.raises(OSError, match="too many open files"):
        here.find("a:1")
    assert here.addresses == ["fixed:1"]
    here.refuses = False
    here.find("a:1")
    assert here.addresses == ["fixed:1", "a:1"]


async def test_leases_go_on_where_servers_registered_before() -> None:
    registers = TWO.replace("srv: lab.test", "register: {token: secret}")
    admin = 'admin: {bind: "127.0.0.1:0"}\n'
    before, same, other = (Assembled(admin + text) for text in (registers, registers, TWO))
    before.assembly.discovery.registrations["lab"].take("10.0.0.1:1", 60.0)
    for after, addresses in ((same, ["fixed:1", "10.0.0.1:1"]), (other, ["fixed:1"])):
        after.assembly.discovery.inherit_leases(before.assembly.discovery)
        assert after.addresses == addresses
