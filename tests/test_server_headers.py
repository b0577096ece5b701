"""`headers` of a backend: every request to its servers has them, and nobody else sees their values."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.assembly.explain.recorded import arrive
from gateway.assembly.explain.request import explain
from gateway.assembly.explain.text import explanation_lines
from gateway.assembly.registry import protocols
from gateway.cli.options import catalog
from gateway.client.settings import ServerKind
from gateway.config import loads
from gateway.config.effective import effective
from gateway.runtime.app import Gateway
from gateway.tools.probing.asking import ServerAccess
from gateway.tools.probing.probe import client
from tests.header_servers import Servers, header_servers, infer
from tests.paused_server import INFER, ask, get, port_of
from tests.running_gateway import running_gateway

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, grps-rest]}]
backends:
  one:
    protocol: v2-rest
    flavor: plain
    endpoints: ["127.0.0.1:HTTP"]
    headers: {Host: "one.example.com:8080", X-Tenant: "planted-one", Authorization: "${KEY}"}
    health: {probe: live, interval: 0.05}
  two: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:HTTP"], headers: {host: two.example.com}}
  own: {protocol: grps-rest, endpoints: ["127.0.0.1:HTTP"], headers: {x-tenant: planted-own}}
  grpc: {protocol: v2-grpc, endpoints: ["127.0.0.1:GRPC"], headers: {X-Tenant: "planted-grpc"}}
routes:
  - {match: {path: /own}, backend: own, passthrough: true}
  - {match: {model: one}, backend: one}
  - {match: {model: two}, backend: two}
  - {match: {model: grpc}, backend: grpc}
"""
ENVIRON = {"KEY": "planted-key"}


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Gateway, Servers, str]]:
    async with (
        header_servers(CONFIG) as (servers, text),
        running_gateway(text.replace("${KEY}", ENVIRON["KEY"])) as gateway,
    ):
        yield gateway, servers, text


async def test_every_request_to_a_server_has_them() -> None:
    own = [b"Host: one.example.com:8080", b"x-tenant: planted-one", b"authorization: planted-key"]
    async with running() as (gateway, servers, _):
        assert (await infer(gateway, b"one", b"X-Tenant: the client's\r\n")).startswith(b"HTTP/1.1 200 ")
        await ask(port_of(gateway.state.listeners["http"].address), get("/v2/models/one"))
        await servers.probed.wait()
        for path in (b"/v2/models/one/infer", b"/v2/models/one", b"/v2/health/live"):
            lines = servers.lines(path)
            assert lines[:3] == own
            assert sum(line.lower().startswith((b"host:", b"x-tenant:")) for line in lines) == 2


async def test_backends_at_one_address_have_their_own() -> None:
    async with running() as (gateway, servers, _):
        for model in (b"two", b"one", b"two"):
            assert (await infer(gateway, model)).startswith(b"HTTP/1.1 200 ")
        assert servers.lines(b"/v2/models/one/infer")[0] == b"Host: one.example.com:8080"
        assert servers.lines(b"/v2/models/two/infer")[0] == b"Host: two.example.com"
        assert not any(line.startswith(b"x-tenant") for line in servers.lines(b"/v2/models/two/infer"))


async def test_messages_that_pass_unchanged_have_them() -> None:
    async with running() as (gateway, servers, _):
        await ask(port_of(gateway.state.listeners["http"].address), get("/own"))
        assert b"x-tenant: planted-own" in servers.lines(b"/own")


async def test_over_grpc_they_are_metadata() -> None:
    async with running() as (gateway, servers, _):
        assert b"seen" in await infer(gateway, b"grpc", b"X-Tenant: the client's\r\n")
        assert servers.metadata[-1]["x-tenant"] == "planted-grpc"


async def test_check_live_asks_servers_with_them() -> None:
    async with running() as (gateway, servers, _):
        backend = gateway.state.config.backends["one"]
        access = ServerAccess({"x-tenant": "the client's", "x-other": "a"}, key="the client's").of_backend(backend)
        async with client("v2-rest", backend.endpoints[0].address, access, 5, ServerKind("plain")) as asked:
            assert await asked.ready()
        lines = servers.lines(b"/v2/health/ready")
        assert lines[:3] == [b"Host: one.example.com:8080", b"x-tenant: planted-one", b"authorization: planted-key"]
        assert not any(b"client" in line or line.startswith(b"x-other") for line in lines)


async def test_after_a_reload_the_new_values_are_sent() -> None:
    async with running() as (gateway, servers, text):
        await infer(gateway, b"two")
        changed = loads(text.replace("two.example.com", "new.example.com"), "test.yaml", catalog(), ENVIRON)
        assert await gateway.reload(changed) == ("backend 'two': headers changed",)
        await infer(gateway, b"two")
        assert servers.lines(b"/v2/models/two/infer")[0] == b"Host: new.example.com"


async def test_their_values_are_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with running() as (gateway, _, text):
        reply = await infer(gateway, b"one")
        config = loads(text, "test.yaml", catalog(), ENVIRON)
        arrival = arrive(INFER.replace(b"models/m", b"models/one"), config, protocols(), "", "", "")
        shown = "\n".join(explanation_lines(await explain(arrival, config, protocols(), send=False)))
        used = gateway.state.config
        for each in (json.dumps(effective(used)), repr(used), shown, caplog.text, str(reply)):
            assert "planted" not in each
        assert "  host: ***\n  x-tenant: ***\n  authorization: ***\n" in shown
