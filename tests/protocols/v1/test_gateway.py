"""Whole exchanges through a gateway: V1 in front of other protocols and behind them, in both flavors."""

import json
from typing import Any

import pytest

from gateway.cli.options import catalog
from gateway.config import ConfigError, loads
from gateway.core.messages import Message
from gateway.reference.loading import find
from tests.wires import Wires, reference, replying

CONFIG = """
listeners:
  - {name: a, bind: "127.0.0.1:0", protocols: [v1-rest, v2-rest, graphpipe], FACE}
backends:
  lab: {protocol: BACK, endpoints: ["lab:1"]FLAVOR}
routes: [{match: {model: "*"}, backend: lab}]
"""


def config(back: str, face: str, flavor: str = "") -> str:
    return CONFIG.replace("BACK", back).replace("FACE", face).replace("FLAVOR", f", flavor: {flavor}" if flavor else "")


def through(back: str, *models: str, flavor: str = "", face: str = "prefix: {}", **servers: Any) -> Wires:
    return Wires(config(back, face, flavor), **(servers or {"lab": reference(back, *map(find, models))}))


async def predict(wires: Wires, model: str, body: str, verb: str = "predict") -> tuple[int, Any]:
    reply = await wires.post("v1-rest", f"/v1/models/{model}:{verb}", body.encode())
    return reply.status, json.loads(bytes(reply.body))


TENSORFLOW = "flavor: {v1-rest: tensorflow}"


@pytest.mark.parametrize("back", ["v2-rest", "v2-grpc", "v1-rest"])
async def test_numbers_take_the_signatures_datatypes(back: str) -> None:
    wires = through(back, "add_sub")
    told = await predict(wires, "add_sub", '{"instances":[{"INPUT0":1,"INPUT1":2.0}]}')
    assert told == (200, {"predictions": [{"OUTPUT0": 3, "OUTPUT1": -1}]})
    status, answer = await predict(wires, "add_sub", '{"instances":[{"INPUT0":1,"INPUT1":2.5}]}')
    assert (status, "INT32" in answer["error"]) == (400, True)


async def test_a_bare_tensor_is_the_only_input() -> None:
    wires = through("v2-rest", "double", "add_sub")
    assert await predict(wires, "double", '{"inputs":[[1,2]]}') == (200, {"outputs": [[2.0, 4.0]]})
    status, answer = await predict(wires, "add_sub", '{"instances":[1]}')
    assert status == 400
    assert "'INPUT0'" in answer["error"]
    assert "'INPUT1'" in answer["error"]


async def test_ragged_rows_for_a_model_of_numbers() -> None:
    status, answer = await predict(through("v2-rest", "double"), "double", '{"instances":[[1],[2,3]]}')
    assert (status, "ragged" in answer["error"]) == (400, True)


async def test_texts_and_bytes_reach_a_v2_model() -> None:
    told = await predict(through("v2-rest", "upper"), "upper", '{"instances":["ab",{"b64":"Y2Q="}]}')
    assert told == (200, {"predictions": ["AB", "CD"]})


async def test_an_explanation_of_a_model_elsewhere_is_unsupported() -> None:
    status, answer = await predict(through("v2-rest", "double"), "double", '{"instances":[[1]]}', "explain")
    assert (status, "explain" in answer["error"]) == (501, True)


@pytest.mark.parametrize("face", ["prefix: {}", TENSORFLOW])
@pytest.mark.parametrize("back", ["umbridge", "v1-rest", "v2-rest"])
async def test_the_default_signature_is_taken_by_every_server(back: str, face: str) -> None:
    body = '{"signature_name":"serving_default","instances":[[1,2]]}'
    wires = through(back, "posterior", face=face)
    assert await predict(wires, "posterior", body) == (200, {"predictions": [[-5.0]]})


async def test_a_label_is_not_a_version_of_triton() -> None:
    wires = through("v2-rest", "double", flavor="triton")
    status, answer = await predict(wires, "double/labels/stable", '{"instances":[[1]]}')
    assert (status, "'stable'" in answer["error"]) == (404, True)
    status, _ = await predict(wires, "double/labels/1", '{"instances":[[1]]}')
    assert status == 200
    assert wires.sent["lab"][-1].path == "/v2/models/double/versions/1/infer"


async def test_kserve_has_no_versions() -> None:
    wires = through("v1-rest", flavor="kserve", lab=replying(b'{"predictions":[1]}'))
    status, answer = await predict(wires, "m/versions/9", '{"instances":[1]}')
    assert (status, "a KServe, which has no versions" in answer["error"]) == (404, True)
    assert not any("versions" in each.path for each in wires.sent["lab"])


async def test_below_a_prefix() -> None:
    wires = through("v2-rest", "double", face="prefix: {v1-rest: /serving}")
    assert (await wires.post("v1-rest", "/serving/v1/models/double:predict", b'{"instances":[[1]]}')).status == 200


async def test_the_flavor_tensorflow() -> None:
    wires = through("v2-rest", "double", face=TENSORFLOW)
    reply = await wires.send("v1-rest", Message("GET", "/v1/models/double"))
    assert json.loads(bytes(reply.body))["model_version_status"][0]["state"] == "AVAILABLE"
    reply = await wires.post("v1-rest", "/v1/models/double:predict", b'{"instances":[]}')
    assert reply.status == 400
    assert reply.body == b'{\n    "error": "JSON Value: [] No values in \'instances\' array"\n}'
    reply = await wires.post("v1-rest", "/v1/models/double:regress", b"{}")
    assert reply.status == 501


@pytest.mark.parametrize(
    ("face", "text"),
    [
        ("flavor: {v1-rest: tensorflo}", "did you mean 'tensorflow'?"),
        ("flavor: {v2-rest: triton}", "clients of v2-rest see only one server type"),
        ("flavor: {umbridge: kserve}", "the listener does not serve 'umbridge'"),
    ],
)
def test_an_unknown_flavor_is_a_configuration_error(face: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(config("v2-rest", face), "a.yaml", catalog(), {})
    assert text in str(caught.value)


def test_liveness_and_a_page_of_metrics_conflict() -> None:
    text = config("v2-rest", "metrics_page: true").replace("v2-rest, graphpipe", "grps-rest")
    with pytest.raises(ConfigError, match="both serve GET /"):
        loads(text, "a.yaml", catalog(), {})
