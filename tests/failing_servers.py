"""Load on a backend of two model servers while one of them is paused, killed and started again."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from sys import executable

from gateway.admin.status import EndpointStatus
from gateway.runtime.app import Gateway
from tests.interop.processes import Process, eventually, free_port
from tests.limits import GENEROUS
from tests.paused_server import http, port_of, read_message
from tests.running_gateway import running_gateway

FLAVORS = {"v2-rest": "flavor: plain"}
SCHEMES = {"mip": "tcp://", "grps-brpc": "tcp://"}
CONFIG = """
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
backends:
  servers:
    protocol: {protocol}
    endpoints: {endpoints}
    safe: true
    policies: {policies}
    {more}
routes:
  - match: {{model: "*"}}
    backend: servers
    rewrite: {{model: posterior}}
    signature:
      inputs: [{{name: theta, datatype: FP64, shape: [-1, 2]}}]
      outputs: [{{name: logdensity, datatype: FP64, shape: [-1, 1]}}]
"""
POLICIES = "[{timeout: {seconds: 60, per_try: 5}}, {retry: {attempts: 4}}]"
REQUEST = http(
    b"POST /v2/models/m/infer HTTP/1.1",
    b'{"inputs":[{"name":"theta","datatype":"FP64","shape":[1,2],"data":[1.0,2.0]}]}',
)


class Server:
    """A reference server that always has the same address."""

    def __init__(self, protocol: str, folder: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._command = [executable, "-m", "gateway", "reference", "--protocol", protocol]
        self._command += ["--bind", SCHEMES.get(protocol, "") + self.address, "--model", "posterior"]
        self._folder = folder
        self.process = self.begin()

    def begin(self) -> Process:
        """Start it, without waiting until it serves."""
        self.process = Process(self._command, self._folder)
        return self.process

    @property
    def serves(self) -> bool:
        """Whether it has been started and listens."""
        return "\nready" in self.process.stdout()

    def stop(self) -> None:
        """End it, paused or not."""
        self.process.signal(signal.SIGCONT)
        self.process.stop()


class Load:
    """`clients` that call a gateway one call after the other until `stopped`. `statuses` counts the replies."""

    def __init__(self, gateway: Gateway, clients: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.failed: list[bytes] = []
        self._port = port_of(gateway.state.listeners["http"].address)
        self._stopped = False
        self._tasks = [asyncio.ensure_future(self._client()) for _ in range(clients)]

    async def calls(self, count: int) -> None:
        """Wait until so many further calls were answered."""
        wanted = self.statuses.total() + count
        await self.until(lambda: self.statuses.total() >= wanted)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait, with calls going on, until `condition` holds."""
        while not condition():
            for task in self._tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Let each client finish its call."""
        self._stopped = True
        await asyncio.gather(*self._tasks)

    async def _client(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        while not self._stopped:
            writer.write(REQUEST)
            head, body = await read_message(reader)
            status = int(head.split(b" ", 2)[1])
            self.statuses[status] += 1
            if status != 200:
                self.failed.append(body)
        writer.close()


@asynccontextmanager
async def running(
    protocol: str, addresses: list[str], clients: int, policies: str = POLICIES
) -> AsyncIterator[tuple[Gateway, Load]]:
    """A gateway in front of the servers at `addresses`, and load on it."""
    scheme = SCHEMES["mip"] if protocol == "mip" else ""
    text = CONFIG.format(
        protocol=protocol,
        endpoints=json.dumps([scheme + each for each in addresses]),
        policies=policies,
        more=FLAVORS.get(protocol, ""),
    )
    async with running_gateway(text) as gateway:
        load = Load(gateway, clients)
        try:
            yield gateway, load
        finally:
            await load.stop()


def status_of(gateway: Gateway) -> list[EndpointStatus]:
    """Of the endpoints."""
    return gateway.state.status().backends["servers"].endpoints


async def survive(protocol: str, folder: Path, calls: int, clients: int, times: int) -> Load:
    """The load of at least `calls` calls on two servers, of which one is killed, comes back, is paused, and goes on;
    `times` times, each time the other one."""
    part = calls // (4 * times)
    with ExitStack() as stack:
        servers = [Server(protocol, folder / str(at)) for at in range(2)]
        for each in servers:
            stack.callback(each.stop)
        assert eventually(lambda: all(each.serves for each in servers), seconds=GENEROUS)
        async with running(protocol, [each.address for each in servers], clients) as (gateway, load):
            for time in range(times):
                await fail(servers[time % 2], time % 2, part, gateway, load)
    return load


async def fail(server: Server, at: int, part: int, gateway: Gateway, load: Load) -> None:
    """Let `server`, the endpoint with index `at`, fail in both ways, with `part` calls in each state."""

    def are_up() -> bool:
        return [each.state for each in status_of(gateway)] == ["up", "up"]

    def is_known_to_hang() -> bool:
        error = status_of(gateway)[at].last_error
        return error is not None and error.text.startswith(("no answer", "no connection"))

    await load.until(are_up)  # the first ejection for a timeout lasts 10 s
    await load.calls(part)
    server.process.signal(signal.SIGKILL)
    await load.calls(part)
    server.process.stop()
    server.begin()
    await load.until(lambda: server.serves)
    await load.until(are_up)
    server.process.signal(signal.SIGSTOP)
    await load.until(is_known_to_hang)
    await load.calls(part)
    server.process.signal(signal.SIGCONT)
    await load.calls(part)
