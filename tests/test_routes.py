"""Routes through a whole gateway, with reference servers behind it: splits, fallbacks, inputs, captures."""

import asyncio
import math
import signal
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.assembly.connecting import connect
from gateway.assembly.registry import protocols
from gateway.core.errors import GatewayError, Status
from gateway.core.messages import Headers
from gateway.core.models import ModelEntry, Signature
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS, Target
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor, tensor
from gateway.reference import signature
from gateway.routing.backend import Backend, local_backend
from gateway.routing.branches import RANDOM
from gateway.routing.endpoint import Endpoint
from gateway.runtime.app import Gateway
from tests.interop.processes import Process
from tests.limits import until
from tests.paused_server import http, listening, read_message
from tests.running_gateway import reference, running_gateway
from tests.skipping_loop import skip
from tests.test_hung_servers import address as address_of
from tests.test_hung_servers import reference as reference_process

Numbers = np.ndarray[Any, Any]
WHOLE = signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 1])])
HALF = signature(inputs=[("x", "FP32", [-1, 2])], outputs=[("y", "FP64", [-1, 1])])


def answering(number: float) -> Any:
    """A model that answers with this number for each row."""
    return lambda x: np.full((len(x), 1), number)


def slope(x: Numbers, out_wrt: int, in_wrt: int, sens: Numbers) -> Numbers:
    return np.asarray(sens * np.array([[3.0, 4.0]]))


class One:
    """The models of the first server. Its answers are 1."""

    m = WHOLE(answering(1.0))
    half = HALF(answering(1.0))
    steep = signature(
        inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 1])], gradient=slope
    )(answering(1.0))  # fmt: skip


class Two:
    """The models of the second server. Its answers are 2."""

    m = WHOLE(answering(2.0))
    old = WHOLE(answering(2.0))
    posterior = signature(
        inputs=[("theta", "FP64", [-1, 2])], outputs=[("logdensity", "FP64", [-1, 1])]
    )(answering(2.0))  # fmt: skip


class Running:
    """Servers, a gateway and its clients, all of one test."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._clients: dict[tuple[str, str], Backend] = {}
        self.gateway: Gateway | None = None

    async def server(self, protocol: str, *models: str) -> str:
        """The address of a server with models of this file."""
        return await self._stack.enter_async_context(reference(protocol, *(f"{__name__}:{each}" for each in models)))

    def process(self, protocol: str, folder: Path) -> tuple[Process, str]:
        """A server in a process of its own, with the bundled model `posterior`, and its address."""
        server = reference_process(protocol, folder)
        self._stack.callback(server.stop)
        return server, address_of(server)

    async def start(self, text: str) -> None:
        self.gateway = await self._stack.enter_async_context(running_gateway(text))

    async def ask(
        self,
        protocol: str,
        model: str,
        *inputs: Tensor,
        operation: Operation = Operation.INFER,
        headers: Mapping[str, str] | None = None,
        version: str = "",
        **parameters: int | str,
    ) -> Any:
        """The answer to a client of `protocol` at the listener of that name."""
        raw = [(name.encode(), text.encode()) for name, text in (headers or {}).items()]
        request = Request(operation, model, version, inputs=inputs, headers=Headers(raw), parameters=parameters)
        return await self._client(protocol)(request)

    def stream(self, protocol: str, model: str, *inputs: Tensor) -> AsyncGenerator[Response, None]:
        """The responses to a client of `protocol` that takes any number of them."""
        return self._client(protocol).stream(Request(Operation.STREAM, model, inputs=inputs))

    def _client(self, protocol: str) -> Backend:
        assert self.gateway is not None
        key = protocol, address = protocol, self.gateway.state.listeners[protocol].address
        if key not in self._clients:
            spoken = protocols()[protocol]
            connector = connect(address, spoken, DEFAULT_LIMITS)
            self._stack.push_async_callback(connector.close)
            target = Target("client", forward_headers=("x-user", "x-canary"))
            self._clients[key] = local_backend(target, spoken, [Endpoint(address, connector)], 0)
        return self._clients[key]


@pytest.fixture
async def here() -> AsyncIterator[Running]:
    async with AsyncExitStack() as stack:
        yield Running(stack)


def listeners(*names: str, model: str = "m") -> str:
    rows = (f'  - {{name: {name}, bind: "127.0.0.1:0", protocols: [{name}], model: {model}}}\n' for name in names)
    return f"listeners:\n{''.join(rows)}"


def backends(**addresses: tuple[str, str]) -> str:
    rows = (f'  {name}: {{protocol: {each[0]}, endpoints: ["{each[1]}"]}}\n' for name, each in addresses.items())
    return f"backends:\n{''.join(rows)}"


def row(name: str = "x", datatype: type = np.float64, *, batch: bool = True) -> Tensor:
    return tensor(name, np.array([[0.5, 1.5]] if batch else [0.5, 1.5], datatype))


def number(answer: object) -> float:
    """The only number of a response."""
    assert isinstance(answer, Response), answer
    return float(answer.outputs[0].array.reshape(-1)[0])


V2 = ("v2-rest", "v2-grpc")
POSTERIOR = -7.825
"""The bundled model `posterior` at the point of `row`."""
SPLIT = """
routes:
  - match: {model: m}
    split: [{backend: one, weight: 9}, {backend: two, weight: 1}]
    sticky: {header: x-user}
"""


async def split(here: Running) -> None:
    one, two = await here.server("v2-grpc", "One.m"), await here.server("v2-rest", "Two.m")
    await here.start(listeners(*V2, "umbridge") + backends(one=("v2-grpc", one), two=("v2-rest", two)) + SPLIT)


async def test_calls_are_split_by_weight(here: Running) -> None:
    await split(here)
    RANDOM.seed(7)
    calls = 600
    counts = Counter([number(await here.ask("v2-rest", "m", row())) for _ in range(calls)])
    assert abs(counts[2.0] - calls * 0.1) <= 5 * math.sqrt(calls * 0.1 * 0.9)
    assert counts.total() == calls
    # each part of the split has a bridge of its own, which fits points to the model
    points = Counter([number(await here.ask("umbridge", "m", row(batch=False))) for _ in range(100)])
    assert set(points) == {1.0, 2.0}


async def test_a_user_stays_at_one_backend_over_every_transport(here: Running) -> None:
    await split(here)
    found = {
        user: {number(await here.ask(each, "m", row(), headers={"x-user": user})) for each in V2 for _ in range(3)}
        for user in map(str, range(60))
    }
    assert all(len(each) == 1 for each in found.values())
    assert set().union(*found.values()) == {1.0, 2.0}


@asynccontextmanager
async def stateful(number: float) -> AsyncIterator[str]:
    """The address of a V2 server that answers everything with this number. (Reference models have no sequences.)"""
    body = b'{"model_name":"m","outputs":[{"name":"y","datatype":"FP64","shape":[1,1],"data":[%r]}]}' % number

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_message(reader)
        writer.write(http(b"HTTP/1.1 200 OK\r\nConnection: close", body))
        writer.close()

    async with listening(serve) as port:
        yield f"127.0.0.1:{port}"


async def test_a_sequence_stays_at_one_backend(here: Running) -> None:
    async with stateful(1.0) as one, stateful(2.0) as two:
        servers = "".join(
            f'  {name}: {{protocol: v2-rest, flavor: plain, endpoints: ["{each}"]}}\n'
            for name, each in (("one", one), ("two", two))
        )
        await here.start(f"{listeners(*V2)}backends:\n{servers}{SPLIT}")
        found = [
            {number(await here.ask(each, "m", row(), sequence_id=sequence)) for each in V2 for _ in range(3)}
            for sequence in range(1, 40)
        ]
    assert all(len(each) == 1 for each in found)
    assert set().union(*found) == {1.0, 2.0}


async def test_metadata_and_readiness_of_a_split_model(here: Running) -> None:
    one = await here.server("v2-rest", "One.m", "One.half")
    two = await here.server("v2-rest", "Two.m", "Two.old")
    await here.start(
        listeners("v2-rest")
        + backends(one=("v2-rest", one), two=("v2-rest", two), down=("v2-rest", "127.0.0.1:1"))
        + """
ready: all
routes:
  - match: {model: "*"}
    split: [{backend: down, weight: 0}, {backend: one, weight: 1}, {backend: two, weight: 9}]
"""
    )
    described = [await here.ask("v2-rest", "m", operation=Operation.METADATA) for _ in range(20)]
    assert all(isinstance(each, Signature) for each in described)
    ready = {name: await here.ask("v2-rest", name, operation=Operation.MODEL_READY) for name in ("half", "old", "none")}
    assert ready == {"half": True, "old": True, "none": False}
    # a backend that gets no calls need not be ready
    assert await here.ask("v2-rest", "", operation=Operation.READY) is True


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "mip"])
async def test_the_fallback_answers_when_the_first_server_is_killed(
    here: Running, protocol: str, tmp_path: Path
) -> None:
    server, main = here.process(protocol, tmp_path)
    legacy = await here.server("v2-rest", "Two.posterior")
    text = """
routes:
  - match: {model: posterior}
    backend: main
    fallback: [gone, legacy]
    signature:
      inputs: [{name: theta, datatype: FP64, shape: [-1, 2]}]
      outputs: [{name: logdensity, datatype: FP64, shape: [-1, 1]}]
"""
    servers = backends(main=(protocol, main), gone=("v2-rest", "127.0.0.1:1"), legacy=("v2-rest", legacy))
    await here.start(listeners(*V2, "mip", model="posterior") + servers + text)
    theta = row("theta")
    assert {number(await here.ask(each, "posterior", theta)) for each in (*V2, "mip")} == {POSTERIOR}
    server.signal(signal.SIGKILL)
    server.stop()
    assert {number(await here.ask(each, "posterior", theta)) for each in (*V2, "mip")} == {2.0}


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "umbridge", "grps-rest"])
async def test_a_model_that_the_first_server_does_not_have_is_asked_of_the_fallback(
    here: Running, protocol: str
) -> None:
    one, two = await here.server(protocol, "One.m"), await here.server(protocol, "Two.m", "Two.old")
    text = 'routes: [{match: {model: "*"}, backend: one, fallback: [two]}]\n'
    await here.start(listeners(*V2) + backends(one=(protocol, one), two=(protocol, two)) + text)
    x = row("input0" if protocol == "umbridge" else "x")
    for each in V2:
        assert number(await here.ask(each, "m", x)) == 1.0
        assert number(await here.ask(each, "old", x)) == 2.0
        with pytest.raises(GatewayError) as failed:
            await here.ask(each, "new", x)
        assert failed.value.status is Status.NOT_FOUND
    index = await here.ask("v2-grpc", "", operation=Operation.MODELS)
    assert {each.name for each in index if isinstance(each, ModelEntry)} >= {"m", "old"}


async def test_a_stream_has_the_fallback_too(here: Running) -> None:
    legacy = await here.server("v2-grpc", "Two.m")
    text = "routes: [{match: {model: m}, backend: gone, fallback: [legacy]}]\n"
    await here.start(
        listeners("v2-grpc") + backends(gone=("v2-grpc", "127.0.0.1:1"), legacy=("v2-grpc", legacy)) + text
    )
    assert [number(each) async for each in here.stream("v2-grpc", "m", row())] == [2.0]


async def test_a_call_that_may_have_run_is_not_repeated(here: Running, tmp_path: Path) -> None:
    """The first server has got the call and hangs: its backend is not `safe`."""
    server, main = here.process("v2-rest", tmp_path)
    legacy = await here.server("v2-rest", "Two.posterior")
    text = """
routes:
  - {match: {model: posterior}, backend: main, fallback: [legacy], policies: [{timeout: {seconds: 30}}]}
"""
    await here.start(listeners("v2-rest") + backends(main=("v2-rest", main), legacy=("v2-rest", legacy)) + text)
    assert number(await here.ask("v2-rest", "posterior", row("theta"))) == POSTERIOR
    server.signal(signal.SIGSTOP)
    try:
        call = asyncio.ensure_future(here.ask("v2-rest", "posterior", row("theta")))
        assert here.gateway is not None
        [endpoint] = here.gateway.state.assembly.backends["main"].endpoints
        await until(lambda: endpoint.in_flight)
        await skip(30)
        with pytest.raises(GatewayError) as failed:
            await call
    finally:
        server.signal(signal.SIGCONT)
    assert failed.value.status is Status.DEADLINE_EXCEEDED


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "graphpipe"])
async def test_the_datatype_of_an_input_chooses_the_backend(here: Running, protocol: str) -> None:
    one, two = await here.server("v2-rest", "One.half"), await here.server("v2-rest", "Two.m")
    text = """
routes:
  - {match: {model: m, input: {datatype: FP32, shape: [-1, 2]}}, backend: one, rewrite: {model: half}}
  - {match: {model: m, input: {datatype: FP64}}, backend: two}
"""
    await here.start(listeners(protocol) + backends(one=("v2-rest", one), two=("v2-rest", two)) + text)
    assert number(await here.ask(protocol, "m", row(datatype=np.float32))) == 1.0
    assert number(await here.ask(protocol, "m", row())) == 2.0
    with pytest.raises(GatewayError, match="does not accept these inputs") as failed:
        await here.ask(protocol, "m", row(datatype=np.int64))
    assert failed.value.status is Status.INVALID_ARGUMENT


@pytest.mark.parametrize("protocol", V2)
async def test_a_header_chooses_the_backend(here: Running, protocol: str) -> None:
    one, two = await here.server("v2-rest", "One.m"), await here.server("v2-rest", "Two.m")
    text = """
routes:
  - {match: {model: m, header: {X-Canary: "1"}}, backend: two}
  - {match: {model: m, header: {x-user: "*"}}, backend: two}
  - {match: {model: m}, backend: one}
"""
    await here.start(listeners(protocol) + backends(one=("v2-rest", one), two=("v2-rest", two)) + text)
    for headers, expected in (({}, 1.0), ({"x-canary": "1"}, 2.0), ({"x-canary": "0"}, 1.0), ({"x-user": "a"}, 2.0)):
        assert number(await here.ask(protocol, "m", row(), headers=headers)) == expected


CAPTURES = """
routes:
  - {match: {model: "team-*-model"}, backend: one, rewrite: {model: "{1}"}}
"""


@pytest.mark.parametrize("protocol", sorted(protocols()))
async def test_captures_name_the_model_over_every_listener(here: Running, protocol: str) -> None:
    one = await here.server("v2-rest", "One.m", "One.steep")
    await here.start(listeners(protocol, model="team-m-model") + backends(one=("v2-rest", one)) + CAPTURES)
    point = row(batch=protocol != "umbridge")
    assert number(await here.ask(protocol, "team-m-model", point)) == 1.0


@pytest.mark.parametrize("protocol", V2)
@pytest.mark.parametrize("backend", ["v2-rest", "umbridge"])
async def test_metadata_lists_the_versions_that_routes_name(here: Running, protocol: str, backend: str) -> None:
    """Those are the versions that clients may ask for, whatever the servers call their own."""
    one, two = await here.server(backend, "One.m"), await here.server(backend, "Two.m")
    await here.start(
        listeners(protocol)
        + backends(one=(backend, one), two=(backend, two))
        + """
routes:
  - {match: {model: m, version: "1"}, backend: one, rewrite: {version: ""}}
  - {match: {model: m, version: "2"}, backend: two, rewrite: {version: ""}}
  - {match: {model: m}, backend: two}
"""
    )
    for version in ("1", "2"):
        told = await here.ask(protocol, "m", operation=Operation.METADATA, version=version)
        assert told.versions == ("1", "2")
    told = await here.ask(protocol, "m", operation=Operation.METADATA)
    assert told.versions == ("1", "2")
    point = row("x" if backend == "v2-rest" else "input0")
    assert number(await here.ask(protocol, "m", point, version="1")) == 1.0


async def test_metadata_lists_the_servers_versions_after_those_of_routes(here: Running) -> None:
    """A request for one of these takes the route without a version."""
    one = await here.server("v2-rest", "One.m")
    server = protocols()["v2-rest"]
    connector = connect(one, server, DEFAULT_LIMITS)
    target = Target("one")
    told = await local_backend(target, server, [Endpoint(one, connector)], 0)(Request(Operation.METADATA, "m"))
    await connector.close()
    assert isinstance(told, Signature)
    await here.start(
        listeners("v2-rest")
        + backends(one=("v2-rest", one))
        + """
routes:
  - {match: {model: m, version: "7"}, backend: one, rewrite: {version: ""}}
  - {match: {model: m, version: "8", header: {x-canary: a}}, backend: one}
  - {match: {model: m}, backend: one}
"""
    )
    signed = await here.ask("v2-rest", "m", operation=Operation.METADATA)
    assert signed.versions == ("7", *told.versions)


async def test_companions_versions_and_lists_know_the_captures(here: Running) -> None:
    one = await here.server("v2-rest", "One.m", "One.steep")
    spoken = ("v2-rest", "v2-grpc", "umbridge", "grps-rest")
    await here.start(listeners(*spoken) + backends(one=("v2-rest", one)) + CAPTURES)
    sens = tensor("sens", np.ones((1, 1)))
    gradient = await here.ask("v2-rest", "team-steep-model.gradient", row(), sens)
    assert (gradient.model, gradient.outputs[0].array.tolist()) == ("team-steep-model.gradient", [[3.0, 4.0]])
    reply = await here.ask("v2-grpc", "team-m-model", row())
    assert reply.model == "team-m-model"
    assert number(await here.ask("grps-rest", "team-m-model-1", row())) == 1.0
    index = await here.ask("v2-grpc", "", operation=Operation.MODELS)
    assert {each.name for each in index} >= {"team-m-model", "team-steep-model"}
    assert {each.name for each in index}.isdisjoint({"m", "steep"})
    assert {each.name for each in await here.ask("umbridge", "", operation=Operation.MODELS)} >= {"team-m-model"}
