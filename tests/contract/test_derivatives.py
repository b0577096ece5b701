"""The gateway sends the derivatives that ModelInfo claims, for servers of every protocol: servers with derivative
models, servers that accept any name for their only model, and routes that configure derivative models."""

import json
from typing import Any, TypeAlias

import numpy as np

from gateway.core.frozen import replace
from gateway.core.operations import CALLS, DERIVATIVES, Operation
from gateway.core.requests import Request
from gateway.reference.declaration import signature
from gateway.reference.loading import find
from tests.contract.cases import each
from tests.contract.installed import INSTALLED
from tests.wires import Wires, reference

CONFIG = """
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [umbridge, v2-rest, graphpipe, grps-rest]}}]
backends: {{lab: {{protocol: {protocol}, endpoints: ["lab:1"], trust_metadata: {trusted}}}}}
routes:
  - match: {{model: "*"}}
    backend: lab
    signature:
      inputs: [{{name: theta, datatype: FP64, shape: [-1, 2]}}]
      outputs: [{{name: logdensity, datatype: FP64, shape: [-1, {outputs}]}}]
    translate: {translate}
"""
Numbers: TypeAlias = np.ndarray[Any, Any]
POINT = {"name": "m", "outWrt": 0, "inWrt": 0, "input": [[1, 2]]}
HESSIAN = {"name": "m", "outWrt": 0, "inWrt1": 0, "inWrt2": 0, "input": [[1, 2]]}


@signature(inputs=[("theta", "FP64", [-1, 2])], outputs=[("logdensity", "FP64", [-1, 2])])
def plain(theta: Numbers) -> Numbers:
    """A model without derivatives."""
    return 2 * theta


MODELS = {"posterior": find("posterior"), "plain": find(f"{__name__}:plain")}


class Asked:
    """A gateway in front of one server, and the model calls that the server received."""

    def __init__(self, protocol: str, model: str, *, any_name: bool, trusted: bool, named: bool) -> None:
        self.calls: list[tuple[str, Operation]] = []
        self._model, self._any_name = model, any_name
        operations = json.dumps({each.value: f"slope.{each.value}" for each in DERIVATIVES})
        text = CONFIG.format(
            protocol=protocol,
            trusted=str(trusted).lower(),
            outputs=1 if model == "posterior" else 2,
            translate=f"{{operations: {operations}}}" if named else "{}",
        )
        self._sens = [1] if model == "posterior" else [1, 1]
        self._wires = Wires(text, lab=reference(protocol, MODELS[model], heard=self._heard))

    def _heard(self, request: Request) -> Request:
        if request.operation in CALLS:
            self.calls.append((request.model, request.operation))
        model = self._model if self._any_name and request.model else request.model
        return replace(request, model=model.replace("slope.", "posterior."))

    async def claimed(self) -> frozenset[str]:
        reply = await self._wires.post("umbridge", "/ModelInfo", json.dumps({"name": self._model}).encode())
        support = json.loads(bytes(reply.body))["support"]
        return frozenset(name for name, claim in support.items() if claim and name != "Evaluate")

    async def sent(self) -> frozenset[str]:
        """Return the derivatives that the gateway sends to the server when a client requests them."""
        bodies = {
            "Gradient": {**POINT, "sens": self._sens},
            "ApplyJacobian": {**POINT, "vec": [1, 1]},
            "ApplyHessian": {**HESSIAN, "sens": self._sens, "vec": [1, 1]},
        }
        found = set()
        for name, body in bodies.items():
            before = len(self.calls)
            reply = await self._wires.post("umbridge", f"/{name}", json.dumps({**body, "name": self._model}).encode())
            if len(self.calls) > before:
                found.add(name)
            else:
                assert json.loads(bytes(reply.body))["error"]["type"] == "UnsupportedFeature", reply.body
        return frozenset(found)

    async def companions(self) -> frozenset[str]:
        """Return the derivative models that the gateway sends to the server when tensor clients request them by
        name."""
        found = set()
        for operation in DERIVATIVES:
            tensors = [
                {"name": name, "datatype": "FP64", "shape": [1, size], "data": [1] * size}
                for name, size in (("theta", 2), ("sens", len(self._sens)), ("vec", 2))
                if name == "theta" or name in DERIVATIVES[operation]
            ]
            before = len(self.calls)
            path = f"/v2/models/{self._model}.{operation.value}/infer"
            await self._wires.post("v2-rest", path, json.dumps({"inputs": tensors}).encode())
            if len(self.calls) > before:
                found.add("".join(word.capitalize() for word in operation.value.split("_")))
        return frozenset(found)


ALL = frozenset({"Gradient", "ApplyJacobian", "ApplyHessian"})
SERVERS: dict[str, tuple[str, bool, bool]] = {
    "with companions": ("posterior", False, False),
    "without companions": ("plain", False, False),
    "for any name": ("plain", True, False),
    "named by the route": ("posterior", False, True),
}


def _need_not_be_trusted(protocol: str, server: object, trusted: bool) -> bool:
    models = INSTALLED[protocol].traits.models
    return trusted and (models.trusted_metadata or not models.metadata_parts)


@each(
    {"it has no metadata that could be trusted": _need_not_be_trusted},
    protocol={name: name for name in INSTALLED},
    server=SERVERS,
    trusted={"trusted": True, "as it is": False},
)
async def test_modelinfo_claims_what_is_sent(protocol: str, server: tuple[str, bool, bool], trusted: bool) -> None:
    model, any_name, named = server
    asked = Asked(protocol, model, any_name=any_name, trusted=trusted, named=named)
    claimed = await asked.claimed()
    assert await asked.sent() == claimed
    models = INSTALLED[protocol].traits.models
    has_operations = INSTALLED[protocol].traits.wire.derivatives
    assert claimed == (ALL if model == "posterior" and (models.companions or has_operations) else frozenset())
    assert await asked.companions() == claimed
