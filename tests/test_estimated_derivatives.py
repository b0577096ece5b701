"""Derivatives by finite differences through a whole gateway: whose turn it is, who ends what, and what replies say."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from gateway.reference import signature
from gateway.runtime.app import Gateway
from tests.assembly.explain.test_explaining import explanation
from tests.limits import until
from tests.paused_server import ask as send
from tests.paused_server import http, port_of
from tests.running_gateway import reference, running_gateway
from tests.test_queued_calls import ask, asked, at_the_server_and_waiting, waiting

CONFIG = """
listeners:
  - {{name: http, bind: "127.0.0.1:0", protocols: [umbridge, v2-rest], reply_headers: true, allow_explain: true}}
  - {{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc], reply_headers: true, allow_explain: true}}
  - {{name: plain, bind: "127.0.0.1:0", protocols: [umbridge]}}
backends: {{lab: {{protocol: umbridge, endpoints: ["http://{address}"], max_in_flight: 1}}}}
routes: [{{match: {{}}, backend: lab, translate: {{derivatives: {{{keys}}}}}}}]
"""
SIZE = 500


class Model:
    """Sums of sines. Calls take one of the places that a test lets go; None lets all calls go."""

    places: asyncio.Semaphore | None = None
    running = most = 0
    seen: list[float]
    """The first elements of the points, in the order of the calls."""
    blocked: asyncio.Event
    """Set while a call waits for a place."""


@signature(inputs=[("x", "FP64", [-1, SIZE])], outputs=[("y", "FP64", [-1, 1])])
async def sines(x: Any) -> Any:
    Model.seen.append(float(x[0, 0]))
    Model.running += 1
    Model.most = max(Model.most, Model.running)
    try:
        if Model.places is not None:
            if Model.places.locked():
                Model.blocked.set()
            await Model.places.acquire()
        return np.sin(x).sum(axis=1, keepdims=True)
    finally:
        Model.running -= 1


def let(count: int) -> None:
    """Let so many more calls go."""
    assert Model.places is not None
    for _ in range(count):
        Model.places.release()


@asynccontextmanager
async def running(places: int | None = None, keys: str = "") -> AsyncIterator[Gateway]:
    """A gateway before an UM-Bridge server that has `sines`."""
    Model.places = None if places is None else asyncio.Semaphore(places)
    Model.running = Model.most = 0
    Model.seen, Model.blocked = [], asyncio.Event()
    async with (
        reference("umbridge", f"{__name__}:sines") as address,
        running_gateway(CONFIG.format(address=address, keys=keys)) as gateway,
    ):
        yield gateway


X = np.linspace(-3, 3, SIZE)


def message(path: str, head: bytes = b"", **body: object) -> bytes:
    start = b"POST /%b HTTP/1.1\r\nConnection: close%b" % (path.encode(), head)
    return http(start, json.dumps({"name": "sines", "config": {}, **body}).encode())


def evaluate(first: float) -> bytes:
    return message("Evaluate", input=[[first, *X[1:]]])


def gradient(head: bytes = b"") -> bytes:
    return message("Gradient", head, input=[X.tolist()], outWrt=0, inWrt=0, sens=[1.0])


def jacobian(head: bytes = b"") -> bytes:
    return message("ApplyJacobian", head, input=[X.tolist()], outWrt=0, inWrt=0, vec=[1.0] * SIZE)


def hessian() -> bytes:
    return message(
        "ApplyHessian", input=[X.tolist()], outWrt=0, inWrt1=0, inWrt2=0, sens=[1.0], vec=np.ones(SIZE).tolist()
    )


def exact(body: bytes) -> None:
    assert np.abs(json.loads(body)["output"] - np.cos(X)).max() < 1e-6


async def test_a_gradient_of_a_thousand_points_lets_others_have_their_turn() -> None:
    async with running(places=0) as gateway:
        many = asked(gateway, "127.0.0.2", gradient())
        await waiting(gateway, 1)  # one at the server and one in the queue, not a thousand
        one = asked(gateway, "127.0.0.3", evaluate(77.0))
        await waiting(gateway, 2)
        let(2 * SIZE + 1)
        assert (await one).status == 200
        turn = Model.seen.index(77.0)
        assert turn <= 2, "it waited for more than the calls that came before it"
        reply = await many
        assert (reply.status, reply.headers["gateway-tries"]) == (200, str(2 * SIZE))
        exact(reply.body)
    assert (len(Model.seen), Model.most) == (2 * SIZE + 1, 1)


@pytest.mark.long
async def test_two_gradients_share_the_only_slot() -> None:
    """Each of two clients has every second turn."""
    async with running(places=0) as gateway:
        shifted = message("Gradient", input=[(X + 100).tolist()], outWrt=0, inWrt=0, sens=[1.0])
        first = asked(gateway, "127.0.0.2", gradient())
        await waiting(gateway, 1)
        second = asked(gateway, "127.0.0.3", shifted)
        await waiting(gateway, 3)
        let(4 * SIZE)
        exact((await first).body)
        assert (await second).status == 200
    of_second = [at for at, x in enumerate(Model.seen) if x > 50]
    assert len(of_second) == 2 * SIZE
    assert of_second[SIZE] < 2 * SIZE + 10
    assert Model.most == 1


@pytest.mark.long
@pytest.mark.parametrize("points", [0, 1, 7, 1003])
async def test_whoever_leaves_takes_all_calls_along(points: int) -> None:
    """At the first point, later in the first gradient of a Hessian, and in a later one."""
    async with running(places=points, keys="max_evaluations: 10000") as gateway:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(gateway.state.listeners["http"].address))
        writer.write(hessian())
        await Model.blocked.wait()
        await waiting(gateway, 1)
        writer.close()
        await waiting(gateway, 0)  # the point at the server keeps its slot until the server has finished it
        assert len(Model.seen) == points + 1
        after = asked(gateway, "127.0.0.3", evaluate(77.0))
        await waiting(gateway, 1)
        let(2)
        assert (await after).status == 200
        await waiting(gateway, 0, in_flight=0)
    assert len(Model.seen) == points + 2
    assert Model.seen[-1] == 77.0


def over_grpc(operation: Operation, *extras: Any) -> bytes:
    inputs = (tensor("input0", X[None]), *extras)
    request = Request(Operation.INFER, f"sines.{operation.value}", inputs=inputs)
    return b"".join(protocols()["v2-grpc"].encode_request(request, Target()).parts)


ASK_GRADIENT = over_grpc(Operation.GRADIENT, tensor("sens", np.ones((1, 1))))
ASK_JACOBIAN = over_grpc(Operation.APPLY_JACOBIAN, tensor("vec", np.ones((1, SIZE))))
METHOD = "/inference.GRPCInferenceService/ModelInfer"


@pytest.mark.parametrize("points", [0, 5])
async def test_all_calls_end_with_the_deadline(points: int) -> None:
    async with running(places=points) as gateway:
        async with grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address) as channel:
            call = channel.unary_unary(METHOD)(ASK_GRADIENT, timeout=0.5)
            assert await call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: at_the_server_and_waiting(gateway) == (int(Model.running > 0), 0), 0.001)
        assert len(Model.seen) <= points + 1
        let(2)
        assert (await asked(gateway, "127.0.0.3", evaluate(77.0))).status == 200
        await waiting(gateway, 0, in_flight=0)
    assert len(Model.seen) <= points + 2
    assert Model.seen[-1] == 77.0


async def test_replies_say_how_a_derivative_was_computed() -> None:
    async with running() as gateway:
        plain, asked_for, evaluated = [
            await asked(gateway, "127.0.0.2", each)
            for each in (jacobian(), jacobian(b"\r\nGateway-Derivative-Error: 1"), evaluate(1.0))
        ]
        assert plain.headers["gateway-derivative"] == "central, order 2, step 6.1e-06, 2 evaluations"
        assert plain.headers["gateway-tries"] == "2"
        assert "gateway-derivative-error" not in plain.headers
        assert asked_for.headers["gateway-derivative"] == "central, order 2, step 6.1e-06, 4 evaluations"
        told = float(asked_for.headers["gateway-derivative-error"])
        error = abs(json.loads(asked_for.body)["output"][0] / np.cos(X).sum() - 1)
        assert error < told < 1e-6
        assert not [name for name in evaluated.headers if name.startswith("gateway-derivative")]
        async with grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address) as channel:
            call = channel.unary_unary(METHOD)(ASK_JACOBIAN, metadata=[("gateway-derivative-error", "1")])
            await call
            metadata = dict([*await call.initial_metadata(), *await call.trailing_metadata()])
        assert metadata["gateway-derivative"] == "central, order 2, step 6.1e-06, 4 evaluations"
        assert float(str(metadata["gateway-derivative-error"])) == told


async def test_a_route_may_ask_for_the_error_and_a_listener_may_say_nothing() -> None:
    async with running(keys="method: forward, error: true") as gateway:
        reply = await ask(gateway, "127.0.0.2", jacobian())
        assert reply.headers["gateway-derivative"] == "forward, order 1, step 1.5e-08, 4 evaluations"
        assert 0 < float(reply.headers["gateway-derivative-error"]) < 1e-4
        Model.seen.clear()
        silent = await ask(gateway, "127.0.0.2", jacobian(b"\r\nGateway-Derivative-Error: 1"), "plain")
    assert silent.status == 200
    assert not [name for name in silent.headers if name.startswith("gateway-derivative")]
    assert len(Model.seen) == 2, "nobody can read the estimate, so it is not computed"


async def test_an_explanation_has_the_method_and_the_number_of_evaluations() -> None:
    async with running() as gateway:
        reply = await send(port_of(gateway.state.listeners["http"].address), jacobian(b"\r\nGateway-Explain: 1"))
    found = explanation(reply.partition(b"\r\n\r\n")[0].decode())
    [span] = [each for each in found["spans"] if each["name"] == "finite differences"]
    assert (span["how"], span["evaluations"]) == ("central, order 2, step 6.1e-06, 2 evaluations", 2)
    assert (found["tries"], found["status"]) == (2, "OK")
