"""Lists of models have the derivatives that routes estimate, as they have those of models with derivatives."""

import json

from gateway.core.messages import Message
from gateway.reference.loading import find
from tests.wires import Wires, reference

TEXT = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}]
backends: {lab: {protocol: v2-rest, flavor: binary, endpoints: ["lab:1"]}}
routes:
  - {match: {model: rough}, backend: lab, rewrite: {model: double}}
  - {match: {model: smooth}, backend: lab, rewrite: {model: double}, translate: {derivatives: {method: central}}}
  - {match: {model: labels}, backend: lab, rewrite: {model: upper}, translate: {derivatives: {method: central}}}
"""


async def test_companions_that_the_gateway_estimates_are_listed() -> None:
    wires = Wires(TEXT, lab=reference("v2-rest", find("double"), find("upper")))
    reply = await wires.send("v2-rest", Message("POST", "/v2/repository/index"))
    names = [each["name"] for each in json.loads(bytes(reply.body))]
    derived = ["smooth.gradient", "smooth.apply_jacobian", "smooth.apply_hessian"]
    assert names == ["rough", "smooth", *derived, "labels"], "a model of texts has no derivatives"
    for name in names:
        assert (await wires.send("v2-rest", Message("GET", f"/v2/models/{name}"))).status == 200
    reply = await wires.send("umbridge", Message("GET", "/Info"))
    assert json.loads(bytes(reply.body))["models"] == ["rough", "smooth", "labels"]
