"""A Gateway from start to end: readiness, status, bind errors, draining."""

import asyncio
import json
import socket
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, cast

import grpc.aio
import pytest

from gateway.assembly.connecting import connect
from gateway.assembly.listening import BindError
from gateway.assembly.reference import serve_reference
from gateway.assembly.registry import protocols
from gateway.cli.options import catalog
from gateway.config import reference_config
from gateway.core.frozen import replace
from gateway.core.models import ModelEntry
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.core.transport import Listener
from gateway.runtime.app import Gateway
from tests.assembled import assembled
from tests.descriptors import listening_ports
from tests.limits import GENEROUS, until
from tests.paused_server import INFER, REPLY, ask, get, held, port_of
from tests.running_gateway import config_of, reference, running_gateway

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}]
health: {bind: "127.0.0.1:0"}
admin: {bind: "127.0.0.1:0"}
reference: [{protocol: umbridge, bind: "127.0.0.1:0", models: [posterior]}]
backends: {lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:PORT"]}}
routes: [{match: {model: "*"}, backend: lab}]
"""


def gateway(text: str, port: int = 1) -> Gateway:
    return Gateway(config_of(text.replace("PORT", str(port))))


def running(text: str = CONFIG, port: int = 1) -> AbstractAsyncContextManager[Gateway]:
    return running_gateway(text.replace("PORT", str(port)))


def at(running: Gateway) -> int:
    return port_of(running.state.listeners["http"].address)


async def shown(running: Gateway, path: str) -> Any:
    """A document of the admin port."""
    return json.loads((await ask(port_of(running.ports.all["admin"].address), get(path))).partition(b"\r\n\r\n")[2])


FAILING = '{name: failing, bind: "127.0.0.1:0", protocols: [mip]}'


async def failing_drain(seconds: float) -> int:
    raise RuntimeError("the fault")


async def test_all_else_is_closed_if_a_listener_cannot_be_drained(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = gateway(f"ready: none\n{CONFIG.replace('listeners: [', f'listeners: [{FAILING}, ')}")
    await here.start()
    ports = [at(here), *(port_of(each.address) for each in (*here.references, *here.ports.all.values()))]
    failing = cast(Listener, here.state.listeners["failing"])
    with monkeypatch.context() as broken:
        broken.setattr(failing, "drain", failing_drain)
        assert await here.drain(0) == 0
    await failing.drain(0)
    assert listening_ports().isdisjoint(ports)
    assert "unexpected error in draining a listener; everything else continues" in caplog.text


async def test_it_is_ready_from_start_to_stop() -> None:
    here = gateway(f"ready: none\n{CONFIG}")
    seen = [here.state.ready]
    await here.start()
    seen.append(here.state.ready)
    others = [each.address for each in here.references] + [each.address for each in here.ports.all.values()]
    ports = [at(here), *map(port_of, others)]
    assert len(set(ports)) == 4
    for path, port in (("/v2/health/ready", ports[0]), ("/Info", ports[1]), ("/readyz", ports[2])):
        assert (await ask(port, get(path))).startswith(b"HTTP/1.1 200 OK\r\n")
    await here.drain(0)
    assert [*seen, here.state.ready] == [False, True, False]
    assert listening_ports().isdisjoint(ports)


ASKED = {
    "/v2/health/ready": (b"200 OK", b"400 Bad Request", b"not ready: backend 'lab'"),
    "/grps/v1/health/ready": (b"200 OK", b"503 Service Unavailable", b"not ready: backend 'lab'"),
    "/readyz": (b"200 OK", b"503 Service Unavailable", b"not ready"),
}


@pytest.mark.usefixtures("patient_readyz")
@pytest.mark.parametrize("protocol", sorted(protocols()))
async def test_it_is_ready_while_a_backend_of_its_routes_is(protocol: str) -> None:
    listener = await serve_reference(
        reference_config(protocol, "127.0.0.1:0", ["posterior"], catalog()), asyncio.get_running_loop().time
    )
    text = f"""
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, grps-rest]}}]
health: {{bind: "127.0.0.1:0", ready: any}}
backends:
  lab: {{protocol: {protocol}, endpoints: ["127.0.0.1:1", "{listener.address}"]}}
  unused: {{protocol: v2-rest, endpoints: ["127.0.0.1:1"]}}
routes: [{{match: {{model: posterior}}, backend: lab}}]
"""
    for alive in (True, False):
        if not alive:
            await listener.drain(0)
        async with running(f"ready: all\n{text}") as here:
            for path, (good, bad, why) in ASKED.items():
                port = port_of(here.ports.all["health"].address) if path == "/readyz" else at(here)
                reply = await ask(port, get(path))
                assert reply.startswith(b"HTTP/1.1 " + (good if alive else bad)), path
                assert alive or why in reply


async def grpc_health(address: str) -> bytes:
    """What gRPC's health service says of the whole server: the bytes of a HealthCheckResponse."""
    async with grpc.aio.insecure_channel(address) as channel:
        answer: bytes = await channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=GENEROUS)
        return answer


@pytest.mark.parametrize(("rule", "reported"), [("any", b"\x08\x02"), ("all", b"\x08\x02"), ("none", b"\x08\x01")])
async def test_grpcs_health_service_follows_the_backends_as_ready_says(rule: str, reported: bytes) -> None:
    """1 is SERVING, 2 is NOT_SERVING; the backend does not run."""
    text = CONFIG.replace("protocols: [v2-rest, umbridge]", "protocols: [v2-grpc]")
    async with running(f"ready: {rule}\n{text}") as here:
        assert await grpc_health(here.state.listeners["http"].address) == reported


async def test_an_address_in_use_is_an_error_and_nothing_stays_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        second = f'{{name: second, bind: "127.0.0.1:{port}", protocols: [umbridge]}}]'
        here = gateway(CONFIG.replace("umbridge]}]", f"umbridge]}}, {second}", 1))
        with pytest.raises(BindError) as failed:
            await here.start()
    assert str(failed.value) == f"listener 'second': cannot bind 127.0.0.1:{port}: Address already in use"
    assert not here.state.ready
    assert listening_ports().isdisjoint([at(here), port_of(here.references[0].address)])


@pytest.mark.parametrize("name", ["health", "admin"])
async def test_the_error_names_the_health_or_admin_port_that_cannot_be_bound(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bound = f'{name}: {{bind: "127.0.0.1:{taken.getsockname()[1]}"}}'
        with pytest.raises(BindError, match=f"^{name}: cannot bind 127.0.0.1:[0-9]+: Address already in use$"):
            await gateway(CONFIG.replace(f'{name}: {{bind: "127.0.0.1:0"}}', bound)).start()


async def test_a_host_of_another_machine_is_an_error() -> None:
    # From 3.13 on asyncio tries every address that a name has, and then has words of its own.
    why = "(Cannot assign requested address|could not bind on any address out of .*)"
    with pytest.raises(BindError, match=rf"^listener 'http': cannot bind 192.0.2.1:0: {why}$"):
        await gateway(CONFIG.replace('http, bind: "127.0.0.1:0"', 'http, bind: "192.0.2.1:0"')).start()


async def test_a_reference_model_that_the_protocol_cannot_carry_ends_the_start() -> None:
    with pytest.raises(ValueError, match="model 'upper' does not fit umbridge"):
        await gateway(CONFIG.replace("[posterior]", "[upper]")).start()


async def test_draining_waits_for_requests_in_flight_and_accepts_no_more() -> None:
    async with held() as lab:
        here = gateway(CONFIG, lab.port)
        await here.start()
        inflight = asyncio.ensure_future(ask(at(here), INFER))
        await lab.arrived.wait()
        stopping = asyncio.ensure_future(here.drain(60))
        await until(lambda: at(here) not in listening_ports(), 0)
        readiness = await ask(port_of(here.ports.all["health"].address), get("/readyz"))
        assert readiness.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        lab.release.set()
        assert await stopping == 0
        reply = await inflight
    assert reply.startswith(b"HTTP/1.1 200 OK\r\n")
    assert reply.endswith(REPLY)
    assert b"Connection: close" in reply


async def test_draining_waits_no_longer_than_its_seconds() -> None:
    async with held() as lab, running(port=lab.port) as here:
        inflight = asyncio.ensure_future(ask(at(here), INFER))
        await lab.arrived.wait()
        assert await here.drain(0) == 1
        assert await inflight == b""


async def test_the_status_shows_calls_in_flight_and_waiting() -> None:
    async with held() as lab, running(CONFIG.replace("endpoints", "max_in_flight: 1, endpoints"), lab.port) as here:
        port = at(here)
        calls = [asyncio.ensure_future(ask(port, INFER)) for _ in range(2)]
        await lab.arrived.wait()
        status = await shown(here, "/status")
        for call in calls:
            call.cancel()
    assert status["ready"] is True
    listener = {"address": f"127.0.0.1:{port}", "protocols": ["v2-rest", "umbridge"], "requests": {}, "failed": 0}
    assert status["listeners"] == {"http": listener | {"rejected": 0, "refused_connections": 0}}
    endpoint = {
        "address": f"127.0.0.1:{lab.port}", "in_flight": 1, "state": "unknown", "last_error": None,
        "ejected_until": None, "load": None, "drain": None,
    }  # fmt: skip
    assert status["backends"]["lab"] == {
        "protocol": "v2-rest", "max_in_flight": 1, "waiting": 1, "requests": {}, "failed": 0, "rejected": 0,
        "servers": None,
        "endpoints": [endpoint], "queue": {
            "length": 1000, "timeout": None, "estimated_wait": None,
            "clients": [{"client": "127.0.0.1", "waiting": 1}],
        },
    }  # fmt: skip


async def test_the_status_shows_the_last_error_of_an_endpoint() -> None:
    text = CONFIG.replace("127.0.0.1:PORT", "127.0.0.1:1")
    before = datetime.now(UTC)
    async with running(text) as here:
        await ask(at(here), INFER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        status = await shown(here, "/status")
    (endpoint,) = status["backends"]["lab"]["endpoints"]
    assert (endpoint["state"], endpoint["last_error"]["text"]) == ("down", "connection refused")
    failed, until = (datetime.fromisoformat(at) for at in (endpoint["last_error"]["at"], endpoint["ejected_until"]))
    assert before <= failed < until


async def test_without_health_and_admin_there_are_no_such_ports() -> None:
    lean = "\n".join(line for line in CONFIG.splitlines() if not line.startswith(("health", "admin")))
    async with running(lean) as here:
        assert here.ports.all == {}


async def test_a_backend_whose_metadata_is_not_trusted_is_listed_all_the_same() -> None:
    traits = protocols()["v2-rest"].traits
    models, wire = replace(traits.models, trusted_metadata=False), replace(traits.wire, unnamed=True)
    untrusted = replace(protocols()["v2-rest"], traits=replace(traits, models=models, wire=wire))
    text = "listeners: [{name: http, bind: '127.0.0.1:0', protocols: [v2-rest]}]\n"
    text += "routes: [{match: {model: '*'}, backend: lab}]\n"
    async with reference("v2-rest", "double", "upper") as address:
        text += f"backends: {{lab: {{protocol: v2-rest, flavor: plain, endpoints: ['{address}']}}}}\n"
        assembly = assembled(config_of(text), connect, {"v2-rest": untrusted})
        listing = assembly.router.select(Request(Operation.MODELS, protocol="v2-rest", listener="http")).handler
        assert listing is not None
        entries = await listing(Request(Operation.MODELS, protocol="v2-rest", listener="http"))
        await assembly.backends["lab"].endpoints[0].close()
    assert isinstance(entries, tuple)
    assert [entry.name for entry in entries if isinstance(entry, ModelEntry)] == ["double", "upper"]


async def test_the_status_counts_requests_and_has_the_last_errors() -> None:
    """An endpoint is unknown before its first call and down after a failed one; the error is there with its id."""
    async with running() as here:
        before = here.state.status().backends["lab"]
        assert ([each.state for each in before.endpoints], before.requests) == (["unknown"], {})
        await ask(at(here), INFER.replace(b"Host: a", b"Host: a\r\nConnection: close\r\nX-Request-Id: mine"))
        await ask(at(here), get("/v2/health/live"))
        await ask(at(here), get("/v2/nope"))
        after = here.state.status()
        http, lab = after.listeners["http"], after.backends["lab"]
        assert http.requests == {"UNAVAILABLE": 1, "OK": 1, "NOT_FOUND": 1}
        assert (http.failed, http.rejected) == (1, 1)
        assert (lab.requests, lab.failed, lab.rejected) == ({"UNAVAILABLE": 1}, 1, 0)
        assert after.backends["lab"].endpoints[0].state == "down"
        by_caller, error = after.last_errors
        assert (by_caller.fault, by_caller.status) == ("caller", "NOT_FOUND")
        assert (error.request_id, error.model, error.route, error.status) == ("mine", "m", "*", "UNAVAILABLE")
        assert (error.reason, error.fault, error.backend) == ("unreachable", "server", "lab")
        assert error.endpoint == "127.0.0.1:1"


async def test_the_configuration_is_shown_without_secrets() -> None:
    text = CONFIG.replace("flavor: plain,", "flavor: plain, discovery: {register: {token: planted}},")
    async with running(text) as here:
        found = await shown(here, "/config")
    assert "planted" not in json.dumps(found)
    assert found["backends"]["lab"]["discovery"]["register"]["token"] == "***"
    assert found["routes"][0]["backend"] == "lab"
