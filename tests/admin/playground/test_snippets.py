"""The snippets of the playground, run."""

import ast
import asyncio
import json
import os
import shlex
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from gateway.admin.playground.form import PlaygroundForm
from gateway.admin.playground.snippets import Snippet, snippets
from gateway.assembly.registry import protocols
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from tests.admin.playground.gateways import DOUBLE, HOSTILE, POSTERIOR, UPPER, RunningPlayground, played
from tests.cli.commands import ROOT
from tests.cli.commands import gateway as command
from tests.client.servers import served
from tests.peers.build import require
from tests.running_gateway import config_of

PEERS = {"umbridge": "umbridge", "tritonclient.http": "tritonclient", "tritonclient.grpc": "tritonclient"}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[RunningPlayground]:
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "gateway"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gateway "$@"\n')
    command.chmod(0o755)
    async with played(tmp_path) as found:
        (tmp_path / "ca.crt").write_bytes(found.ca.read_bytes())
        yield found


async def output(gateway: RunningPlayground, form: dict[str, Any], name: str) -> str:
    """What the snippet prints."""
    [snippet] = [each for each in await gateway.ask("snippets", form) if each["name"] == name]
    assert snippet["code"], snippet["note"]
    folder = gateway.ca.parent
    python = str(require(PEERS[name]) / "bin/python") if name in PEERS else sys.executable
    command = ["bash", "-c", snippet["code"]] if snippet["language"] == "bash" else [python, "-c", snippet["code"]]
    environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "GATEWAY_KEY": gateway.key, "HOME": str(folder)}
    if name not in PEERS:
        environment["PYTHONPATH"] = str(ROOT)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    found, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return found.decode()


def printed(text: str, name: str) -> Any:
    """The values in what a snippet prints."""
    if name in ("curl", "gateway call"):
        return orjson.loads(text)["outputs"][0]["data"]
    found = ast.literal_eval(text if name == "umbridge" else text.partition(" ")[2])
    return found[0] if isinstance(found[0], list) else found


RUN = [pytest.param("curl", marks=pytest.mark.real("curl")), "gateway call", "gateway.client"]
WITH_PEERS = [pytest.param(each, marks=pytest.mark.real) for each in PEERS]


@pytest.mark.parametrize("name", [*RUN, *WITH_PEERS])
async def test_a_snippet_gets_the_answer_that_the_playground_gets(gateway: RunningPlayground, name: str) -> None:
    for model in ("double", HOSTILE):
        if (name, model) == ("umbridge", HOSTILE):
            continue  # the route for it is V2's
        form = {**DOUBLE, "model": model}
        sent = await gateway.ask("send", form)
        expected = orjson.loads(sent["outputs"][0][0]["values"])[0]
        assert printed(await output(gateway, form, name), name) == expected


@pytest.mark.long
@pytest.mark.parametrize("name", RUN)
async def test_a_snippet_has_tls_and_the_key(gateway: RunningPlayground, name: str) -> None:
    form = {**DOUBLE, "listener": "secure"}
    assert gateway.key not in orjson.dumps(await gateway.ask("snippets", {**form, "key": gateway.key})).decode()
    assert printed(await output(gateway, form, name), name) == [2.0, 5.0, -6e-5]


@pytest.mark.long
@pytest.mark.parametrize("name", RUN)
async def test_a_snippet_has_texts_as_they_are(gateway: RunningPlayground, name: str) -> None:
    expected = ["IT'S", '$HOME "B" \\N']
    found = printed(await output(gateway, UPPER, name), name)
    assert [each.decode() if isinstance(each, bytes) else each for each in found] == expected


async def test_a_client_that_cannot_send_it_says_why(gateway: RunningPlayground) -> None:
    found = {each["name"]: each for each in await gateway.ask("snippets", UPPER)}
    assert found["umbridge"]["code"] == ""
    assert found["umbridge"]["note"] == "this protocol supports only numbers; choose a numeric datatype"
    many = {**DOUBLE, "inputs": [{"name": "x", "values": "1 " * 2001}]}
    assert all("too many" in each["note"] for each in await gateway.ask("snippets", many))


LISTENERS = """
forms: {prices: {infer: {method: PUT, path: /predict, request: {x: $x}, response: {y: $y}}}}
listeners:
  - {name: http, bind: "0.0.0.0:8000", protocols: [v2-rest, umbridge], prefix: {v2-rest: /team}}
  - {name: grpc, bind: "0.0.0.0:8001", protocols: [v2-grpc]}
  - {name: binary, bind: "[::]:8002", protocols: [graphpipe]}
  - {name: form, bind: "0.0.0.0:8003", protocols: ["json:prices"], model: prices}
  - {name: socket, bind: "unix:///run/models.sock", protocols: [grps-brpc]}
backends: {lab: {protocol: v2-grpc, endpoints: ["127.0.0.1:1"]}}
routes: [{match: {model: "*"}, backend: lab}]
"""
ADDRESSES = {
    "http": "0.0.0.0:8000", "grpc": "0.0.0.0:8001", "binary": "[::]:8002", "form": "0.0.0.0:8003",
    "socket": "unix:///run/models.sock",
}  # fmt: skip


async def of_client(name: str, form: dict[str, Any], **addresses: str) -> Snippet:
    """The snippet for this client."""
    typed = PlaygroundForm.model_validate(form)
    found = await snippets(typed, config_of(LISTENERS), {**ADDRESSES, **addresses}, "lab.example")
    return next(each for each in found if each.name == name)


def lists_printed_by(snippet: Snippet) -> list[Any]:
    """What a snippet for `gateway call` or `gateway.client` prints, run in this process."""
    if snippet.language == "python":
        calls: list[tuple[Any, ...]] = []
        exec(snippet.code, {"print": lambda *values: calls.append(values)})
        return [values[-1] for values in calls]
    words = shlex.split(snippet.code.replace("\\\n", ""))
    given = words[2].encode() if words[0] == "printf" else b""
    result = command(*words[words.index("call") :], given=given)
    assert (result.exit_code, result.stderr) == (0, "")
    outputs = [json.loads(line)["outputs"][0] for line in result.stdout.splitlines()]
    return [np.reshape(each["data"], each["shape"]).tolist() for each in outputs]


SENS = {"name": "sens", "values": "3", "shape": "1, 1"}
VEC = {"name": "vec", "values": "[[5, 7]]"}


def index(name: str) -> dict[str, str]:
    return {"name": name, "datatype": "INT64", "values": "0"}


def derivative(operation: str, *inputs: dict[str, str], **changed: Any) -> dict[str, Any]:
    return {**POSTERIOR, "operation": operation, "inputs": [*POSTERIOR["inputs"], *inputs], **changed}


GRADIENT = derivative("gradient", SENS, index("in_wrt"), index("out_wrt"), protocol="umbridge")
JACOBIAN = derivative("apply_jacobian", VEC, protocol="umbridge")
HESSIAN = derivative(
    "apply_hessian", SENS, VEC, index("in_wrt1"), index("in_wrt2"), index("out_wrt"), protocol="umbridge"
)
GRPC = {**DOUBLE, "listener": "grpc", "protocol": "v2-grpc"}
COUNT = {
    **GRPC,
    "model": "count",
    "operation": "stream",
    "inputs": [{"name": "n", "datatype": "INT32", "shape": "1, 1", "values": "3"}],
    "outputs": [],
}
ROUGH = {
    **GRPC,
    "version": "1",
    "headers": "x-team: a b",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": "1, 3", "values": "inf, -inf, 2"}],
}


@pytest.mark.parametrize("name", ["gateway call", "gateway.client"])
@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (GRADIENT, [[[60.0, -30.0]]]),
        (JACOBIAN, [[[30.0]]]),
        (HESSIAN, [[[118.5, 90.0]]]),
        (COUNT, [[[0]], [[1]], [[2]]]),
        (ROUGH, [[[np.inf, -np.inf, 4.0]]]),
    ],
)
def test_a_snippet_has_the_operation_and_what_belongs_to_it(
    name: str, form: dict[str, Any], expected: list[Any]
) -> None:
    with served(form["protocol"], form["model"]) as address:
        bare = address.partition("://")[2]
        assert lists_printed_by(asyncio.run(of_client(name, form, **{form["listener"]: bare}))) == expected


PLAIN = {**DOUBLE, "inputs": [{"name": "x", "datatype": "FP32", "values": "0.5"}], "outputs": []}
NAMED = {**PLAIN, "version": "2", "parameters": '{"note": "it\'s"}', "headers": "x-team: a b"}
UMBRIDGE = """\
import umbridge

model = umbridge.HTTPModel('http://lab.example:8000', 'posterior')
print(model.CALL)"""
TRITON = """\
import numpy as np
from tritonclient.http import InferenceServerClient, InferInput

inputs = []
inputs.append(InferInput('x', [1], 'FP32'))
inputs[-1].set_data_from_numpy(np.array([0.5], dtype=np.float32))

client = InferenceServerClient('lab.example:8000/team')
result = client.infer(%s)
for output in result.get_response()['outputs']:
    name = output['name']
    print(name, result.as_numpy(name).tolist())"""
FORM = {**PLAIN, "listener": "form", "protocol": "json:prices", "model": "prices"}
FORM["inputs"] = [{"name": "x", "values": "0.5"}]
SOCKET = {**PLAIN, "listener": "socket", "protocol": "grps-brpc"}
CLIENT = """\
import numpy as np
from gateway.client import Client

with Client(%s) as client:
    outputs = client.infer(%s)
    for name, array in outputs.items():
        print(name, array.tolist())"""


@pytest.mark.parametrize(
    ("name", "form", "code"),
    [
        (
            "curl",
            FORM,
            "curl -sS --globoff http://lab.example:8003/predict -X PUT \\\n"
            "  -H 'content-type: application/json' \\\n  -H 'accept: application/json' \\\n"
            "  --data-raw '{\"x\":[0.5]}'",
        ),
        ("umbridge", GRADIENT, UMBRIDGE.replace("CALL", "gradient(0, 0, [[1.0, 2.0]], [3.0], {})")),
        ("umbridge", JACOBIAN, UMBRIDGE.replace("CALL", "apply_jacobian(0, 0, [[1.0, 2.0]], [5.0, 7.0], {})")),
        ("umbridge", HESSIAN, UMBRIDGE.replace("CALL", "apply_hessian(0, 0, 0, [[1.0, 2.0]], [3.0], [5.0, 7.0], {})")),
        (
            "tritonclient.http",
            NAMED,
            TRITON % "'double', inputs, model_version='2', parameters={'note': \"it's\"}, headers={'x-team': 'a b'}",
        ),
        (
            "gateway.client",
            NAMED,
            CLIENT % (
                "'v2-rest://lab.example:8000/team', headers={'x-team': 'a b'}",
                "'double', inputs={'x': np.array([0.5], dtype=np.float32)}, version='2', parameters={'note': \"it's\"}",
            ),
        ),
        (
            "gateway.client",
            SOCKET,
            CLIENT % ("'grps-brpc:///run/models.sock'", "'double', inputs={'x': np.array([0.5], dtype=np.float32)}"),
        ),
    ],
)  # fmt: skip
async def test_a_snippet_in_full(name: str, form: dict[str, Any], code: str) -> None:
    assert (await of_client(name, form)).code == code


async def test_a_body_that_is_not_text_is_decoded_from_base64() -> None:
    form = {**PLAIN, "listener": "binary", "protocol": "graphpipe"}
    form["inputs"] = [{"name": "x", "datatype": "FP32", "values": "-0.5"}]
    inputs = (tensor("x", np.array([-0.5], np.float32)),)
    encode = protocols()["graphpipe"].encode_request
    message = encode(Request(Operation.INFER, "double", inputs=inputs), Target("binary", "binary:1"))
    code = (await of_client("curl", form)).code
    assert code == (
        f"printf %s {b64encode(bytes(message.body)).decode()} | base64 -d | "
        "curl -sS --globoff http://lab.example:8002/graphpipe/double \\\n"
        "  -H 'content-type: application/octet-stream' \\\n  --data-binary @-"
    )


THETA = POSTERIOR["inputs"][0]
TWO = {**PLAIN, "protocol": "umbridge", "inputs": [{"name": "x", "values": "[[1], [2]]"}]}
TWO_GRADIENTS = {
    **GRADIENT,
    "inputs": [{**THETA, "shape": "2, 2", "values": "1 2 3 4"}, {"name": "sens", "values": "[[1], [1]]"}],
}
WIDE = {**POSTERIOR, "inputs": [{**THETA, "shape": "1, 3", "values": "1, 2, 3"}]}


@pytest.mark.parametrize(
    ("name", "form", "note"),
    [
        ("curl", TWO, "umbridge takes one row per call, but there are 2 rows"),
        ("umbridge", TWO, "the client `umbridge` sends one point per call, but the request has 2 rows"),
        ("umbridge", TWO_GRADIENTS, "the client `umbridge` sends one point per call, but the request has 2 rows"),
        ("umbridge", {**PLAIN, "headers": "x-team: a"}, "the client `umbridge` cannot send a key or headers"),
        ("umbridge", COUNT, "UM-Bridge has no stream"),
        ("umbridge", WIDE, "input 'input0' has shape [1, 3], expected [-1, 2]"),
        ("tritonclient.grpc", COUNT, "shown for requests with one response"),
        ("gateway call", {**PLAIN, "model": "-x"}, "a model name that begins with - needs a separate file"),
        (
            "curl",
            {**UPPER, "inputs": [{"name": "text", "datatype": "BYTES", "values": "a" * 65536}]},
            "the body of 65607 bytes is too long for a snippet; enter fewer values",
        ),
    ],
)
async def test_a_client_says_what_it_cannot_send(name: str, form: dict[str, Any], note: str) -> None:
    found = await of_client(name, form)
    assert (found.code, found.note) == ("", note)
