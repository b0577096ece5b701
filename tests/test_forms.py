"""A gateway whose configuration declares a form: a program as Flask's tutorials have it behind V2, clients of that
program in front of a V2 server, changes of the form while the gateway runs, and the commands and pages that show it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from gateway.client import AsyncClient, ServerKind
from gateway.runtime.app import Gateway
from tests.in_thread import QuietHandler, in_thread
from tests.interop.processes import free_port
from tests.limits import GENEROUS
from tests.paused_server import http
from tests.running_gateway import config_of, running_gateway

FORMS = """\
forms:
  prices:
    infer:
      path: /predict
      request: {features: $x, "request_id?": $id}
      response: {prediction: $y, "took_ms?": $_}
    ready: {path: /health}
    error: {detail: $message}
    tensors: {x: "FP64 [-1, 4]", y: "FP64 [-1]"}
  doubles:
    infer: {path: "/double/{model}", request: {x: $x}, response: {y: $y}}
    tensors: {x: "FP64 [-1, 3]", y: "FP64 [-1, 3]"}
"""
CONFIG = (
    FORMS
    + """\
listeners:
  - name: http
    bind: "127.0.0.1:0"
    protocols: [v2-rest, "json:prices", "json:doubles"]
    model: prices
admin: {bind: "127.0.0.1:0"}
reference: [{protocol: v2-rest, bind: "127.0.0.1:TENSORS", models: [double]}]
backends:
  legacy: {protocol: json, form: prices, endpoints: ["http://127.0.0.1:LEGACY"]}
  tensors: {protocol: v2-rest, endpoints: ["http://127.0.0.1:TENSORS"]}
routes:
  - {match: {model: prices}, backend: legacy}
  - {match: {model: double}, backend: tensors}
"""
)
ROWS: list[list[float]] = [[1, 2, 3, 4], [0.5, 0.5, 0, 0]]


def v2(rows: list[list[float]], name: str = "x") -> dict[str, Any]:
    return {"inputs": [{"name": name, "datatype": "FP64", "shape": [len(rows), 4], "data": rows}], "id": "a-1"}


def config(legacy: int, tensors: int) -> str:
    """CONFIG with these ports of the servers."""
    return CONFIG.replace("LEGACY", str(legacy)).replace("TENSORS", str(tensors))


class House(QuietHandler):
    """Adds the features of each house. Its server keeps the bodies that it got."""

    protocol_version = "HTTP/1.1"
    server: "Legacy"

    def do_GET(self) -> None:
        self.send_json({}, 200 if self.path == "/health" else 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        if self.path != "/predict" or "features" not in body:
            self.send_json({"detail": "there are no features"}, 400)
        elif body["features"][0][0] < 0:
            self.send_json({"detail": "a house cannot have less than nothing"}, 422)
        else:
            self.send_json({"prediction": [sum(row) for row in body["features"]], "took_ms": 3})


class Legacy(ThreadingHTTPServer):
    """The running program."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), House)
        self.bodies: list[Any] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def legacy() -> Iterator[Legacy]:
    with in_thread(server := Legacy()):
        yield server


class Running:
    """A gateway with CONFIG, and ways to ask it."""

    def __init__(self, gateway: Gateway, text: str) -> None:
        self.gateway = gateway
        self.text = text
        self.address = gateway.state.listeners["http"].address

    async def post(self, path: str, body: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=f"http://{self.address}", timeout=GENEROUS) as client:
            return await client.post(path, json=body)

    async def admin(self, path: str, body: Any = None) -> Any:
        url = f"http://{self.gateway.ports.all['admin'].address}{path}"
        async with httpx.AsyncClient(timeout=GENEROUS) as client:
            reply = await (client.get(url) if body is None else client.post(url, json=body))
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def reload(self, *changes: tuple[str, str]) -> tuple[str, ...]:
        for before, after in changes:
            assert before in self.text
            self.text = self.text.replace(before, after)
        return await self.gateway.reload(config_of(self.text))


@pytest.fixture
async def running(legacy: Legacy) -> AsyncIterator[Running]:
    text = config(legacy.server_port, free_port())
    async with running_gateway(text) as gateway:
        yield Running(gateway, text)


async def test_a_client_of_v2_reaches_a_program_that_speaks_the_form(running: Running, legacy: Legacy) -> None:
    reply = await running.post("/v2/models/prices/infer", v2(ROWS))
    assert reply.status_code == 200
    assert reply.json() == {
        "model_name": "prices",
        "id": "a-1",
        "outputs": [{"name": "y", "datatype": "FP64", "shape": [2], "data": [10.0, 1.0]}],
    }
    assert legacy.bodies == [{"features": ROWS, "request_id": "a-1"}]


async def test_an_error_of_the_program_is_told_in_its_words(running: Running) -> None:
    reply = await running.post("/v2/models/prices/infer", v2([[-1, 0, 0, 0], [0, 0, 0, 0]]))
    assert reply.status_code == 400
    assert "a house cannot have less than nothing" in reply.json()["error"]


async def test_a_client_of_the_form_reaches_a_server_of_v2(running: Running) -> None:
    reply = await running.post("/double/double", {"x": [[1, 2.5, -3]]})
    assert (reply.status_code, reply.json()) == (200, {"y": [[2.0, 5.0, -6.0]]})
    wrong = await running.post("/double/double", {"x": [[1, 2, 3]], "y": 1})
    assert wrong.status_code == 400
    assert "y" in wrong.json()["error"]


async def test_the_form_on_both_sides(running: Running, legacy: Legacy) -> None:
    reply = await running.post("/predict", {"features": ROWS, "request_id": "b"})
    assert (reply.status_code, reply.json()) == (200, {"prediction": [10, 1.0], "took_ms": 3})
    assert legacy.bodies == [{"features": ROWS, "request_id": "b"}]


async def test_a_reload_changes_the_form_of_both_sides(running: Running, legacy: Legacy) -> None:
    assert (await running.post("/predict", {"features": ROWS})).status_code == 200
    listener = running.gateway.state.listeners["http"]
    changed = await running.reload(
        ("request: {features: $x,", 'request: {features: $x, "unit": m,'),
        ("path: /predict", "path: /predict\n      client_path: /price"),
    )
    assert changed == ("form 'prices': infer changed",)
    assert running.gateway.state.listeners["http"] is listener
    assert (await running.post("/predict", {"features": ROWS})).status_code == 400
    reply = await running.post("/price", {"features": ROWS, "unit": "m"})
    assert reply.json() == {"prediction": [10.0, 1.0], "took_ms": 3}
    assert legacy.bodies[-1] == {"features": ROWS, "unit": "m"}


async def test_a_reload_that_leaves_a_form_as_it_is_leaves_its_connections(running: Running) -> None:
    before = running.gateway.state.assembly.backends["legacy"]
    endpoint = before.endpoints[0]
    connector = endpoint.connector
    assert await running.reload(("model: prices\n", "model: double\n")) == ("listener 'http': model changed",)
    assert running.gateway.state.assembly.backends["legacy"].endpoints[0] is endpoint
    assert endpoint.connector is connector
    assert running.gateway.state.assembly.backends["legacy"].protocol is before.protocol


async def test_answers_that_a_cache_has_kept_are_not_those_of_a_changed_form(running: Running, legacy: Legacy) -> None:
    one = v2(ROWS[:1])
    before = "{protocol: json, form: prices,"
    await running.reload((before, f"{before} safe: true, policies: [{{cache: {{}}}}],"))
    for _ in range(2):
        assert (await running.post("/v2/models/prices/infer", one)).json()["outputs"][0]["data"] == [10.0]
    assert len(legacy.bodies) == 1
    await running.reload(("model: prices\n", "model: double\n"))
    await running.post("/v2/models/prices/infer", one)
    assert len(legacy.bodies) == 1
    await running.reload(
        ('{prediction: $y, "took_ms?": $_}', '{"prediction?": $_, took_ms: $y|scalar}'),
        ('y: "FP64 [-1]"', 'y: "FP64 [1]"'),
    )
    assert (await running.post("/v2/models/prices/infer", one)).json()["outputs"][0]["data"] == [3.0]


async def test_a_reload_that_changes_how_replies_are_streamed_reads_them_so(running: Running) -> None:
    [endpoint] = running.gateway.state.assembly.backends["legacy"].endpoints
    connector = endpoint.connector
    await running.reload(("path: /predict", "path: /predict\n      stream: jsonl"))
    assert list(running.gateway.state.assembly.backends["legacy"].endpoints) == [endpoint]
    assert endpoint.connector is not connector


async def test_a_reload_adds_and_removes_forms(running: Running) -> None:
    added = await running.reload(
        ("forms:\n", "forms:\n  other: {infer: {path: /other, request: $a, response: $b}}\n"),
        ('"json:doubles"]', '"json:other"]'),
    )
    assert added == ("listener 'http': protocols changed", "form 'other' added")
    assert (await running.post("/double/double", {"x": [[1, 2, 3]]})).status_code == 404
    assert (await running.post("/other", [[1, 2, 3, 4]])).json() == [10.0]


async def test_the_document_of_a_listener_describes_the_form_truly(running: Running) -> None:
    found = await running.admin("/api/openapi/http")
    operation = found["paths"]["/predict"]["post"]
    body = operation["requestBody"]["content"]["application/json"]
    assert Draft202012Validator(body["schema"]).is_valid({"features": ROWS, "request_id": "a"})
    assert not Draft202012Validator(body["schema"]).is_valid({"features": [[1, 2, 3]]})
    assert not Draft202012Validator(body["schema"]).is_valid({"features": ROWS, "more": 1})
    reply = await running.post("/predict", body["example"])
    Draft202012Validator(operation["responses"]["200"]["content"]["application/json"]["schema"]).validate(reply.json())
    assert found["paths"]["/health"]["get"]["summary"] == "Check that the server is ready"
    wrong = await running.post("/predict", {"features": 1})
    described = found["components"]["responses"]["json-prices-400"]["content"]["application/json"]
    Draft202012Validator(described["schema"]).validate(wrong.json())


PLAYED = {
    "listener": "http", "protocol": "json:prices", "model": "prices",
    "inputs": [{"name": "x", "datatype": "FP64", "shape": "1, 4", "values": "1, 2, 3, 4", "declared": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "FP64", "shape": [-1]}],
}  # fmt: skip


async def test_the_playground_shows_both_directions_of_the_form(running: Running) -> None:
    assert (await running.admin("/api/playground"))["operations"]["json:prices"] == ["infer"]
    sent = await running.admin("/api/playground/send", PLAYED)
    assert (sent["status"], sent["error"]) == ("OK", "")
    [call] = sent["calls"]
    assert call["request"]["head"][0] == "POST /predict"
    assert json.loads(call["request"]["body"]) == {"features": [[1.0, 2.0, 3.0, 4.0]]}
    assert json.loads(call["replies"][0]["body"]) == {"prediction": [10.0], "took_ms": 3}
    explained = await running.admin("/api/playground/explain", PLAYED)
    assert explained["error"] is None


async def test_the_snippets_of_a_form_that_is_declared_say_where(running: Running, tmp_path: Path) -> None:
    found = {each["name"]: each["code"] for each in await running.admin("/api/playground/snippets", PLAYED)}
    assert "/predict" in found["curl"]
    assert "--config gateway.yaml" in found["gateway call"]
    assert "ServerKind(form=" in found["gateway.client"]
    program = [sys.executable, "-c", found["gateway.client"]]
    run = await asyncio.to_thread(
        subprocess.run, program, stdout=subprocess.PIPE, text=True, timeout=GENEROUS, check=True
    )
    assert run.stdout.split() == ["y", "[10.0]"]


async def test_the_client_for_python_speaks_a_form_that_is_described(legacy: Legacy) -> None:
    document = config_of(config(1, 2)).forms["prices"].document()
    async with AsyncClient(f"json:prices://127.0.0.1:{legacy.server_port}", kind=ServerKind(form=document)) as client:
        outputs = await client.infer("any", x=ROWS)
        assert outputs["y"].tolist() == [10.0, 1.0]
        assert await client.ready()


def test_a_form_that_is_described_goes_with_an_address_of_one() -> None:
    with pytest.raises(ValueError, match="a form needs an address such as json:NAME://HOST:PORT"):
        AsyncClient("v2-rest://127.0.0.1:1", kind=ServerKind(form={}))
    form = {"infer": {"path": "/", "request": "$x|flt", "response": "$y"}}
    with pytest.raises(ValueError, match=r"the form 'json:a' at infer\.request: \|flt is not a spelling"):
        AsyncClient("json:a://127.0.0.1:1", kind=ServerKind(form=form))


def gateway_command(*arguments: str, folder: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments], capture_output=True, text=True, timeout=GENEROUS, check=False,
        cwd=folder, env={**os.environ, **environ},
    )  # fmt: skip


def init_from(folder: Path, request: object, reply: object, *options: str) -> "subprocess.CompletedProcess[str]":
    """`gateway init` with an example."""
    (folder / "request.json").write_text(json.dumps(request))
    (folder / "reply.json").write_text(json.dumps(reply))
    return gateway_command("init", "--example", "request.json", "reply.json", *options, folder=folder)


@pytest.mark.long
def test_commands_know_the_forms_of_a_configuration(legacy: Legacy, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(config(legacy.server_port, 9))
    address = f"json:prices://127.0.0.1:{legacy.server_port}"
    called = gateway_command(
        "call", address, "m", "--set", f"x={json.dumps(ROWS)}", "--config", "c.yaml", folder=tmp_path
    )
    assert json.loads(called.stdout)["outputs"][0]["data"] == [10.0, 1.0], called.stderr
    unknown = gateway_command("call", address, "m", "--set", "x=1", folder=tmp_path)
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("no protocol 'json:prices'")
    (tmp_path / "r.http").write_bytes(http(b"POST /predict HTTP/1.1", b'{"features": [[1,2,3,4]]}'))
    explained = gateway_command("explain", "r.http", "--config", "c.yaml", folder=tmp_path)
    assert "json:prices over http at listener 'http'" in explained.stdout
    assert '{"features": [[1,2,3,4]]}' in explained.stdout
    live = gateway_command("check", "--live", "--timeout", "20", "c.yaml", folder=tmp_path)
    rows = {each["backend"]: each["result"] for each in json.loads(live.stdout)["routes"]}
    assert rows == {"legacy": "ok", "tensors": "ok"}  # a server of the file's own `reference`


def test_an_explanation_shows_references_in_place_of_what_a_form_has_from_them(tmp_path: Path) -> None:
    keyed = 'path: /predict\n      headers: {x-key: "${SECRET}"}'
    text = config(9, 9).replace("path: /predict", keyed).replace(', "json:prices"', "")
    (tmp_path / "c.yaml").write_text(text.replace("features: $x", 'features: $x, key: "${SECRET}"'))
    body = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,4],"data":[1,2,3,4]}]}'
    (tmp_path / "r.http").write_bytes(http(b"POST /v2/models/prices/infer HTTP/1.1", body))
    explained = gateway_command("explain", "r.http", "--config", "c.yaml", folder=tmp_path, SECRET="s3cret")
    assert explained.returncode == 0, explained.stderr
    assert "x-key: ${SECRET}" in explained.stdout
    assert '"key":"${SECRET}"' in explained.stdout
    assert "s3cret" not in explained.stdout


def test_a_form_that_is_proposed_from_an_example_is_served(legacy: Legacy, tmp_path: Path) -> None:
    request, answer = {"features": ROWS, "request_id": "a"}, {"prediction": [10.0, 1.0], "took_ms": 3}
    proposed = init_from(tmp_path, request, answer, "--url", f"{legacy.url}/predict")
    assert proposed.returncode == 0, proposed.stderr
    assert "the form reads the example correctly" in proposed.stderr
    checked = gateway_command("check", "--strict", "gateway.yaml", folder=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")
    text = (tmp_path / "gateway.yaml").read_text().replace("127.0.0.1:8080", "127.0.0.1:0")

    async def ask() -> Any:
        async with running_gateway(text) as gateway, httpx.AsyncClient(timeout=GENEROUS) as client:
            url = f"http://{gateway.state.listeners['v2-rest'].address}/v2/models/legacy/infer"
            return (await client.post(url, json=v2(ROWS, "features"))).json()

    assert asyncio.run(ask())["outputs"] == [
        {"name": "prediction", "datatype": "FP64", "shape": [2], "data": [10.0, 1.0]}
    ]


@pytest.mark.long
def test_examples_that_suggest_no_form_write_nothing(tmp_path: Path) -> None:
    refused = init_from(tmp_path, {"x": [[1], [2, 3]]}, {"y": 1})
    assert (refused.returncode, refused.stderr) == (
        1,
        "request.x: a ragged array, whose rows have different lengths; use examples with equal lengths; "
        "no file written\n",
    )
    odd = gateway_command("init", "--example", "request.json", folder=tmp_path)
    assert (odd.returncode, odd.stderr) == (
        2,
        "--example needs pairs of files, each a request and its response; got 1 file\n",
    )
    assert not (tmp_path / "gateway.yaml").exists()


PRICED = ({"features": [[1, 2]]}, {"prediction": [3.5]})


@pytest.mark.long
def test_a_listener_that_speaks_a_form_without_names_of_models_gets_the_proposed_one(tmp_path: Path) -> None:
    listeners = ("--listener", "json:litserve=127.0.0.1:8080", "--listener", "v2-rest=127.0.0.1:8081")
    proposed = init_from(tmp_path, *PRICED, *listeners, "--output", "-")
    found = [(each.protocols, each.model) for each in config_of(proposed.stdout).listeners]
    assert found == [(("json:litserve",), "legacy"), (("v2-rest",), "")]


@pytest.mark.long
def test_a_proposed_form_has_the_name_that_is_given(tmp_path: Path) -> None:
    made = config_of(init_from(tmp_path, *PRICED, "--output", "-", "--model", "credit").stdout)
    assert (set(made.forms), set(made.backends), made.routes[0].match.model) == ({"credit"}, {"credit"}, "credit")
    several = init_from(tmp_path, *PRICED, "--output", "-", "--model", "a", "--model", "b")
    assert (several.returncode, several.stderr) == (2, "with --example, give --model only once\n")
