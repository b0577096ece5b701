"""Routes are built in steps, and what answers a protocol's requests when the first of them comes."""

import pytest

from gateway.assembly.routes import LazyMapping
from gateway.core.messages import Message
from gateway.reference.loading import find
from tests.wires import Wires, reference


def test_a_value_is_made_once_and_when_it_is_asked_for() -> None:
    made: list[str] = []

    def make(key: str) -> str:
        made.append(key)
        return key.upper()

    values = LazyMapping(["a", "b"], make)
    assert (list(values), len(values), made) == (["a", "b"], 2, [])
    assert (values["a"], values.get("a"), values.get("c"), made) == ("A", "A", None, ["a"])
    with pytest.raises(KeyError):
        values["c"]


async def test_each_protocol_and_companion_has_its_answer() -> None:
    text = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge, v1-rest]}]
backends: {lab: {protocol: v2-rest, flavor: binary, endpoints: ["lab:1"]}}
routes: [{match: {model: posterior}, backend: lab}, {match: {model: "*", protocol: v2-rest}, backend: lab}]
"""
    wires = Wires(text, lab=reference("v2-rest", find("posterior")))
    for path in ("/v2/models/posterior", "/v2/models/posterior.gradient", "/v2/models/posterior.gradient/ready"):
        assert (await wires.send("v2-rest", Message("GET", path))).status == 200
    assert (await wires.post("umbridge", "/ModelInfo", b'{"name": "posterior"}')).status == 200
    assert (await wires.send("v1-rest", Message("GET", "/v1/models/other"))).status == 404
