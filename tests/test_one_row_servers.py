"""A server that takes one row a call, as most tutorials have it, serves batches where its form has `batch: each`: a
call for each row, as many at once as the backend takes, in order. In front of other servers its clients send one
row."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import numpy as np
import pytest

from gateway.client import AsyncClient, InvalidInput
from gateway.core.messages import Message
from gateway.runtime.app import Gateway
from tests.interop.processes import free_port
from tests.limits import GENEROUS, until
from tests.paused_server import http, listening, read_message
from tests.running_gateway import running_gateway
from tests.skipping_loop import skip
from tests.wires import Wires

CONFIG = """
forms:
  iris:
    batch: each
    infer: {path: /predict, request: {length: $length|scalar, width: $width|scalar}, response: {species: $species|text}}
    error: {error: $message}
    tensors: {length: "FP64 [-1]", width: "FP64 [-1]", species: "BYTES [-1]"}
  sums:
    batch: each
    infer: {path: /sum, request: {x: $x, "scale?": $scale|scalar}, response: {y: $y}}
    tensors: {x: "FP64 [-1, 3]", scale: "FP64 [1]", y: "FP64 [-1, 3]"}
listeners:
  - name: http
    bind: "127.0.0.1:0"
    protocols: [v2-rest, v1-rest, umbridge, "json:iris", "json:sums"]
    model: MODEL
health: {bind: "127.0.0.1:0"}
reference: [{protocol: v2-rest, bind: "127.0.0.1:TENSORS", models: [double]}]
backends:
  iris: {protocol: json, form: iris, endpoints: ["http://127.0.0.1:PROGRAM"], safe: true, MORE}
  sums: {protocol: json, form: sums, endpoints: ["http://127.0.0.1:PROGRAM"]}
  tensors: {protocol: v2-rest, endpoints: ["http://127.0.0.1:TENSORS"]}
routes:
  - {match: {model: iris}, backend: iris, translate: {max_rows: 100}}
  - {match: {model: sums}, backend: sums}
  - {match: {model: double}, backend: tensors}
"""


class Program:
    """Answers one row a call. With `hold`, a reply goes out when `release` is set. Lengths in `failures` are answered
    with their statuses, one after the other; further ones are right."""

    def __init__(self) -> None:
        self.port = 0
        self.rows: list[Any] = []
        self.at_once = self.most_at_once = self.left = 0
        self.hold = False
        self.release = asyncio.Event()
        self.failures: dict[float, list[int]] = {}
        self._handling: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handling.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                while True:
                    await self._answer(reader, writer)
            finally:
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await read_message(reader)
        row = json.loads(body)
        self.rows.append(row)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.hold:
                await self._held(reader)
        finally:
            self.at_once -= 1
        status, document = self._result(row)
        head = b"HTTP/1.1 %d Status\r\ncontent-type: application/json" % status
        writer.write(http(head, json.dumps(document).encode()))

    async def _held(self, reader: asyncio.StreamReader) -> None:
        """Wait for `release`, or for the end of the connection."""
        released, closed = asyncio.ensure_future(self.release.wait()), asyncio.ensure_future(reader.read(1))
        done, pending = await asyncio.wait((released, closed), return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            each.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        if released not in done:
            self.left += 1
            raise ConnectionError

    def _result(self, row: Any) -> tuple[int, Any]:
        if "x" in row:
            return 200, {"y": [each * row.get("scale", 1) for each in row["x"]]}
        if self.failures.get(row["length"]):
            return self.failures[row["length"]].pop(0), {"error": f"no iris is {row['length']} long"}
        return 200, {"species": f"iris {row['length']:g} x {row['width']:g}"}

    async def end(self) -> None:
        for each in self._handling:
            each.cancel()
        await asyncio.gather(*self._handling, return_exceptions=True)


@asynccontextmanager
async def program() -> AsyncIterator[Program]:
    found = Program()
    async with listening(found.serve) as found.port:
        try:
            yield found
        finally:
            await found.end()


class Running:
    def __init__(self, gateway: Gateway, legacy: Program) -> None:
        self.gateway = gateway
        self.program = legacy
        self.address = gateway.state.listeners["http"].address

    async def post(self, path: str, body: Any) -> Any:
        async with httpx.AsyncClient(base_url=f"http://{self.address}", timeout=GENEROUS) as client:
            return await client.post(path, json=body)

    async def species(self, lengths: list[float], widths: list[float] | None = None) -> Any:
        """The reply to a batch over V2."""
        widths = [1.0] * len(lengths) if widths is None else widths
        columns = (("length", lengths), ("width", widths))
        inputs = [{"name": name, "datatype": "FP64", "shape": [len(each)], "data": each} for name, each in columns]
        return await self.post("/v2/models/iris/infer", {"inputs": inputs})


@asynccontextmanager
async def running(more: str = "", model: str = "iris") -> AsyncIterator[Running]:
    async with program() as legacy:
        text = CONFIG.replace("PROGRAM", str(legacy.port)).replace("TENSORS", str(free_port())).replace("MODEL", model)
        async with running_gateway(text.replace(", MORE", f", {more}" if more else "")) as found:
            yield Running(found, legacy)


async def test_a_batch_is_a_call_for_each_row_in_order() -> None:
    async with running() as here:
        reply = await here.species([5.1, 6, 7.5], [1, 2, 3])
        [output] = reply.json()["outputs"]
        species = ["iris 5.1 x 1", "iris 6 x 2", "iris 7.5 x 3"]
        assert output == {"name": "species", "datatype": "BYTES", "shape": [3], "data": species}
        rows = [{"length": length, "width": width} for length, width in ((5.1, 1.0), (6.0, 2.0), (7.5, 3.0))]
        assert sorted(here.program.rows, key=str) == rows


async def test_clients_of_other_protocols_send_rows_too() -> None:
    async with running() as here:
        rows = await here.post(
            "/v1/models/iris:predict", {"instances": [{"length": 1, "width": 2}, {"length": 3, "width": 4}]}
        )
        assert rows.json() == {"predictions": ["iris 1 x 2", "iris 3 x 4"]}
        point = await here.post("/Evaluate", {"name": "sums", "input": [[1, 2, 3], [2]], "config": {}})
        assert point.json() == {"output": [[2.0, 4.0, 6.0]]}
        sizes = await here.post("/InputSizes", {"name": "iris"})
        assert sizes.json() == {"inputSizes": [1, 1]}
        assert (await here.post("/OutputSizes", {"name": "sums"})).json() == {"outputSizes": [3]}


async def test_rows_that_are_lists_and_inputs_that_all_rows_share() -> None:
    async with running() as here:
        x = {"name": "x", "datatype": "FP64", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}
        scale = {"name": "scale", "datatype": "FP64", "shape": [1], "data": [10]}
        reply = await here.post("/v2/models/sums/infer", {"inputs": [x, scale]})
        assert reply.json()["outputs"][0] == {
            "name": "y", "datatype": "FP64", "shape": [2, 3], "data": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
        }  # fmt: skip
        assert sorted(each["scale"] for each in here.program.rows) == [10.0, 10.0]


@pytest.mark.parametrize(("more", "most"), [("max_in_flight: 2", 2), ("", 16)])
async def test_as_many_rows_are_in_flight_as_the_backend_takes(more: str, most: int) -> None:
    async with running(more) as here:
        here.program.hold = True
        asked = asyncio.ensure_future(here.species([float(at) for at in range(40)]))
        await until(lambda: len(here.program.rows) >= most)
        here.program.release.set()
        data = (await asked).json()["outputs"][0]["data"]
        assert data == [f"iris {at} x 1" for at in range(40)]
        assert here.program.most_at_once == most


async def test_one_error_for_the_batch_names_the_row() -> None:
    async with running("max_in_flight: 1") as here:
        here.program.failures = {3.0: [422]}
        reply = await here.species([1, 2, 3, 4, 5])
        assert reply.status_code == 400
        assert "row 2: " in reply.json()["error"]
        assert "no iris is 3.0 long" in reply.json()["error"]
        assert [each["length"] for each in here.program.rows][:3] == [1, 2, 3]
        assert len(here.program.rows) <= 4  # no further row is sent


async def test_a_row_is_tried_again_alone() -> None:
    async with running("policies: [{retry: {attempts: 3}}]") as here:
        here.program.failures = {2.0: [503, 503]}
        reply = await here.species([1, 2, 3])
        assert reply.json()["outputs"][0]["data"] == ["iris 1 x 1", "iris 2 x 1", "iris 3 x 1"]
        assert sorted(each["length"] for each in here.program.rows) == [1, 2, 2, 2, 3]


async def test_a_batch_without_rows_makes_no_call() -> None:
    async with running() as here:
        reply = await here.species([])
        assert reply.json()["outputs"] == [{"name": "species", "datatype": "BYTES", "shape": [0], "data": []}]
        assert here.program.rows == []


async def test_a_batch_of_more_rows_than_the_route_allows_makes_no_call() -> None:
    async with running() as here:
        reply = await here.species([1.0] * 101)
        assert reply.status_code == 400
        assert "translate: {max_rows: 101}" in reply.json()["error"]
        assert here.program.rows == []


async def test_inputs_with_different_numbers_of_rows_are_refused() -> None:
    async with running() as here:
        reply = await here.species([1, 2], [1, 2, 3])
        assert (reply.status_code, here.program.rows) == (400, [])
        assert "input 'width' has 3 rows and input 'length' has 2" in reply.json()["error"]


async def test_a_client_that_leaves_ends_the_calls_in_flight() -> None:
    async with running("max_in_flight: 2") as here:
        here.program.hold = True
        asked = asyncio.ensure_future(here.species([1, 2, 3, 4]))
        await until(lambda: len(here.program.rows) >= 2)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await until(lambda: here.program.left == 2)
        here.program.hold = False
        assert (await here.species([7])).status_code == 200
        assert [each["length"] for each in here.program.rows] in ([1, 2, 7], [2, 1, 7])


async def test_a_call_that_takes_too_long_ends_the_batch() -> None:
    async with running("max_in_flight: 2, policies: [{timeout: {seconds: 30}}]") as here:
        here.program.hold = True
        asked = asyncio.ensure_future(here.species([1, 2, 3, 4]))
        await until(lambda: len(here.program.rows) == 2)
        await skip(30)
        reply = await asked
        assert reply.status_code == 504
        assert "row " in reply.json()["error"]
        assert len(here.program.rows) == 2  # no further row is sent


async def test_each_row_is_a_call_of_the_backend_in_metrics() -> None:
    async with running() as here:
        await here.species([1, 2, 3])
        async with httpx.AsyncClient(timeout=GENEROUS) as client:
            page = (await client.get(f"http://{here.gateway.ports.all['health'].address}/metrics")).text
        lines = [line for line in page.splitlines() if "iris" in line.rpartition(" ")[0]]
        counts = {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines}
        assert len(here.program.rows) == 3
        assert counts["gateway_requests_total"] == "1.0"
        assert counts["gateway_retries_total"] == "0.0"
        assert counts["gateway_backend_calls_in_flight"] == "0.0"


async def test_clients_of_the_form_send_one_row() -> None:
    async with running(model="double") as here:
        reply = await here.post("/sum", {"x": [1, 2, 3]})
        assert (reply.status_code, reply.json()) == (200, {"y": [2.0, 4.0, 6.0]}), reply.text
        wrong = await here.post("/sum", {"x": [[1, 2, 3]]})
        assert wrong.status_code == 400
    async with running() as here:
        reply = await here.post("/predict", {"length": 1, "width": 2})
        assert reply.json() == {"species": "iris 1 x 2"}


VECTORS = """
forms:
  parabola:
    batch: each
    infer: {path: /p, request: {a: $a|scalar, b: $b|scalar}, response: {y: $y|scalar}}
    tensors: {a: "FP64 [-1, 1]", b: "FP64 [-1, 1]", y: "FP64 [-1, 1]"}
listeners: [{name: in, bind: "127.0.0.1:0", protocols: [umbridge]}]
backends: {p: {protocol: json, form: parabola, endpoints: ["lab:1"]}}
routes: [{match: {model: "*"}, backend: p, translate: {derivatives: {method: central}}}]
"""


async def test_derivatives_are_computed_from_calls_of_one_row() -> None:
    async def parabola(message: Message) -> Message:
        row = json.loads(bytes(message.body))
        return Message(status=200, parts=(json.dumps({"y": row["a"] ** 2 + 3 * row["b"]}).encode(),))

    wires = Wires(VECTORS, lab=parabola)
    asked = {"name": "p", "outWrt": 0, "inWrt": 0, "input": [[2], [5]], "sens": [1], "config": {}}
    reply = await wires.post("umbridge", "/Gradient", json.dumps(asked).encode())
    assert json.loads(bytes(reply.body)) == {"output": [pytest.approx(4.0)]}


async def test_the_client_for_python_sends_batches() -> None:
    async with running() as here, AsyncClient(f"v2-rest://{here.address}") as client:
        found = await client.infer("iris", length=np.array([1.0, 2.0]), width=np.array([3.0, 4.0]))
        assert found["species"].tolist() == [b"iris 1 x 3", b"iris 2 x 4"]
        with pytest.raises(InvalidInput, match=r"input 'length' has shape \[1, 1\], expected \[-1\]"):
            await client.infer("iris", length=np.array([[1.0]]), width=np.array([3.0]))
