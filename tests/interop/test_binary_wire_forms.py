"""Real clients -> gateway -> servers of the same binary wire form: what arrives says what was sent, both ways."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import ThreadingHTTPServer

import numpy as np

from tests.in_thread import QuietHandler, in_thread
from tests.interop.client_scripts import run_client
from tests.interop.processes import Triton
from tests.interop.real_clients import Step, infer, packed, raw_of, tensor, tritonclient_grpc
from tests.protocols.graphpipe.wire import asked, recorded
from tests.running_gateway import running_gateway

CONFIG = """
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [{protocol}]}}]
backends: {{server: {{protocol: {protocol}, endpoints: ["{address}"]}}}}
routes: [{{match: {{model: "*"}}, backend: server}}]
"""


@asynccontextmanager
async def running(protocol: str, address: str) -> AsyncIterator[str]:
    """A gateway in this process, and its address."""
    async with running_gateway(CONFIG.format(protocol=protocol, address=address)) as gateway:
        yield gateway.state.listeners["in"].address


REPLY = recorded("float64.reply")
"""As the real package writes it."""


@contextmanager
def graphpipe_peer() -> Iterator[tuple[str, list[bytes]]]:
    """A server that replies as the real package, its address, and the bodies that it got."""
    bodies: list[bytes] = []

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(REPLY)

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address, bodies


def array(values: object) -> dict[str, object]:
    given = np.array(values, "float32")
    raw = base64.b64encode(given.tobytes()).decode()
    return {"dtype": "float32", "shape": list(given.shape), "raw": raw}


STEPS: list[Step] = [
    step
    for number in range(3)
    for step in (
        {"op": "execute", "path": "", "input": array([[number, 2.5]])},
        {"op": "execute_multi", "path": "", "inputs": [array([number]), array([[1], [2]])], "config": "settings",
         "input_names": ["x", "y"], "output_names": ["z"]},
    )
]  # fmt: skip


async def test_the_real_graphpipe_clients_requests_reach_the_server() -> None:
    with graphpipe_peer() as (address, bodies):
        alone = await asyncio.to_thread(run_client, "graphpipe", "graphpipe_client", f"http://{address}", STEPS)
        sent = bodies.copy()
        bodies.clear()
        async with running("graphpipe", f"http://{address}/") as front:
            url = f"http://{front}/graphpipe/m"
            behind = await asyncio.to_thread(run_client, "graphpipe", "graphpipe_client", url, STEPS)
        assert behind == alone
        assert len(sent) == 6
        assert [said(each) for each in bodies] == [said(each) for each in sent]


def said(body: bytes) -> tuple[object, ...]:
    request = asked(body)
    inputs = [(each.name, each.datatype, each.shape, bytes(each.data)) for each in request.inputs]
    return inputs, request.outputs, request.parameters


async def test_tritonclients_requests_with_ids_go_to_triton_and_its_replies_come_back(triton: Triton) -> None:
    steps = [
        infer("identity_FP32", tensor("INPUT0", "FP32", [2], packed("f", at, 2.5)), id=f"request {at:0{at}}")
        for at in range(1, 6)
    ]
    async with running("v2-grpc", triton.grpc) as front:
        results = await asyncio.to_thread(tritonclient_grpc, front, "sync", *steps)
    assert [raw_of(each) for each in results] == [packed("f", at, 2.5) for at in range(1, 6)]
    assert [each["response"]["id"] for each in results] == [step["id"] for step in steps]
