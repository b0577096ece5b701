"""Calls that wait for an UM-Bridge server with one slot: what their replies say, and what a full queue says."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc.aio
import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.client import AsyncClient, Timeout, asynchronous
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from gateway.reference import signature
from gateway.runtime.app import Gateway
from gateway.transports.grpc.server import calls
from tests.limits import GENEROUS, until
from tests.paused_server import http, port_of
from tests.running_gateway import reference, running_gateway
from tests.skipping_loop import skip

CONFIG = """
listeners:
  - {{name: http, bind: "127.0.0.1:0", protocols: [umbridge, v2-rest]}}
  - {{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}}
backends: {{lab: {{protocol: umbridge, endpoints: ["http://{address}"], queue: {queue}}}}}
routes:
  - {{match: {{header: {{x-held: "*"}}}}, backend: lab}}
  - {{match: {{}}, backend: lab, policies: {policies}}}
models:
  parallel:
    inputs: {{x: "FP64 [-1, 2]"}}
    steps:
      a: {{model: gated, inputs: {{input0: $x}}}}
      b: {{model: gated, inputs: {{input0: $x}}}}
    outputs: {{y: {{sum: [$a, $b]}}}}
  chain:
    inputs: {{x: "FP64 [-1, 2]"}}
    steps:
      first: {{model: gated, inputs: {{input0: $x}}}}
      second: {{model: gated, inputs: {{input0: $first}}}}
    outputs: {{y: $second}}
"""
EVALUATE = http(
    b"POST /Evaluate HTTP/1.1\r\nConnection: close", b'{"name": "gated", "input": [[1.0, 2.0]], "config": {}}'
)
HELD = EVALUATE.replace(b"Host:", b"X-Held: 1\r\nHost:")
"""It has no time limit."""


def infer(model: str, name: str, rows: list[list[float]]) -> bytes:
    """A call over V2."""
    tensor = {"name": name, "datatype": "FP64", "shape": [len(rows), 2], "data": rows}
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nConnection: close"
    return http(head.encode(), json.dumps({"inputs": [tensor]}).encode())


INFER = infer("gated", "input0", [[1.0, 2.0]])
WAITS_FOR = {
    "rows": (infer("gated", "input0", [[1.0, 2.0], [3.0, 4.0]]), 2),
    "steps": (infer("parallel", "x", [[1.0, 2.0]]), 2),
    "chain": (infer("chain", "x", [[1.0, 2.0]]), 1),
}
"""Calls that are several calls of the server, and how many of these wait at first for its slot."""
LIMITED = "[{timeout: {seconds: 30}}]"
"""Policies with a time limit, which calls reach when the test skips time."""
OVER = rb"no answer within 30 s, of which 3\d\.\d\d s waiting for a free slot"
QUESTION = Request(Operation.INFER, "gated", inputs=(tensor("input0", np.ones((1, 2))),))


class Gate:
    """Calls of the model wait until it is opened."""

    opened: asyncio.Event
    reached = 0
    """How many calls have come to it."""


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 2])])
async def gated(x: Any) -> Any:
    Gate.reached += 1
    await Gate.opened.wait()
    return x


@asynccontextmanager
async def running(queue: str = "{}", policies: str = "[]") -> AsyncIterator[Gateway]:
    """A gateway before a server of one slot, whose gate is closed."""
    Gate.opened = asyncio.Event()
    async with (
        reference("umbridge", f"{__name__}:gated") as address,
        running_gateway(CONFIG.format(address=address, queue=queue, policies=policies)) as gateway,
    ):
        try:
            yield gateway
        finally:
            Gate.opened.set()


class Reply:
    """A reply of the gateway as raw HTTP."""

    def __init__(self, text: bytes) -> None:
        head, _, self.body = text.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split(" ", 2)[1])
        self.headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}


async def ask(gateway: Gateway, host: str, request: bytes = EVALUATE, listener: str = "http") -> Reply:
    """One call of a client at this address of the loopback network."""
    port = port_of(gateway.state.listeners[listener].address)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    try:
        writer.write(request)
        return Reply(await reader.read())
    finally:  # a connection that is still open when its loop ends is a warning in another test
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def at_the_server_and_waiting(gateway: Gateway) -> tuple[int, int]:
    """How many calls are."""
    lab = gateway.state.status().backends["lab"]
    return lab.endpoints[0].in_flight, lab.waiting


async def waiting(gateway: Gateway, count: int, in_flight: int = 1) -> None:
    """Until one call is at the server and so many wait for it."""
    await until(lambda: at_the_server_and_waiting(gateway) == (in_flight, count), 0.001)


@asynccontextmanager
async def held(gateway: Gateway, request: bytes = EVALUATE) -> AsyncIterator[None]:
    """One call is at the server and waits there until the gate is opened, as late as at the end."""
    call = asked(gateway, "127.0.0.2", request)
    await waiting(gateway, 0)
    yield
    Gate.opened.set()
    assert (await call).status == 200


async def late(gateway: Gateway, request: bytes, count: int) -> Reply:
    """The reply to a request whose `count` calls wait for the slot until its time is over."""
    call = asked(gateway, "127.0.0.3", request)
    await waiting(gateway, count)
    await skip(30)
    return await call


async def waited_in_vain(gateway: Gateway, count: int) -> None:
    """Until so many calls have waited for as long as they may, and none does any more."""
    await waiting(gateway, count)
    await skip(30)
    await waiting(gateway, 0)


def asked(gateway: Gateway, host: str, request: bytes = EVALUATE) -> "asyncio.Task[Reply]":
    return asyncio.ensure_future(ask(gateway, host, request))


@asynccontextmanager
async def grpc_call(gateway: Gateway) -> AsyncIterator[grpc.aio.UnaryUnaryCall]:
    body = b"".join(protocols()["v2-grpc"].encode_request(QUESTION, Target()).parts)
    async with grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address) as channel:
        yield channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(body)


async def test_each_client_is_told_its_place_and_how_long_it_waited() -> None:
    async with running() as gateway:
        first = asked(gateway, "127.0.0.2")
        await waiting(gateway, 0)
        others = []
        for count, host in enumerate(("127.0.0.2", "127.0.0.2", "127.0.0.3"), 1):
            others.append(asked(gateway, host))
            await waiting(gateway, count)
        queue = gateway.state.status().backends["lab"].queue
        assert queue is not None
        assert [(each.client, each.waiting) for each in queue.clients] == [("127.0.0.2", 2), ("127.0.0.3", 1)]
        assert queue.estimated_wait is None  # no call has ended yet
        Gate.opened.set()
        at_once = await first
        waited = await asyncio.gather(*others)
        queue = gateway.state.status().backends["lab"].queue
        assert queue is not None
        assert queue.estimated_wait == 0.0
    assert [each.status for each in (at_once, *waited)] == [200] * 4
    assert not [name for name in at_once.headers if name.startswith("gateway-queue")]
    # The third client came last, and its turn is before the second call of the first one.
    assert [each.headers["gateway-queue-place"] for each in waited] == ["1", "2", "2"]
    assert all(float(each.headers["gateway-queue-seconds"]) >= 0 for each in waited)


@pytest.mark.parametrize(("asked_for", "status"), [(EVALUATE, 503), (INFER, 429)], ids=["umbridge", "v2-rest"])
async def test_a_full_queue_says_when_to_come_back(asked_for: bytes, status: int) -> None:
    async with running("{length: 2}") as gateway:
        calls = []
        for count, host in enumerate(("127.0.0.2", "127.0.0.3", "127.0.0.4")):
            calls.append(asked(gateway, host))
            await waiting(gateway, count)
        refused = await ask(gateway, "127.0.0.5", asked_for)
        assert refused.status == status
        assert refused.headers["gateway-reason"] == "overloaded"
        assert refused.headers["retry-after"] == "1"
        assert b"2 of 2 places in the queue (queue.length) taken" in refused.body
        async with grpc_call(gateway) as call:
            assert await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert dict(await call.trailing_metadata() or ())["retry-after"] == "1"
        Gate.opened.set()
        assert [each.status for each in await asyncio.gather(*calls)] == [200] * 3


async def test_a_grpc_client_is_told_in_its_trailing_metadata() -> None:
    async with running() as gateway, held(gateway), grpc_call(gateway) as call:
        await waiting(gateway, 1)
        Gate.opened.set()
        assert await call.code() == grpc.StatusCode.OK
        told = dict(await call.trailing_metadata() or ())
        assert told["gateway-queue-place"] == "1"
        assert float(str(told["gateway-queue-seconds"])) >= 0


async def test_a_call_that_waits_too_long_is_refused() -> None:
    async with running("{timeout: 0.01}") as gateway, held(gateway):
        late = await ask(gateway, "127.0.0.3")
        assert (late.status, late.headers["gateway-reason"], late.headers["retry-after"]) == (503, "overloaded", "1")
        assert json.loads(late.body)["error"]["message"] == (
            "backend 'lab': no endpoint was free within 0.01 s (queue.timeout); try again later"
        )
        assert late.headers["gateway-queue-place"] == "1"


@pytest.mark.parametrize("asked_for", [EVALUATE, INFER], ids=["umbridge", "v2-rest"])
async def test_a_timeout_says_how_long_the_call_waited_and_whether_it_was_sent(asked_for: bytes) -> None:
    async with running(policies=LIMITED) as gateway:
        limit = b", the limit that the policy timeout sets (timeout.seconds)"
        call = asked(gateway, "127.0.0.2", asked_for)
        await waiting(gateway, 0)
        await skip(30)
        sent = await call
        assert sent.status == 504
        assert b"no answer within 30 s" + limit in sent.body
        assert "retry-after" not in sent.headers
        await waiting(gateway, 0, in_flight=0)
        async with held(gateway, HELD):
            unsent = await late(gateway, asked_for, 1)
        assert unsent.status == 504
        assert re.search(OVER + re.escape(limit), unsent.body)
        assert unsent.headers["retry-after"] == "1"


@pytest.mark.parametrize("parts", WAITS_FOR)
async def test_the_reply_to_several_calls_tells_the_longest_wait_of_them(parts: str) -> None:
    request, count = WAITS_FOR[parts]
    async with running() as gateway, held(gateway):
        call = asked(gateway, "127.0.0.3", request)
        await waiting(gateway, count)
        Gate.opened.set()
        told = await call
    assert told.status == 200
    # The second part waits longer than the first one only if the model takes longer than what lies between them.
    assert 1 <= int(told.headers["gateway-queue-place"]) <= min(count, 2)
    assert float(told.headers["gateway-queue-seconds"]) >= 0


@pytest.mark.parametrize("parts", WAITS_FOR)
async def test_a_timeout_of_several_calls_tells_their_wait_and_that_none_was_sent(parts: str) -> None:
    async with running(policies=LIMITED) as gateway, held(gateway, HELD):
        reply = await late(gateway, *WAITS_FOR[parts])
        assert reply.status == 504
        assert re.search(OVER, reply.body)
        assert reply.headers["retry-after"] == "1"


@pytest.mark.parametrize("parts", WAITS_FOR)
async def test_a_timeout_of_calls_of_which_one_was_sent_says_nothing_of_trying_again(parts: str) -> None:
    request, _ = WAITS_FOR[parts]
    async with running(policies=LIMITED) as gateway:
        if parts == "chain":
            Gate.opened.set()
            assert (await ask(gateway, "127.0.0.2", request)).status == 200  # its types are known
            Gate.opened.clear()
        call = asked(gateway, "127.0.0.3", request)
        if parts == "chain":
            await waiting(gateway, 0)
            last = asked(gateway, "127.0.0.2", HELD)  # waits while the first step is computed
            await waiting(gateway, 1)
            reached = Gate.reached
            Gate.opened.set()
            Gate.opened = asyncio.Event()
            await until(lambda: Gate.reached > reached)
        await waiting(gateway, 1)
        await skip(30)
        reply = await call
        assert reply.status == 504
        # Of parallel steps, the error may be of the one that was sent.
        assert parts == "steps" or b"waiting for a free slot" in reply.body
        assert "retry-after" not in reply.headers
        Gate.opened.set()
        if parts == "chain":
            assert (await last).status == 200


async def test_a_clients_own_deadline_says_it_too() -> None:
    async with running() as gateway, held(gateway):
        reply = await late(gateway, EVALUATE.replace(b"Host:", b"Request-Timeout: 30\r\nHost:"), 1)
        assert reply.status == 504
        told = rb"the deadline that the client set has passed, of which 3\d\.\d\d s waiting for a free slot"
        assert re.search(told, reply.body)
        assert reply.headers["retry-after"] == "1"


def client_of(gateway: Gateway, protocol: str, **settings: float) -> AsyncClient:
    listener = gateway.state.listeners["grpc" if protocol == "v2-grpc" else "http"]
    return AsyncClient(listener.address, protocol=protocol, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", ["umbridge", "v2-rest", "v2-grpc"])
async def test_map_sends_again_what_waited_in_vain(protocol: str) -> None:
    """The only slot is taken for longer than the time limit, which the calls spend in the queue."""
    async with (
        running(policies=LIMITED) as gateway,
        held(gateway, HELD),
        client_of(gateway, protocol) as client,
    ):
        points = np.arange(8.0).reshape(4, 2)
        mapping = asyncio.ensure_future(client.map("gated", points))
        await waited_in_vain(gateway, 4)
        Gate.opened.set()
        results = await mapping
        assert results.array().reshape(4, 2).tolist() == points.tolist()


@pytest.mark.parametrize("protocol", ["umbridge", "v2-rest", "v2-grpc"])
async def test_the_clients_own_timeout_says_how_long_the_call_waited(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was never sent is sent again, though the client's time is over as well as the gateway's."""
    # The gateway and the client give a reply 0.5 s after the deadline, which a busy machine can need.
    monkeypatch.setattr(calls, "_GRACE", GENEROUS)
    monkeypatch.setattr(asynchronous, "_grace", lambda _: GENEROUS)
    async with running() as gateway, held(gateway, HELD), client_of(gateway, protocol, timeout=30) as client:
        call = asyncio.ensure_future(client.infer("gated", np.ones(2)))
        await waited_in_vain(gateway, 1)
        with pytest.raises(Timeout, match=r"`timeout` sets, of which 3\d\.\d+ s waiting for a free slot") as caught:
            await call
        assert caught.value.retry_after == 1
        mapping = asyncio.ensure_future(client.map("gated", np.ones((2, 2))))
        await waited_in_vain(gateway, 2)
        Gate.opened.set()
        assert len(await mapping) == 2


async def test_the_place_of_a_client_that_leaves_goes_to_others() -> None:
    async with running("{length: 1}") as gateway:
        first = asked(gateway, "127.0.0.2")
        await waiting(gateway, 0)
        _, gone = await asyncio.open_connection("127.0.0.1", port_of(gateway.state.listeners["http"].address))
        gone.write(EVALUATE)
        await waiting(gateway, 1)
        assert (await ask(gateway, "127.0.0.3")).status == 503
        gone.close()
        await waiting(gateway, 0)
        last = asked(gateway, "127.0.0.3")
        await waiting(gateway, 1)
        Gate.opened.set()
        assert [(await each).status for each in (first, last)] == [200, 200]
