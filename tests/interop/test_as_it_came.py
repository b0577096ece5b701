"""Real clients -> gateway -> servers of the same wire form: what nothing changes is sent on as it came, both ways."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from unittest import mock

import numpy as np
import pytest

from gateway.app import Gateway
from gateway.cli.options import catalog
from gateway.config import loads
from gateway.core.layouts import LayoutStore
from gateway.protocols.graphpipe import recalled as graphpipe_recalled
from gateway.protocols.graphpipe import server as graphpipe_server
from gateway.protocols.v2.grpc import recalled as v2_grpc_recalled
from gateway.protocols.v2.grpc.tensors import read_inference, write_inference
from tests.interop.processes import Triton, free_port, run_client
from tests.interop.real_clients import Step, infer, packed, raw_of, tensor, tritonclient_grpc
from tests.limits import GENEROUS
from tests.protocols.graphpipe.wire import recorded

CONFIG = """
listeners: [{{name: in, bind: "127.0.0.1:{port}", protocols: [{protocol}]}}]
backends: {{server: {{protocol: {protocol}, endpoints: ["{address}"]}}}}
routes: [{{match: {{model: "*"}}, backend: server}}]
"""


@asynccontextmanager
async def running(protocol: str, address: str) -> AsyncIterator[str]:
    """A gateway in this process, and its address."""
    port = free_port()
    config = CONFIG.format(port=port, protocol=protocol, address=address)
    gateway = Gateway(loads(config, "test.yaml", catalog(), {}))
    await gateway.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await gateway.drain(0)


# --- GraphPipe ---

REPLY = recorded("float64.reply")
"""As the real package writes it."""


@contextmanager
def graphpipe_peer() -> Iterator[tuple[str, list[bytes]]]:
    """A server that replies as the real package, its address, and the bodies that it got."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(REPLY)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", bodies
        finally:
            server.shutdown()


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


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """Other tests of this process may have sent messages of the same layouts."""
    for each in (*vars(graphpipe_recalled).values(), *vars(v2_grpc_recalled).values()):
        if isinstance(each, LayoutStore):
            each.clear()


async def test_the_real_graphpipe_clients_bytes_go_on() -> None:
    with graphpipe_peer() as (address, bodies):
        alone = await asyncio.to_thread(run_client, "graphpipe", "graphpipe_client", f"http://{address}", STEPS)
        sent = bodies.copy()
        bodies.clear()
        async with running("graphpipe", f"http://{address}/") as front:
            url = f"http://{front}/graphpipe/m"
            with mock.patch.object(graphpipe_server, "_inputs", wraps=graphpipe_server._inputs) as read:
                behind = await asyncio.to_thread(run_client, "graphpipe", "graphpipe_client", url, STEPS)
        assert behind == alone
        assert len(sent) == 6
        # A `config` that has not come before is written anew.
        assert [at for at in range(6) if bodies[at] != sent[at]] == [1]
        assert read.call_count == 3  # the first of each kind, and that with the `config` again


async def test_the_bytes_of_a_real_reply_come_back() -> None:
    def post(address: str) -> bytes:
        connection = HTTPConnection(address, timeout=GENEROUS)
        connection.request("POST", "/graphpipe/m", recorded("float64.request"))
        body = connection.getresponse().read()
        connection.close()
        return body

    with graphpipe_peer() as (address, _):
        async with running("graphpipe", f"http://{address}/") as front:
            assert [await asyncio.to_thread(post, front) for _ in range(2)] == [REPLY, REPLY]


# --- V2 gRPC ---

V2 = "gateway.protocols.v2.grpc"


async def test_tritonclients_requests_with_ids_go_to_triton_as_they_came_and_so_do_its_replies(triton: Triton) -> None:
    steps = [
        infer("identity_FP32", tensor("INPUT0", "FP32", [2], packed("f", at, 2.5)), id=f"request {at:0{at}}")
        for at in range(1, 6)
    ]
    async with running("v2-grpc", triton.grpc) as front:
        with (
            mock.patch(f"{V2}.server.read_inference", wraps=read_inference) as read,
            mock.patch(f"{V2}.client.read_inference", wraps=read_inference) as read_reply,
            mock.patch(f"{V2}.client.write_inference", wraps=write_inference) as written,
            mock.patch(f"{V2}.server.write_inference", wraps=write_inference) as written_back,
        ):
            results = await asyncio.to_thread(tritonclient_grpc, front, "sync", *steps)
    assert [raw_of(each) for each in results] == [packed("f", at, 2.5) for at in range(1, 6)]
    assert [each["response"]["id"] for each in results] == [step["id"] for step in steps]
    counts = [each.call_count for each in (read, read_reply, written, written_back)]
    assert counts == [1, 1, 1, 1]  # the first one alone
