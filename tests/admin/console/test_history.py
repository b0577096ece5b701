"""The last hour as the console's API serves it, and how a running gateway keeps it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.admin.console.requests import DrawnHistory
from gateway.core.tasks import spawn
from gateway.observing.history import STEPS
from gateway.runtime.app import Gateway
from gateway.runtime.app.gateway import keep_history
from tests.admin.asking import admin_client, infer
from tests.interop.processes import free_port
from tests.limits import GENEROUS
from tests.running_gateway import running_gateway

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
admin: {bind: "127.0.0.1:0"}
reference: [{protocol: v2-rest, bind: "127.0.0.1:PORT", models: [double]}]
backends: {lab: {protocol: v2-rest, endpoints: ["http://127.0.0.1:PORT"]}}
routes: [{match: {model: double}, backend: lab}]
"""


@pytest.fixture
async def gateway(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    """A gateway whose steps the tests end."""
    monkeypatch.setattr("gateway.runtime.app.gateway.keep_history", lambda state: asyncio.Event().wait())
    async with running_gateway(CONFIG.replace("PORT", str(free_port()))) as found:
        yield found


async def history(gateway: Gateway, **query: str) -> DrawnHistory:
    async with admin_client(gateway) as client:
        found = await client.get("/api/history", params=query)
        assert found.status_code == 200, found.text
        return DrawnHistory.model_validate_json(found.content)


def step(gateway: Gateway, now: float) -> None:
    gateway.observing.history.end_step(gateway.state.counters.news(), now, 10.0)


async def test_the_history_of_the_gateway_and_of_its_parts(gateway: Gateway) -> None:
    assert (await history(gateway)).times == []
    await infer(gateway, "double", times=2)
    await infer(gateway, "none")
    step(gateway, 1000)
    step(gateway, 1010)
    whole = await history(gateway)
    assert (whole.step, whole.kept, whole.times) == (10, 10 * STEPS, [1000, 1010])
    assert (whole.requests, whole.errors) == ([3, 0], [0, 0])  # an unknown model is the caller's error
    assert whole.p99[0] is not None
    assert whole.p99[1] is None
    route = await history(gateway, kind="route", name="double")
    assert (route.requests, route.in_flight, whole.in_flight) == ([2, 0], [None, None], [0, 0])
    assert (await history(gateway, kind="backend", name="other")).requests == [0, 0]


async def test_the_history_is_kept_over_a_reload(gateway: Gateway) -> None:
    await infer(gateway, "double")
    step(gateway, 1000)
    await gateway.reload(gateway.state.config.model_copy(update={"routes": ()}))
    await infer(gateway, "double")
    step(gateway, 1010)
    found = await history(gateway)
    assert (found.requests, found.errors) == ([1, 1], [0, 0])


async def test_a_running_gateway_ends_its_steps_by_itself(gateway: Gateway) -> None:
    keeping = spawn(keep_history(gateway.state, interval=0.01, step=0.02))
    await infer(gateway, "double")
    async with asyncio.timeout(GENEROUS):
        while 1 not in (await history(gateway)).requests:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    keeping.cancel()


@pytest.mark.parametrize("query", [{"kind": "route"}, {"name": "lab"}, {"kind": "model", "name": "double"}])
async def test_a_part_that_has_no_history_is_refused(gateway: Gateway, query: dict[str, str]) -> None:
    async with admin_client(gateway) as client:
        assert (await client.get("/api/history", params=query)).status_code == 422
