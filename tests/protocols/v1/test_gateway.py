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


def through(back: str, *models: str, flavor: str = "", face: str = "prefix: {}", **servers: Any) -> Wires:
    text = CONFIG.replace("BACK", back).replace("FACE", face).replace("FLAVOR", f", flavor: {flavor}" if flavor else "")
    return Wires(text, **(servers or {"lab": reference(back, *map(find, models))}))


async def predict(wires: Wires, path: str, body: str) -> tuple[int, Any]:
    reply = await wires.post("v1-rest", path, body.encode())
    return reply.status, json.loads(bytes(reply.body))


TENSORFLOW = "flavor: {v1-rest: tensorflow}"


@pytest.mark.parametrize("back", ["v2-rest", "v2-grpc", "v1-rest"])
async def test_numbers_take_the_signatures_datatypes(back: str) -> None:
    wires = through(back, "add_sub")
    body = '{"instances":[{"INPUT0":1,"INPUT1":2.0}]}'
    assert await predict(wires, "/v1/models/add_sub:predict", body) == (
        200,
        {"predictions": [{"OUTPUT0": 3, "OUTPUT1": -1}]},
    )
    status, answer = await predict(wires, "/v1/models/add_sub:predict", '{"instances":[{"INPUT0":1,"INPUT1":2.5}]}')
    assert (status, "INT32" in answer["error"]) == (400, True)


async def test_a_bare_tensor_is_the_only_input() -> None:
    wires = through("v2-rest", "double", "add_sub")
    assert await predict(wires, "/v1/models/double:predict", '{"inputs":[[1,2]]}') == (200, {"outputs": [[2.0, 4.0]]})
    status, answer = await predict(wires, "/v1/models/add_sub:predict", '{"instances":[1]}')
    assert status == 400
    assert "'INPUT0'" in answer["error"]
    assert "'INPUT1'" in answer["error"]


async def test_ragged_rows_for_a_model_of_numbers() -> None:
    status, answer = await predict(
        through("v2-rest", "double"), "/v1/models/double:predict", '{"instances":[[1],[2,3]]}'
    )
    assert (status, "ragged" in answer["error"]) == (400, True)


async def test_texts_and_bytes_reach_a_v2_model() -> None:
    wires = through("v2-rest", "upper")
    assert await predict(wires, "/v1/models/upper:predict", '{"instances":["ab",{"b64":"Y2Q="}]}') == (
        200,
        {"predictions": ["AB", "CD"]},
    )


async def test_an_explanation_of_a_model_elsewhere_is_unsupported() -> None:
    status, answer = await predict(through("v2-rest", "double"), "/v1/models/double:explain", '{"instances":[[1]]}')
    assert (status, "explain" in answer["error"]) == (501, True)


async def test_parameters_are_refused_by_umbridge() -> None:
    body = '{"instances":[[1,2]],"signature_name":"other"}'
    status, answer = await predict(through("umbridge", "posterior"), "/v1/models/posterior:predict", body)
    assert (status, "'signature_name'" in answer["error"]) == (400, True)


@pytest.mark.parametrize("face", ["prefix: {}", TENSORFLOW])
@pytest.mark.parametrize("back", ["umbridge", "v1-rest", "v2-rest"])
async def test_the_default_signature_is_taken_by_every_server(back: str, face: str) -> None:
    body = '{"signature_name":"serving_default","instances":[[1,2]]}'
    wires = through(back, "posterior", face=face)
    assert await predict(wires, "/v1/models/posterior:predict", body) == (200, {"predictions": [[-5.0]]})


async def test_a_label_is_not_a_version_of_triton() -> None:
    wires = through("v2-rest", "double", flavor="triton")
    status, answer = await predict(wires, "/v1/models/double/labels/stable:predict", '{"instances":[[1]]}')
    assert (status, "'stable'" in answer["error"]) == (404, True)
    status, _ = await predict(wires, "/v1/models/double/labels/1:predict", '{"instances":[[1]]}')
    assert status == 200
    assert wires.sent["lab"][-1].path == "/v2/models/double/versions/1/infer"


async def test_kserve_has_no_versions() -> None:
    wires = through("v1-rest", flavor="kserve", lab=replying(b'{"predictions":[1]}'))
    status, answer = await predict(wires, "/v1/models/m/versions/9:predict", '{"instances":[1]}')
    assert (status, "KServe" in answer["error"]) == (404, True)
    assert not any("versions" in each.path for each in wires.sent["lab"])


async def test_below_a_prefix() -> None:
    wires = through("v2-rest", "double", face="prefix: {v1-rest: /serving}")
    assert (await predict(wires, "/serving/v1/models/double:predict", '{"instances":[[1]]}'))[0] == 200


async def test_the_flavor_tensorflow() -> None:
    wires = through("v2-rest", "double", face=TENSORFLOW)
    reply = await wires.send("v1-rest", Message("GET", "/v1/models/double"))
    assert json.loads(bytes(reply.body))["model_version_status"][0]["state"] == "AVAILABLE"
    reply = await wires.post("v1-rest", "/v1/models/double:predict", b'{"instances":[]}')
    assert (reply.status, bytes(reply.body)) == (
        400,
        b'{\n    "error": "JSON Value: [] No values in \'instances\' array"\n}',
    )
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
        loads(CONFIG.replace("BACK", "v2-rest").replace("FACE", face).replace("FLAVOR", ""), "a.yaml", catalog(), {})
    assert text in str(caught.value)


def test_liveness_and_a_page_of_metrics_conflict() -> None:
    text = CONFIG.replace("v2-rest, graphpipe", "grps-rest").replace("FACE", "metrics_page: true")
    with pytest.raises(ConfigError, match="both serve GET /"):
        loads(text.replace("BACK", "v2-rest").replace("FLAVOR", ""), "a.yaml", catalog(), {})
