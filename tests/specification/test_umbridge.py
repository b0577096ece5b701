"""UM-Bridge: what the interface says, and what the conformity suite and R's client send."""

import json
from typing import Any

import pytest

from gateway.core.types import Message
from gateway.reference import signature
from gateway.reference.callables import from_callable
from gateway.reference.loading import find
from tests.wires import Wires, reference

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [umbridge, v2-rest]}]
backends: {lab: {protocol: PROTOCOL, endpoints: ["lab:1"]FLAVOR}}
routes: [{match: {model: "*"}, backend: lab}]
"""


def config(protocol: str) -> str:
    flavor = ", flavor: binary" if protocol == "v2-rest" else ""
    return CONFIG.replace("PROTOCOL", protocol).replace("FLAVOR", flavor)


@signature(inputs=[("x", "FP64", [-1, 1])], outputs=[("y", "FP64", [-1, 1])])
def twice(x: Any) -> Any:
    return 2 * x


async def ask(wires: Wires, word: str, **body: Any) -> tuple[int, dict[str, Any]]:
    reply = await wires.post("umbridge", f"/{word}", json.dumps(body).encode())
    answer: dict[str, Any] = json.loads(reply.body)
    return reply.status, answer


def through(protocol: str) -> Wires:
    return Wires(config(protocol), lab=reference(protocol, from_callable("twice", twice)))


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
    body = json.loads(message.body)
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
    assert json.loads(wires.sent["lab"][-1].body)["config"] == config_


@pytest.mark.parametrize("empty", [[], {}, None])
async def test_an_empty_list_is_an_empty_config(empty: Any) -> None:
    """R writes an empty list so."""
    wires = Wires(config("umbridge"), lab=_echo_of_config)
    assert await ask(wires, "Evaluate", name="m", input=[[1]], config=empty) == (200, {"output": [[1.0]]})
    assert json.loads(wires.sent["lab"][-1].body)["config"] == {}
    assert (await ask(through("v2-rest"), "Evaluate", name="twice", input=[[1]], config=empty))[0] == 200


async def test_a_config_that_the_other_side_cannot_take_is_refused_there() -> None:
    """The reference models take objects."""
    wires = Wires(config("v2-rest"), lab=reference("v2-rest", find("posterior")))
    status, answer = await ask(wires, "Evaluate", name="posterior", input=[[1, 2]], config=[1])
    assert (status, answer["error"]["type"]) == (400, "InvalidInput")
    assert "must be the text of a JSON object" in answer["error"]["message"]
