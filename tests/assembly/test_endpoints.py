"""Endpoints that are shared by the Assemblies before and after a reload."""

import asyncio

from gateway.assembly.assembly import Assembly
from gateway.assembly.endpoints import SharedEndpoints
from gateway.assembly.environment import Host
from gateway.core.protocol import Limits, Protocol
from gateway.core.tasks import spawn
from tests.assembled import assembled
from tests.assembly.connector import FakeConnector
from tests.limits import settle
from tests.running_gateway import config_of

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends: {lab: {protocol: v2-rest, endpoints: ENDPOINTS, limits: {message: LIMIT}, max_in_flight: 1}}
"""


class Reloads:
    """Assemblies one after the other, with the Connectors that they made, by address."""

    def __init__(self, text: str = CONFIG) -> None:
        self._text = text
        self.shared = SharedEndpoints()
        self.links: dict[str, list[FakeConnector]] = {}
        self.current: Assembly | None = None

    def _connect(self, address: str, protocol: Protocol, limits: Limits, ip: str) -> FakeConnector:
        self.links.setdefault(address, []).append(FakeConnector(address, limits, ip))
        return self.links[address][-1]

    def assembly(self, *endpoints: str, limit: int = 100) -> Assembly:
        text = self._text.replace("ENDPOINTS", str(list(endpoints))).replace("LIMIT", str(limit))
        self.current = assembled(config_of(text), self._connect, host=Host(self.shared), before=self.current)
        return self.current


async def test_an_endpoint_that_stays_is_the_same_and_one_that_goes_is_closed() -> None:
    reloads = Reloads()
    first, second = reloads.assembly("a:1", "b:1"), reloads.assembly("b:1", "c:1")
    assert second.backends["lab"].endpoints[0] is first.backends["lab"].endpoints[1]
    await first.close()
    closed = {address: [each.is_closed for each in links] for address, links in reloads.links.items()}
    assert closed == {"a:1": [True], "b:1": [False], "c:1": [False]}


async def test_an_endpoint_with_a_call_in_flight_is_closed_after_it() -> None:
    """The call of a client that has left goes on where servers compute to the end."""
    reloads = Reloads()
    first = reloads.assembly("a:1")
    endpoint = first.backends["lab"].endpoints[0]
    reloads.assembly("b:1")
    endpoint.take()
    endpoint.take()
    closing = spawn(first.close())
    await asyncio.sleep(0)
    endpoint.give_back()
    await settle(5)
    assert not reloads.links["a:1"][0].is_closed
    endpoint.give_back()
    await closing
    assert reloads.links["a:1"][0].is_closed


async def test_an_endpoint_that_comes_back_while_its_last_call_runs_is_the_same() -> None:
    """Or `max_in_flight` would not hold for both together."""
    reloads = Reloads()
    first = reloads.assembly("a:1")
    endpoint = first.backends["lab"].endpoints[0]
    reloads.assembly("b:1")
    endpoint.take()
    closing = spawn(first.close())
    await settle(5)  # it waits for the call now
    assert reloads.assembly("a:1").backends["lab"].endpoints[0] is endpoint
    endpoint.give_back()
    await closing
    assert not reloads.links["a:1"][0].is_closed


async def test_changed_limits_make_a_new_connector_that_is_used_from_the_takeover_on() -> None:
    reloads = Reloads()
    reloads.assembly("a:1", limit=100).start()
    second = reloads.assembly("a:1", limit=200)
    endpoint, (old, new) = second.backends["lab"].endpoints[0], reloads.links["a:1"]
    assert endpoint.connector is old
    second.start()
    assert endpoint.connector is new
    assert new.limits.message == 200
    await second.close_unused_connectors()
    assert (old.is_closed, new.is_closed) == (True, False)


async def test_changed_limits_make_a_new_connector_for_passthrough_too() -> None:
    route = "{match: {protocol: grps-rest, path: /own}, backend: lab, passthrough: true}"
    reloads = Reloads(CONFIG.replace("v2-rest", "grps-rest") + f"routes: [{route}]")
    reloads.assembly("a:1", limit=100).start()
    second = reloads.assembly("a:1", limit=200)
    endpoint = second.backends["lab"].endpoints[0]
    before = endpoint.passthrough
    second.start()
    assert before is not None
    assert endpoint.passthrough not in (None, before)
    await second.close_unused_connectors()
    found = [(each.limits.message, each.is_closed) for each in reloads.links["a:1"]]
    assert found == [(100, True), (100, True), (200, False), (200, False)]


async def test_an_assembly_that_never_takes_over_leaves_nothing() -> None:
    reloads = Reloads()
    first = reloads.assembly("a:1", limit=100)
    second = reloads.assembly("a:1", "b:1", limit=200)
    await second.close()
    await second.close_unused_connectors()
    assert [each.is_closed for each in reloads.links["a:1"]] == [False, True]
    assert [each.is_closed for each in reloads.links["b:1"]] == [True]
    assert first.backends["lab"].endpoints[0].connector is reloads.links["a:1"][0]


async def test_a_closed_assembly_hears_no_more_of_an_endpoint_that_stays() -> None:
    reloads = Reloads()
    first, second = reloads.assembly("a:1"), reloads.assembly("a:1")
    heard: list[str] = []
    first.backends["lab"].on_recovery(lambda: heard.append("first"))
    second.backends["lab"].on_recovery(lambda: heard.append("second"))
    await first.close()
    second.backends["lab"].endpoints[0].changed()
    assert heard == ["second"]
