"""Clients of every wire form that send one inference after the other, and a TCP balancer that follows readiness."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.assembly import registry
from gateway.assembly.connecting import connect
from gateway.core.errors import GatewayError, Reason
from gateway.core.exchange import ask
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS, Target
from gateway.core.requests import Request, Response
from gateway.core.tensors import tensor
from tests.deploy.pods import Pod
from tests.limits import until

POLL = 0.05

Array = NDArray[np.generic]

Infer = Callable[[], Awaitable[list[Any]]]


@asynccontextmanager
async def client(protocol: str, address: str, model: str, x: Array) -> AsyncIterator[Infer]:
    """A client that keeps its connections and asks for nothing else: each call infers with the input `x`, and returns
    the numbers of each output."""
    spoken = registry.protocols()[protocol]
    connector = connect(address, spoken, DEFAULT_LIMITS)
    request = Request(Operation.INFER, model, inputs=(tensor("x", x),))

    async def infer() -> list[Any]:
        response = await ask(request, spoken, connector, Target("server"))
        assert isinstance(response, Response)
        return [each.array.ravel().tolist() for each in response.outputs]

    try:
        yield infer
    finally:
        await connector.close()


class LoggedOff(Exception):  # noqa: N818 - it is no error of the server
    """The server has not accepted a call, and said so."""


class Balancer:
    """What a Service does: each new connection goes to the next pod that is ready. Connections that are open stay."""

    def __init__(self, pods: list[Pod]) -> None:
        self.pods = pods
        self.ready: list[Pod] = []
        self.addresses: dict[str, str] = {}
        """By the name of the port."""
        self._turn = 0
        self._open: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    async def watch(self) -> None:
        """Ask the readiness probes of all pods again and again."""
        while True:
            pods = list(self.pods)
            statuses = await asyncio.gather(*(asyncio.to_thread(pod.probe, "readiness") for pod in pods))
            self.ready = [pod for pod, status in zip(pods, statuses, strict=True) if status == 200]
            await asyncio.sleep(POLL)

    async def connected(self, port: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._turn += 1
        pod = self.ready[self._turn % len(self.ready)]
        host, _, number = pod.address(port).rpartition(":")
        try:
            there, back = await asyncio.open_connection(host, int(number))
        except OSError:
            writer.close()
            return
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task
        self._open[task] = [writer, back]
        await asyncio.gather(_copy(reader, back), _copy(there, writer))
        del self._open[task]

    async def close(self) -> None:
        """End the connections that are still open."""
        for writer in (writer for writers in self._open.values() for writer in writers):
            writer.close()
        await asyncio.gather(*self._open)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what arrives, then that nothing more does."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def balanced(pods: list[Pod], ports: Sequence[str]) -> AsyncIterator[Balancer]:
    """A Balancer on loopback, with an address for each of these ports of the pods."""
    balancer = Balancer(pods)
    async with AsyncExitStack() as stack:
        for port in ports:
            server = await asyncio.start_server(partial(balancer.connected, port), "127.0.0.1", 0)
            stack.callback(server.close)
            balancer.addresses[port] = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        watching = asyncio.ensure_future(balancer.watch())
        stack.push_async_callback(balancer.close)
        stack.callback(watching.cancel)
        await until(lambda: len(balancer.ready) == len(pods), POLL)
        yield balancer


class Load:
    """Inferences without end over several wire forms, each by a client that keeps its connection and by one that opens
    a new one for every call. What was not answered is in `failures`.

    Nothing is sent twice, with one exception. A brpc server that stops answers ELOGOFF to what it has not accepted, and
    a client of brpc then sends the call once more, on a new connection: so does the one here that keeps its own.
    """

    def __init__(self, addresses: Mapping[str, str], model: str, x: Array) -> None:
        self.addresses, self.model, self.x = addresses, model, x
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        self._tasks: list[asyncio.Future[None]] = []
        self._ended = False

    def start(self) -> None:
        for protocol in self.addresses:
            self._tasks += [asyncio.ensure_future(self._kept(protocol)), asyncio.ensure_future(self._new(protocol))]

    async def _kept(self, protocol: str) -> None:
        sent_away = False
        while not self._ended:
            async with client(protocol, self.addresses[protocol], self.model, self.x) as infer:
                while not self._ended:
                    before, sent_away = sent_away, False
                    try:
                        await self._count(f"{protocol}, one connection", infer)
                    except LoggedOff:
                        if before or protocol != "grps-brpc":
                            self.failures.append(f"{protocol}, one connection: sent away")
                        sent_away = True
                        break

    async def _new(self, protocol: str) -> None:
        while not self._ended:
            async with client(protocol, self.addresses[protocol], self.model, self.x) as infer:
                await self._count(f"{protocol}, new connections", infer)

    async def _count(self, name: str, infer: Infer) -> None:
        try:
            assert await infer() == [[2.0, 4.0, 6.0]]
            self.answers[name] += 1
        except GatewayError as error:
            if error.reason is Reason.NOT_READY and name.endswith("one connection"):
                raise LoggedOff from error
            self.failures.append(f"{name}: {error!r}")
        except Exception as error:
            self.failures.append(f"{name}: {error!r}")
        await asyncio.sleep(0.01)

    async def progress(self, count: int = 5) -> None:
        """Until every client got so many answers more, or one got none."""
        before = Counter(self.answers)
        clients = 2 * len(self.addresses)

        def have_answers() -> bool:
            return len(self.answers) == clients and all(
                self.answers[name] >= before[name] + count for name in self.answers
            )

        await until(lambda: self.failures or have_answers(), POLL)

    async def end(self) -> None:
        """Every client sends its last request, and is answered."""
        self._ended = True
        await asyncio.gather(*self._tasks)
