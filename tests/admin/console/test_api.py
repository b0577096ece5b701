"""The JSON of the console, of a gateway that runs in the test's process."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from gateway.admin.console.api import Errors
from gateway.admin.console.configuration import Configuration, Marked, PlacedPolicies, PlacedPolicy
from gateway.admin.console.models import ListedModels, ModelSignature
from gateway.admin.console.overview import Topology, Traffic
from gateway.assembly.part import GatewayPart
from gateway.cli.options import catalog
from gateway.config import loads
from gateway.config.fields import VALUE
from gateway.config.problems import Finding
from gateway.config.warnings import find_warnings
from gateway.runtime.app import Gateway
from tests.admin.asking import admin_client, infer
from tests.interop.processes import free_port
from tests.running_gateway import config_of

CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}
  - {name: science, bind: "127.0.0.1:0", protocols: [umbridge]}
admin: {bind: "127.0.0.1:0"}
reference: [{protocol: v2-rest, bind: "127.0.0.1:PORT", models: [double, add_sub]}]
backends:
  lab: {protocol: v2-rest, endpoints: ["http://127.0.0.1:PORT"], max_in_flight: 2, queue: {length: 7}}
  gone: {protocol: v2-rest, endpoints: ["http://127.0.0.1:NOTHING"]}
routes:
  - name: team
    match: {protocol: v2-rest, model: secret, header: {x-team: "${TEAM}"}}
    split: [{backend: lab, weight: 3}, {backend: gone, weight: 1}]
  - {match: {model: broken}, backend: gone, fallback: [lab]}
  - match: {model: "my-*"}
    backend: lab
    rewrite: {model: "{1}"}
    policies: [{timeout: {seconds: 30}}, {rate_limit: {requests: 3, seconds: 3600}}]
  - match: {model: double}
    backend: lab
    signature: {inputs: [{name: x, datatype: FP64, shape: [-1, 3]}]}
  - {match: {model: add_sub}, backend: lab}
  - {match: {model: broken, protocol: v2-rest}, backend: lab}
  - {match: {model: "*[dc]*"}, backend: lab}
models:
  fourfold:
    inputs: {x: "FP64 [-1, 3]"}
    steps: {one: {model: double, inputs: {x: $x}}, other: {model: my-double, fallback: [broken], inputs: {x: $one}}}
    outputs: {y: $other}
  eightfold:
    inputs: {x: "FP64 [-1, 3]"}
    steps: {four: {model: fourfold, inputs: {x: $x}}, two: {model: double, inputs: {x: $four}}}
    outputs: {y: $two}
"""


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    text = CONFIG.replace("PORT", str(free_port())).replace("NOTHING", str(free_port()))
    config = loads(text, "test.yaml", catalog(), {"TEAM": "hidden-team"})
    found = Gateway(config, None, lambda config: find_warnings(config, catalog()))
    await found.start()
    yield found
    await found.drain(0)


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with admin_client(gateway) as found:
        yield found


async def traffic(client: httpx.AsyncClient, since: str = "0", **headers: str) -> tuple[httpx.Response, Any]:
    found = await client.get(f"/api/traffic?since={since}", headers=headers)
    return found, Traffic.model_validate_json(found.content) if found.status_code == 200 else None


async def test_the_topology_says_which_leads_to_which(client: httpx.AsyncClient) -> None:
    found = Topology.model_validate_json((await client.get("/api/topology")).content)
    assert [each.name for each in found.listeners] == ["http", "science"]
    secret, broken, renamed, *_ = found.routes
    assert (secret.name, secret.listeners) == ("team", ["http"])
    weights = [(each.name, each.role, each.weight) for each in secret.backends]
    assert weights == [("lab", "main", 3), ("gone", "main", 1)]
    assert [(each.name, each.role) for each in broken.backends] == [("gone", "main"), ("lab", "fallback")]
    assert broken.listeners == ["http", "science"]
    assert (renamed.match, renamed.rewrite) == ({"model": "my-*"}, {"model": "{1}"})
    assert renamed.policies == ["timeout", "rate_limit"]


async def test_graphs_stand_beside_routes_and_lead_to_the_backends_of_their_steps(
    gateway: Gateway, client: httpx.AsyncClient
) -> None:
    found = Topology.model_validate_json((await client.get("/api/topology")).content)
    assert [each.name for each in found.graphs] == ["fourfold", "eightfold"]
    for each in found.graphs:
        assert each.place == f"models.{each.name}"
        assert each.listeners == ["http", "science"]
        assert [backend.name for backend in each.backends] == ["lab", "gone"]


async def test_steps_count_at_the_backends_that_compute_them(gateway: Gateway, client: httpx.AsyncClient) -> None:
    await infer(gateway, "fourfold", times=2)
    await infer(gateway, "eightfold")
    counted = {(each.listener, each.route, each.backend): each.ok for each in (await traffic(client))[1].paths}
    assert counted == {
        ("http", "models.fourfold", ""): 2,
        ("", "models.fourfold", "lab"): 4,
        ("http", "models.eightfold", ""): 1,
        ("", "models.eightfold", ""): 1,  # fourfold, a graph within it
        ("", "models.eightfold", "lab"): 3,
    }
    status = (await client.get("/status")).json()
    assert status["listeners"]["http"]["requests"] == {"OK": 3}
    assert status["backends"]["lab"]["requests"] == {"OK": 7}
    summary = (await client.get("/api/summary", params={"kind": "backend", "name": "lab"})).json()
    assert summary["requests"] == 7
    listed = (await client.get("/api/requests")).json()["requests"]
    assert [(each["route"], each["backend"], each["tries"]) for each in listed] == [
        ("models.eightfold", "", 3), *[("models.fourfold", "", 2)] * 2,
    ]  # fmt: skip
    called = (await client.get("/api/requests", params={"backend": "lab"})).json()["requests"]
    assert {(each["listener"], each["model"], each["id"] in {one["id"] for one in listed}) for each in called} == {
        ("", "double", True), ("", "my-double", True),
    }  # fmt: skip


async def test_no_reply_has_a_value_that_came_from_a_variable(client: httpx.AsyncClient) -> None:
    names = ("topology", "traffic", "history", "requests", "errors", "configuration", "models", "graphs")
    for path in (*names, "graphs/traffic", "keys", "certificates"):
        found = await client.get(f"/api/{path}")
        assert found.status_code == 200
        assert "hidden-team" not in found.text
        assert found.headers["cache-control"] == "no-store"
        assert found.headers["x-content-type-options"] == "nosniff"
    assert "${TEAM}" in (await client.get("/api/topology")).text


async def test_the_traffic_grows_with_requests(gateway: Gateway, client: httpx.AsyncClient) -> None:
    _, before = await traffic(client)
    assert before.paths == []
    assert (before.backends["lab"].slots, before.backends["lab"].queue) == (2, 7)
    await infer(gateway, "double", times=3)
    await infer(gateway, "nothing")
    _, after = await traffic(client)
    counted = {(each.route, each.backend): (each.ok, each.failed, each.rejected) for each in after.paths}
    assert counted == {("double", "lab"): (3, {}, {}), ("", ""): (0, {}, {"NOT_FOUND": 1})}
    [path] = [each for each in after.paths if each.backend]
    assert sum(path.latencies.values()) == 3
    assert path.endpoint == after.backends["lab"].endpoints[0].address
    assert (after.errors, after.started) == (1, before.started)


async def test_only_what_has_changed_is_sent_and_nothing_twice(gateway: Gateway, client: httpx.AsyncClient) -> None:
    await infer(gateway, "double")
    first, _ = await traffic(client)
    await infer(gateway, "add_sub")
    second, changed = await traffic(client, first.headers["gateway-time"])
    assert [each.route for each in changed.paths] == ["add_sub"]
    assert float(second.headers["gateway-time"]) > float(first.headers["gateway-time"])
    third, still = await traffic(client, second.headers["gateway-time"])
    assert still.paths == []
    fourth, _ = await traffic(client, third.headers["gateway-time"], **{"if-none-match": third.headers["etag"]})
    assert (fourth.status_code, fourth.content) == (304, b"")
    assert float(fourth.headers["gateway-time"]) > float(third.headers["gateway-time"])


async def test_a_reload_changes_the_name_of_the_topology(gateway: Gateway, client: httpx.AsyncClient) -> None:
    _, before = await traffic(client)
    routes = gateway.state.config.routes[1:]
    await gateway.reload(gateway.state.config.model_copy(update={"routes": routes}))
    _, after = await traffic(client)
    assert before.topology != after.topology
    found = Topology.model_validate_json((await client.get("/api/topology")).content)
    assert (len(found.routes), found.reloads) == (6, 1)


async def test_after_a_reload_all_pages_show_the_new_configuration(gateway: Gateway, client: httpx.AsyncClient) -> None:
    async def shown() -> tuple[int, int, int, int]:
        asked = ("topology", "graphs", "configuration", "policies?place=my-*")
        topology, graphs, configuration, policies = [(await client.get(f"/api/{each}")).json() for each in asked]
        routes = [line for line in configuration["lines"] if line.strip().startswith("match:")]
        return len(topology["routes"]), len(graphs["graphs"]), len(routes), len(policies["policies"])

    assert await shown() == (7, 2, 7, 2)
    routes = gateway.state.config.routes[1:3]
    await gateway.reload(gateway.state.config.model_copy(update={"routes": routes, "models": {}}))
    assert await shown() == (2, 0, 2, 2)


async def test_errors_come_with_what_their_reasons_mean(gateway: Gateway, client: httpx.AsyncClient) -> None:
    await infer(gateway, "nothing")
    found = Errors.model_validate_json((await client.get("/api/errors")).content)
    assert [(each.model, each.reason) for each in found.errors] == [("nothing", "model-not-found")]
    assert found.reasons.keys() == {"model-not-found"}
    assert "No route matches" in found.reasons["model-not-found"].meaning


async def test_the_configuration_has_warnings_at_their_lines(gateway: Gateway, client: httpx.AsyncClient) -> None:
    found = Configuration.model_validate_json((await client.get("/api/configuration")).content)
    marks = {found.lines[mark.line].strip(): mark.text for mark in found.marks}
    assert {"lab:", "gone:"} <= marks.keys()
    assert "no policy limits the duration of calls to the backend 'lab'" in marks["lab:"]
    assert found.failure is None


@pytest.mark.parametrize(
    ("location", "line", "value"),
    [
        (("listeners", 0, "protocols"), "protocols:", "a list"),
        (("listeners", 0, "name"), "- name: http", "'http'"),
        (("backends", "lab"), "lab:", "a map"),
        (("backends", "lab", "polices", "timeout"), "lab:", "a map"),
        (("backends", "lab", "protocol", "name"), "protocol: v2-rest", "'v2-rest'"),
        (("routes", 7, "backend"), "routes:", "a list"),
    ],
)
def test_a_remark_is_at_the_nearest_line_above_its_key(location: tuple[str | int, ...], line: str, value: str) -> None:
    text = """
listeners: [{name: http, bind: "127.0.0.1:1", protocols: [v2-rest]}]
backends: {lab: {protocol: v2-rest, endpoints: ["127.0.0.1:2"]}}
routes: [{match: {model: a}, backend: lab}]
"""
    found = Marked(config_of(text), [Finding(location, f"got {VALUE}")]).shown(None)
    assert [(found.lines[mark.line].strip(), mark.text) for mark in found.marks] == [(line, f"got {value}")]


async def test_models_are_listed_with_the_names_that_clients_use(client: httpx.AsyncClient) -> None:
    found = ListedModels.model_validate_json((await client.get("/api/models")).content)
    assert found.is_complete
    listed = {(each.backend, each.name): each for each in found.models}
    double = listed["lab", "double"]
    assert double.source == "server"
    assert {(each.route, each.name) for each in double.reached_by} == {("my-*", "my-double"), ("double", "double")}
    broken = listed["gone", "broken"]  # its server does not answer
    assert (broken.source, [each.route for each in broken.reached_by]) == ("configuration", ["broken"])


async def test_a_model_has_no_routes_whose_requests_an_earlier_one_takes(client: httpx.AsyncClient) -> None:
    found = ListedModels.model_validate_json((await client.get("/api/models")).content)
    reached = {each.name: {way.route for way in each.reached_by} for each in found.models if each.backend == "lab"}
    assert reached["add_sub"] == {"my-*", "add_sub"}  # *[dc]* comes later
    assert reached["broken"] == {"broken", "my-*"}  # broken,protocol=v2-rest asks for more than broken, and comes later
    assert reached["secret"] == {"team", "my-*", "*[dc]*"}  # team takes only some requests


async def test_a_signature_is_the_servers_unless_a_route_states_it(client: httpx.AsyncClient) -> None:
    async def read(model: str) -> ModelSignature:
        found = await client.get("/api/models/signature", params={"backend": "lab", "model": model})
        return ModelSignature.model_validate_json(found.content)

    own, stated = await read("add_sub"), await read("double")
    assert (own.route, own.inputs[0].datatype) == (None, "INT32")
    assert (stated.route, stated.inputs[0].shape) == ("double", [-1, 3])
    assert stated.outputs[0].name == "y"  # of the server, since the route does not say


async def test_policies_have_their_settings_and_their_state(gateway: Gateway, client: httpx.AsyncClient) -> None:
    async def read(place: str) -> list[PlacedPolicy]:
        found = await client.get("/api/policies", params={"place": place})
        return PlacedPolicies.model_validate_json(found.content).policies

    [timeout, limit] = await read("my-*")
    assert (timeout.name, timeout.settings["seconds"], timeout.states) == ("timeout", 30, [])
    assert (limit.name, limit.settings["requests"], limit.settings["by"]) == ("rate_limit", 3, "client")
    await infer(gateway, "my-double", times=5)
    [limit] = [each for each in await read("my-*") if each.states]
    assert limit.states == [{"clients": 1, "refused": 2}]
    assert await read("backends.gone") == []
    for place in ("other", "backends.other", "listeners.http"):
        assert (await client.get("/api/policies", params={"place": place})).status_code == 404


async def test_models_that_are_made_of_others_are_listed_with_their_signature(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/api/models")).json()["models"]
    found = {each["name"]: each for each in listed if not each["backend"]}
    assert found.keys() == {"fourfold", "eightfold"}
    assert found["fourfold"]["reached_by"] == [{"route": "models.fourfold", "name": "fourfold"}]
    reply = await client.get("/api/models/signature", params={"backend": "", "model": "eightfold"})
    assert reply.json()["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1, 3]}]
    assert [each["name"] for each in reply.json()["outputs"]] == ["y"]


@pytest.mark.parametrize(
    ("backend", "model", "status", "text"),
    [
        ("lab", "nothing", 404, "no model 'nothing'"),
        ("other", "double", 404, "unknown backend 'other'"),
        ("", "double", 404, "unknown model graph 'double'"),
        ("gone", "broken", 502, "backend 'gone'"),
    ],
)
async def test_why_there_is_no_signature(
    client: httpx.AsyncClient, backend: str, model: str, status: int, text: str
) -> None:
    found = await client.get("/api/models/signature", params={"backend": backend, "model": model})
    assert found.status_code == status
    assert text in found.json()["detail"]


async def test_the_openapi_description_has_every_path(client: httpx.AsyncClient) -> None:
    described = (await client.get("/openapi.json")).json()
    names = (
        "topology", "traffic", "history", "requests", "errors", "configuration", "models", "models/signature", "graphs",
        "graphs/traffic", "keys", "certificates", "policies", "principal", "summary",
    )  # fmt: skip
    for name in names:
        content = described["paths"][f"/api/{name}"]["get"]["responses"]["200"]["content"]
        assert "$ref" in content["application/json"]["schema"]
    assert not [path for path in described["paths"] if path.startswith("/console")]


async def test_many_questions_at_once_ask_each_server_once(gateway: Gateway, client: httpx.AsyncClient) -> None:
    asked: list[str] = []
    for side in gateway.state.assembly.backend_sides.values():
        handler = side.handler

        async def counting(request: Any, handler: Any = handler, name: str = side.name) -> Any:
            asked.append(name)
            return await handler(request)

        object.__setattr__(side, "handler", counting)
    await asyncio.gather(*(client.get("/api/models") for _ in range(5)))
    assert sorted(asked).count("lab") == 1


class Idle:
    """Workers without work, which note each request for their counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.totals = SimpleNamespace(graph_steps={}, load=None, shedding=lambda: None, policies=list)
        self.process = None

    async def gather(self) -> None:
        self.asked += 1

    def principal_states(self, name: str) -> list[tuple[str, str, dict[str, object]]]:
        return []


async def test_replies_with_counts_have_the_current_counts_of_all_workers() -> None:
    paths = ("traffic", "errors", "requests", "summary", "graphs/traffic", "keys", "principal?name=x")
    workers: Any = Idle()
    config = loads(CONFIG.replace("PORT", "1").replace("NOTHING", "2"), "test.yaml", catalog(), {"TEAM": ""})
    gateway = Gateway(config, part=GatewayPart(has_references=False, workers=workers))
    await gateway.start()
    async with admin_client(gateway) as client:
        for path in ("/status", "/api/policies?place=backends.none", *(f"/api/{each}" for each in paths)):
            before = workers.asked
            reply = await client.get(path)
            assert (reply.status_code, workers.asked - before) == (404 if "none" in path else 200, 1), path
    await gateway.drain(0)
