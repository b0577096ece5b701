"""UM-Bridge: what the interface says, and what the conformity suite and R's client send."""

import json
from typing import Any

import pytest

from gateway.core.messages import Message
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.reference import signature
from gateway.reference.callables import from_callable
from gateway.reference.loading import find
from tests.wires import Wires, reference, replying

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [umbridge, v2-rest]}]
backends: {lab: {protocol: PROTOCOL, endpoints: ["lab:1"]BACKEND}}
routes: [{match: {model: "*"}, backend: labROUTE}]
"""


def config(protocol: str, route: str = "", backend: str = "") -> str:
    backend += ", flavor: binary" if protocol == "v2-rest" else ""
    return CONFIG.replace("PROTOCOL", protocol).replace("BACKEND", backend).replace("ROUTE", route)


@signature(inputs=[("x", "FP64", [-1, 1])], outputs=[("y", "FP64", [-1, 1])])
def twice(x: Any) -> Any:
    return 2 * x


async def ask(wires: Wires, word: str, **body: Any) -> tuple[int, dict[str, Any]]:
    reply = await wires.post("umbridge", f"/{word}", json.dumps(body).encode())
    answer: dict[str, Any] = json.loads(bytes(reply.body))
    return reply.status, answer


TRUSTED = ", trust_metadata: true"
DECLARED = """, signature: {
  inputs: [{name: x, datatype: FP64, shape: [-1, 1]}], outputs: [{name: y, datatype: FP64, shape: [-1, 1]}]}"""


def through(protocol: str, model: Any = None, route: str = "", backend: str = "") -> Wires:
    """A gateway before a reference server with `twice`, or with another model."""
    return Wires(config(protocol, route, backend), lab=reference(protocol, model or from_callable("twice", twice)))


OPERATIONS = ["Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian", "InputSizes", "OutputSizes", "ModelInfo"]


@pytest.mark.parametrize("protocol", ["umbridge", "v2-rest", "v2-grpc"])
@pytest.mark.parametrize("word", OPERATIONS)
async def test_the_name_is_looked_at_first(word: str, protocol: str) -> None:
    """The conformity suite asks so, without an input."""
    status, answer = await ask(through(protocol), word, name="wrong")
    assert (status, answer["error"]["type"]) == (400, "ModelNotFound")


@pytest.mark.parametrize("body", [{}, {"input": "x"}, {"input": [[None]]}])
async def test_of_a_model_that_is_there_it_is_told_what_is_wrong(body: dict[str, Any]) -> None:
    wires = through("umbridge")
    status, answer = await ask(wires, "Evaluate", name="twice", **body)
    assert (status, answer["error"]["type"]) == (400, "InvalidInput")
    assert "input" in answer["error"]["message"]
    assert all(message.path != "/Evaluate" for message in wires.sent["lab"])


async def _echo_of_config(message: Message) -> Message:
    """A server whose model takes anything and answers how many characters its config has."""
    body = json.loads(bytes(message.body))
    answers = {
        "/InputSizes": {"inputSizes": [1]},
        "/OutputSizes": {"outputSizes": [1]},
        "/ModelInfo": {"support": {"Evaluate": True}},
        "/Evaluate": {"output": [[1.0]]},
    }
    assert "config" in body or message.path == "/ModelInfo"
    return Message(parts=(json.dumps(answers[message.path]).encode(),), status=200)


@pytest.mark.parametrize("config_", [[1, "a"], "fast", 2.5, False, {"a": [None]}])
async def test_any_json_is_a_config(config_: Any) -> None:
    wires = Wires(config("umbridge"), lab=_echo_of_config)
    assert await ask(wires, "Evaluate", name="m", input=[[1]], config=config_) == (200, {"output": [[1.0]]})
    assert json.loads(bytes(wires.sent["lab"][-1].body))["config"] == config_


@pytest.mark.parametrize("empty", [[], {}, None])
async def test_an_empty_list_is_an_empty_config(empty: Any) -> None:
    """R writes an empty list so."""
    wires = Wires(config("umbridge"), lab=_echo_of_config)
    assert await ask(wires, "Evaluate", name="m", input=[[1]], config=empty) == (200, {"output": [[1.0]]})
    assert json.loads(bytes(wires.sent["lab"][-1].body))["config"] == {}
    assert (await ask(through("v2-rest"), "Evaluate", name="twice", input=[[1]], config=empty))[0] == 200


async def test_a_config_that_the_other_side_cannot_take_is_refused_there() -> None:
    """The reference models take objects."""
    wires = through("v2-rest", find("posterior"))
    status, answer = await ask(wires, "Evaluate", name="posterior", input=[[1, 2]], config=[1])
    assert (status, answer["error"]["type"]) == (400, "InvalidInput")
    assert "must be the text of a JSON object" in answer["error"]["message"]


SIZES = {"inputs": [3, 2], "outputs": [2, 1]}
"""Of a model with several vectors, whose lengths differ."""

TWO = signature(
    inputs=[("a", "FP64", [-1, 3]), ("b", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 2]), ("z", "FP64", [-1, 1])]
)
POINT = [[1, 2, 3], [4, 5]]
INDEXED = [
    ("Gradient", {"outWrt": 0, "inWrt": 1, "sens": [1, 1]}, 2),
    ("Gradient", {"outWrt": 1, "inWrt": 0, "sens": [1]}, 3),
    ("ApplyJacobian", {"outWrt": 1, "inWrt": 1, "vec": [1, 1]}, 1),
    ("ApplyHessian", {"outWrt": 1, "inWrt1": 0, "inWrt2": 1, "sens": [1], "vec": [1, 1]}, 3),
]
"""Calls of that model, and the length of the answer: that of input `inWrt` (`inWrt1`) or output `outWrt`."""


def of_two_vectors(length: int) -> Wires:
    """An UM-Bridge server whose derivatives are vectors of `length`, whatever they should be."""

    async def serve(message: Message) -> Message:
        answers = {
            "/InputSizes": {"inputSizes": SIZES["inputs"]},
            "/OutputSizes": {"outputSizes": SIZES["outputs"]},
            "/ModelInfo": {"support": dict.fromkeys(("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian"), True)},
        }
        answer = answers.get(message.path, {"output": [1.0] * length})
        return Message(parts=(json.dumps(answer).encode(),), status=200)

    return Wires(config("umbridge"), lab=serve)


def of_companions(length: int) -> Wires:
    """A V2 server whose companions leave their sizes open, and answer with vectors of `length`."""

    def spec(name: str, size: int = -1, datatype: str = "FP64") -> dict[str, Any]:
        return {"name": name, "datatype": datatype, "shape": [-1, size]}

    async def serve(message: Message) -> Message:
        name = message.path.split("/")[3]
        operation = Operation(name.partition(".")[2] or "infer")
        own = [spec("a", 3), spec("b", 2)]
        if message.method == "POST":
            output = {"name": "output", "datatype": "FP64", "shape": [1, length], "data": [1.0] * length}
            return Message(parts=(json.dumps({"model_name": name, "outputs": [output]}).encode(),), status=200)
        if "." in name:
            extras = DERIVATIVES[operation]
            inputs = [*own, *(spec(each, 1, "INT64") if each in INDEX_TENSORS else spec(each) for each in extras)]
            outputs = [spec("output")]
        else:
            inputs, outputs = own, [spec("y", 2), spec("z", 1)]
        document = {"name": name, "versions": [], "platform": "", "inputs": inputs, "outputs": outputs}
        return Message(parts=(json.dumps(document).encode(),), status=200)

    return Wires(config("v2-rest"), lab=serve)


@pytest.mark.parametrize("wires", [of_two_vectors, of_companions])
@pytest.mark.parametrize(("word", "members", "length"), INDEXED)
async def test_outputs_of_derivatives_have_the_declared_sizes(
    word: str, members: dict[str, Any], length: int, wires: Any
) -> None:
    body = {"name": "m", "input": POINT, **members}
    assert await ask(wires(length), word, **body) == (200, {"output": [1.0] * length})
    status, answer = await ask(wires(length + 1), word, **body)
    assert (status, answer["error"]["type"]) == (500, "InvalidOutput")


@pytest.mark.parametrize("wires", [of_two_vectors, of_companions])
@pytest.mark.parametrize(("word", "members", "length"), INDEXED)
async def test_their_inputs_and_indices_are_checked_before_they_are_sent(
    word: str, members: dict[str, Any], length: int, wires: Any
) -> None:
    for key, value in members.items():
        made = wires(length)
        wrong = [*value, 1] if isinstance(value, list) else 2
        status, answer = await ask(made, word, name="m", input=POINT, **{**members, key: wrong})
        assert (status, answer["error"]["type"]) == (400, "InvalidInput"), (key, answer)
        assert all(b'"input' not in message.body for message in made.sent["lab"])


@signature(inputs=[("text", "BYTES", [-1, 1])], outputs=[("n", "FP64", [-1, 1])])
def length_of(text: Any) -> Any:
    return text


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "grps-rest"])
async def test_a_model_of_bytes_is_an_unsupported_feature(protocol: str) -> None:
    trusted = TRUSTED if protocol == "grps-rest" else ""
    wires = through(protocol, from_callable("length_of", length_of), backend=trusted)
    calls = {"Evaluate": {}, "Gradient": {"outWrt": 0, "inWrt": 0, "sens": [1]}}
    for word, members in calls.items():
        status, answer = await ask(wires, word, name="length_of", input=[[1]], **members)
        assert (status, answer["error"]["type"]) == (400, "UnsupportedFeature"), answer
    status, answer = await ask(wires, "ModelInfo", name="length_of")
    assert answer["support"]["Evaluate"] is False


async def test_a_model_that_only_streams_does_not_claim_to_evaluate() -> None:
    assert await ask(through("umbridge", find("count")), "ModelInfo", name="count") == (
        200,
        {"support": {"Evaluate": False, "Gradient": False, "ApplyJacobian": False, "ApplyHessian": False}},
    )


@pytest.mark.parametrize("stream", ["error", "last"])
async def test_it_does_where_the_route_makes_one_response_of_a_stream(stream: str) -> None:
    wires = through("grps-rest", find("count"), f", translate: {{stream: {stream}}}", TRUSTED)
    _, answer = await ask(wires, "ModelInfo", name="count")
    assert answer["support"]["Evaluate"] is (stream == "last")


PYTHON_TRACEBACK = """Traceback (most recent call last):
  File "/grps/server.py", line 1, in predict
RuntimeError: Model twice.gradient-1.0.0 not found.
"""


async def _real_grps(message: Message) -> Message:
    """grps' Python server with one model, `twice` of version 1.0.0."""
    body = json.loads(bytes(message.body) or b"{}")
    code, text, told = 500, PYTHON_TRACEBACK, ""
    if message.path.endswith("/metadata/server"):
        code, text, told = 200, "OK", "models:\n- {name: twice, version: 1.0.0}\n"
    elif message.path.endswith("/metadata/model"):
        code, text = 404, "Model not found."
        if body["str_data"] == "twice":
            code, text, told = 200, "OK", "name: twice\nversion: 1.0.0\n"
    status = {"code": code, "msg": text, "status": "SUCCESS" if code == 200 else "FAILURE"}
    return Message(parts=(json.dumps({"status": status, "str_data": told}).encode(),), status=code)


async def test_a_derivative_that_a_model_has_not_is_an_unsupported_feature() -> None:
    wires = Wires(config("grps-rest", f", rewrite: {{version: 1.0.0}}{DECLARED}"), lab=_real_grps)
    members = {"input": [[1]], "outWrt": 0, "inWrt": 0, "sens": [1]}
    status, answer = await ask(wires, "Gradient", name="twice", **members)
    assert (status, answer["error"]["type"]) == (400, "UnsupportedFeature"), answer
    assert answer["error"]["message"].startswith("gradient is not supported by model 'twice'")
    status, answer = await ask(wires, "Gradient", name="wrong", **members)
    assert (status, answer["error"]["type"]) == (400, "ModelNotFound"), answer


@pytest.mark.parametrize("protocol", ["umbridge", "v2-rest", "v2-grpc"])
@pytest.mark.parametrize("call", ["Gradient", "ApplyJacobian", "ApplyHessian"])
async def test_an_unsupported_feature_is_known_by_the_models_name_alone(protocol: str, call: str) -> None:
    """The conformity suite sends nothing else."""
    wires = through(protocol)
    for members in ({}, {"input": "no vectors", "outWrt": []}):
        status, answer = await ask(wires, call, name="twice", **members)
        assert (status, answer["error"]["type"]) == (400, "UnsupportedFeature"), answer
        assert "twice" in answer["error"]["message"]
    status, answer = await ask(through(protocol, find("posterior")), call, name="posterior")
    assert (status, answer["error"]["type"]) == (400, "InvalidInput")


async def test_an_evaluation_that_a_model_has_not_is_known_by_its_name_alone() -> None:
    status, answer = await ask(through("grps-rest", find("count"), backend=TRUSTED), "Evaluate", name="count")
    assert (status, answer["error"]["type"]) == (400, "UnsupportedFeature")


@pytest.mark.parametrize("question", ["InputSizes", "OutputSizes"])
async def test_sizes_are_those_that_belong_to_the_config(question: str) -> None:
    """An UM-Bridge server is asked with the config; V2's questions for metadata have no place for it."""

    async def sizes(wires: Wires, **config: Any) -> tuple[int, Any]:
        status, answer = await ask(wires, question, name="twice", config=config)
        return status, answer.get("error", answer)

    told = json.dumps({f"{question[:1].lower()}{question[1:]}": [4]}).encode()
    both = json.dumps({"inputSizes": [4], "outputSizes": [4], "support": {"Evaluate": True}}).encode()
    through_umbridge = Wires(config("umbridge"), lab=replying(both))
    assert await sizes(through_umbridge, n=4) == (200, json.loads(told))
    assert any(b'"n"' in message.body for message in through_umbridge.sent["lab"])

    for protocol in ("v2-rest", "v2-grpc"):
        wires = through(protocol)
        assert (await sizes(wires))[0] == 200
        status, error = await sizes(wires, n=4)
        assert (status, error["type"]) == (400, "UnsupportedFeature")
        assert "'config' is not supported in a size query for model 'twice'" in error["message"]
        assert (await sizes(through(protocol, route=DECLARED), n=4))[0] == 200


async def test_a_reference_server_has_the_same_sizes_for_every_config() -> None:
    """So a gateway in front of it, which asks with the config of a call, carries the call."""
    wires = through("umbridge", find("posterior"))
    for question in ("InputSizes", "OutputSizes"):
        assert (await ask(wires, question, name="posterior", config={"n": 4}))[0] == 200
