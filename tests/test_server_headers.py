"""`headers` of a backend: every request to its servers has them, and nobody else sees their values."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import grpc.aio
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
from tests.paused_server import INFER, REPLY, ask, get, http, port_of
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


class Servers:
    """A V2 server over REST and one over gRPC, which keep the headers that they get."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.metadata: list[dict[str, str | bytes]] = []
        self.probed = asyncio.Event()
        self.serving: set[asyncio.Task[None] | None] = set()

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.add(asyncio.current_task())
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                await reader.readexactly(sum(int(line[15:]) for line in lines if line.startswith(b"content-length:")))
                if b"/health/live " in head:
                    self.probed.set()
                self.heads.append(head)
                writer.write(http(b"HTTP/1.1 200 OK", REPLY))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def infer(self, body: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self.metadata.append(dict(context.invocation_metadata() or ()))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "seen")
        raise AssertionError

    def lines(self, path: bytes) -> list[bytes]:
        """The lines of the last head for this path, the first one left out."""
        head = next(each for each in reversed(self.heads) if each.split(b" ")[1] == path)
        return head.split(b"\r\n")[1:]


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Gateway, Servers, str]]:
    servers = Servers()
    listening = await asyncio.start_server(servers.http, "127.0.0.1", 0)
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(servers.infer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {"ModelInfer": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    text = CONFIG.replace("HTTP", str(listening.sockets[0].getsockname()[1])).replace("GRPC", str(port))
    async with running_gateway(text.replace("${KEY}", ENVIRON["KEY"])) as gateway:
        yield gateway, servers, text
    await server.stop(None)
    listening.close()
    await asyncio.gather(*filter(None, servers.serving))


async def infer(gateway: Gateway, model: bytes, lines: bytes = b"") -> bytes:
    request = INFER.replace(b"models/m", b"models/" + model).replace(
        b"\r\n", b"\r\nConnection: close\r\n" + lines, 1
    )  # fmt: skip
    return await ask(port_of(gateway.state.listeners["http"].address), request)


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
