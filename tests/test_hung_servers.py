"""One of two servers of a backend hangs, or cannot be connected to: the other one takes over. The servers are processes
of their own, stopped with SIGSTOP."""

import asyncio
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from pathlib import Path
from sys import executable

import pytest

from gateway.runtime.app import Gateway
from tests.interop.processes import Process
from tests.limits import GENEROUS, until
from tests.paused_server import ask, http, port_of
from tests.running_gateway import running_gateway

pytestmark = pytest.mark.long

PROTOCOLS = {"v2-rest": "flavor: plain", "v2-grpc": "", "umbridge": "", "mip": ""}
BACKEND = """
  {name}:
    protocol: {name}
    endpoints: {endpoints}
    policies: [{{timeout: {{seconds: {seconds}}}}}]
    {more}
"""
SIGNATURE = """signature:
      inputs: [{name: theta, datatype: FP64, shape: [-1, 2]}]
      outputs: [{name: logdensity, datatype: FP64, shape: [-1, 1]}]"""


def reference(protocol: str, folder: Path, model: str = "posterior", bind: str = "127.0.0.1:0") -> Process:
    """A model server in a process of its own, which may not be ready yet."""
    command = [executable, "-m", "gateway", "reference", "--protocol", protocol, "--bind", bind, "--model", model]
    return Process(command, folder)


def address(server: Process) -> str:
    server.wait_until(lambda: "\nready" in server.stdout(), seconds=GENEROUS)
    return server.stdout().split(" on ", 1)[1].split(": ", 1)[0]


def config(addresses: dict[str, list[str]], seconds: float) -> str:
    text = 'listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]\nbackends:'
    for name, endpoints in addresses.items():
        more = PROTOCOLS.get(name, "")
        text += BACKEND.format(name=name, endpoints=json.dumps(endpoints), seconds=seconds, more=more)
    rewritten = f"rewrite: {{model: posterior}}\n    {SIGNATURE}"
    routes = (f"  - match: {{model: {name}}}\n    backend: {name}\n    {rewritten}\n" for name in addresses)
    return f"{text}routes:\n{''.join(routes)}"


def running(addresses: dict[str, list[str]], seconds: float = 1.0) -> AbstractAsyncContextManager[Gateway]:
    return running_gateway(config(addresses, seconds))


async def infer(gateway: Gateway, model: str) -> int:
    """The status of one call."""
    body = b'{"inputs":[{"name":"theta","datatype":"FP64","shape":[1,2],"data":[1.0,2.0]}]}'
    request = http(f"POST /v2/models/{model}/infer HTTP/1.1\r\nConnection: close".encode(), body)
    return int((await ask(port_of(gateway.state.listeners["http"].address), request)).split(b" ", 2)[1])


def states(gateway: Gateway, backend: str) -> list[str]:
    return [each.state for each in gateway.state.status().backends[backend].endpoints]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Process]]]:
    """Two of each protocol."""
    folder = tmp_path_factory.mktemp("servers")
    with ExitStack() as stack:
        started: dict[str, list[Process]] = {}
        for protocol in PROTOCOLS:
            started[protocol] = [reference(protocol, folder / f"{protocol}{at}") for at in range(2)]
            for server in started[protocol]:
                stack.callback(server.stop)
                stack.callback(server.signal, signal.SIGCONT)
        yield started


async def test_a_stopped_server_costs_a_few_calls_and_comes_back(servers: dict[str, list[Process]]) -> None:
    addresses = {protocol: [address(each) for each in both] for protocol, both in servers.items()}
    async with running(addresses) as gateway:
        for protocol in PROTOCOLS:
            assert [await infer(gateway, protocol) for _ in range(4)] == [200] * 4
            assert states(gateway, protocol) == ["up", "up"]
        for stopped, _ in servers.values():
            stopped.signal(signal.SIGSTOP)
        found = await asyncio.gather(*(calls(gateway, protocol, 40) for protocol in PROTOCOLS))
        told = {protocol: states(gateway, protocol) for protocol in PROTOCOLS}
        for stopped, _ in servers.values():
            stopped.signal(signal.SIGCONT)
        await asyncio.gather(*(back(gateway, protocol) for protocol in PROTOCOLS))
    for protocol, statuses in zip(PROTOCOLS, found, strict=True):
        assert statuses.count(504) in range(1, 6), protocol
        assert statuses[-20:] == [200] * 20, protocol
    # The one slot of a server that takes one call at a time stays taken: it needs no ejection to get no calls.
    assert told["v2-rest"] == told["v2-grpc"] == ["down", "up"]


async def calls(gateway: Gateway, model: str, count: int) -> list[int]:
    return [await infer(gateway, model) for _ in range(count)]


async def back(gateway: Gateway, model: str) -> None:
    """Until the endpoint is up again; the trial may be any of the calls."""
    while states(gateway, model) != ["up", "up"] or gateway.state.status().backends[model].endpoints[0].in_flight:
        assert await infer(gateway, model) == 200


@contextmanager
def deaf() -> Iterator[str]:
    """An address where connection attempts get no answer, as where packets are dropped: its backlog is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as stack:
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


async def test_a_call_that_finds_no_connection_goes_to_another_endpoint_and_holds_up_nobody(
    servers: dict[str, list[Process]],
) -> None:
    with deaf() as nowhere:
        addresses = {}
        for protocol, (_, works) in servers.items():
            scheme = "tcp://" if protocol == "mip" else ""
            addresses[protocol] = [f"{scheme}{nowhere}", address(works)]
        async with running(addresses, seconds=2) as gateway:
            for protocol in PROTOCOLS:
                first = asyncio.ensure_future(infer(gateway, protocol))
                await until(lambda at=protocol: gateway.state.status().backends[at].endpoints[0].in_flight, 0)  # type: ignore[misc]
                others = [await infer(gateway, protocol) for _ in range(5)]
                assert not first.done()  # it is still connecting
                assert others == [200] * 5
                assert await first == 200
                assert states(gateway, protocol) == ["down", "up"]
                assert [await infer(gateway, protocol) for _ in range(5)] == [200] * 5
