"""`generate` and `generate_stream`: the same curl to Triton and to the gateway in front of it, over REST and over gRPC;
MLServer's form of them; and tritonclient's streams through servers of REST."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.interop.exchanges import Addresses, Listen
from tests.interop.processes import Triton, V2Server
from tests.interop.real_clients import (
    SAMPLES,
    doubles,
    infer,
    number,
    packed,
    raw_of,
    status_of,
    stream,
    tensor,
    tritonclient_grpc,
)
from tests.limits import GENEROUS

CONFIG = """
listeners:
  - {{name: rest, bind: "127.0.0.1:{rest}", protocols: [v2-rest]}}
  - {{name: checked, bind: "127.0.0.1:{checked}", protocols: [v2-rest]}}
  - {{name: grpc, bind: "127.0.0.1:{grpc}", protocols: [v2-rest]}}
  - {{name: mlserver, bind: "127.0.0.1:{mlserver}", protocols: [v2-rest]}}
  - {{name: kserve, bind: "127.0.0.1:{kserve}", protocols: [v2-rest]}}
  - {{name: umbridge, bind: "127.0.0.1:{umbridge}", protocols: [v2-rest]}}
  - {{name: gateway, bind: "127.0.0.1:{gateway}", protocols: [v2-rest]}}
  - {{name: client_of_rest, bind: "127.0.0.1:{client_of_rest}", protocols: [v2-grpc]}}
  - {{name: client_of_mlserver, bind: "127.0.0.1:{client_of_mlserver}", protocols: [v2-grpc]}}
reference:
  - {{protocol: v2-rest, bind: "127.0.0.1:{reference}", models: [count, identity]}}
backends:
  rest: {{protocol: v2-rest, endpoints: ["{at_triton.http}"]}}
  grpc: {{protocol: v2-grpc, endpoints: ["{at_triton.grpc}"]}}
  mlserver: {{protocol: v2-rest, endpoints: ["{at_mlserver.http}"]}}
  kserve: {{protocol: v2-rest, endpoints: ["{at_kserve.http}"]}}
  umbridge: {{protocol: umbridge, endpoints: ["{at_umbridge}"]}}
  gateway: {{protocol: v2-rest, endpoints: ["127.0.0.1:{reference}"]}}
routes:
  - {{match: {{model: last}}, backend: rest, rewrite: {{model: repeat}}, translate: {{stream: last}}}}
  - {{match: {{model: collect}}, backend: rest, rewrite: {{model: repeat}}, translate: {{stream: collect}}}}
  - {{match: {{listener: rest}}, backend: rest}}
  - {{match: {{listener: checked}}, backend: rest, check: full}}
  - {{match: {{listener: grpc}}, backend: grpc}}
  - {{match: {{listener: mlserver}}, backend: mlserver}}
  - {{match: {{listener: kserve}}, backend: kserve}}
  - {{match: {{listener: umbridge}}, backend: umbridge}}
  - {{match: {{listener: gateway}}, backend: gateway}}
  - {{match: {{listener: client_of_rest}}, backend: rest}}
  - {{match: {{listener: client_of_mlserver}}, backend: mlserver}}
"""
EVENTS = "text/event-stream; charset=utf-8"


@pytest.fixture(scope="module")
def fronts(listen: Listen, umbridge_server: str, triton: Triton, mlserver: V2Server, kserve: V2Server) -> Addresses:
    return listen(CONFIG, at_triton=triton, at_mlserver=mlserver, at_kserve=kserve, at_umbridge=umbridge_server)


def curl(address: str, path: str, body: str, *options: str) -> tuple[int, str, str]:
    """Status, Content-Type and body."""
    form = "\n%{http_code} %{content_type}"
    command = ["curl", "-sN", "-d", body, "-w", form, *options, f"http://{address}/v2/models/{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS, check=True)
    text, _, told = done.stdout.rpartition("\n")
    status, _, content_type = told.partition(" ")
    return int(status), content_type, text


def events(text: str) -> list[Any]:
    assert text == "" or text.endswith("\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n")[:-1]]


# --- the same as Triton ---

SAME = [
    ("add_sub", '{"INPUT0":[1,2],"INPUT1":[3,4]}'),
    ("add_sub", '{"INPUT0":1,"INPUT1":3,"id":"abc"}'),
    ("add_sub", '{"INPUT0":[],"INPUT1":[]}'),
    ("single", '{"x":[1,2,3]}'),
    ("single", '{"x":[1,2,3,4,5,6]}'),
    ("batched", '{"x":[1,2,3]}'),
    ("matrix", '{"x":[1,2,3,4,5,6]}'),
    ("posterior", '{"theta":[1,2]}'),
    ("posterior.gradient", '{"theta":[1,2],"out_wrt":0,"in_wrt":0,"sens":1}'),
    ("upper", '{"INPUT0":"hé\\n"}'),
    ("upper", '{"INPUT0":["abc","d"]}'),
    ("identity_BOOL", '{"INPUT0":true}'),
    ("identity_FP32", '{"INPUT0":[0.1,-0.0,3]}'),
    ("identity_INT64", '{"INPUT0":[9223372036854775807,-9223372036854775808]}'),
    ("identity_UINT64", '{"INPUT0":18446744073709551615}'),
    ("parameters", '{"x":1,"foo":"bar"}'),
    ("parameters", '{"parameters":{"x":1,"foo":2}}'),
    ("versioned/versions/1", '{"x":3}'),
]
STREAMS = [("repeat", json.dumps({"n": n})) for n in (3, 0, 1, -2)]


@pytest.mark.parametrize("front", ["rest", "grpc"])
@pytest.mark.parametrize(("model", "body"), SAME)
def test_generate_is_tritons(fronts: Addresses, triton: Triton, front: str, model: str, body: str) -> None:
    expected = curl(triton.http, f"{model}/generate", body)
    assert expected[0] == 200
    assert curl(fronts[front], f"{model}/generate", body) == expected


@pytest.mark.parametrize("front", ["rest", "grpc"])
@pytest.mark.parametrize(("model", "body"), [*SAME, *STREAMS])
def test_generate_stream_is_tritons(fronts: Addresses, triton: Triton, front: str, model: str, body: str) -> None:
    expected = curl(triton.http, f"{model}/generate_stream", body)
    assert expected[:2] == (200, EVENTS)
    assert curl(fronts[front], f"{model}/generate_stream", body) == expected


@pytest.mark.parametrize(
    ("model", "body", "status", "text"),
    [
        ("fail", '{"code":4}', 400, "refused with code 4"),
        ("nosuch", '{"code":3}', 404, "unknown model: 'nosuch'"),
        ("add_sub", '{"INPUT0":1}', 400, "input 'INPUT1' is missing"),
        ("add_sub", '{"INPUT0":1,"INPUT1":[1.5]}', 400, "input 'INPUT1': element 0"),
        ("parameters", '{"x":1,"list":[1]}', 400, "unknown input 'list'"),
        ("identity_UINT8", '{"INPUT0":256}', 400, "out of the range of UINT8"),
        ("upper", "{", 400, "not JSON"),
    ],
)
@pytest.mark.parametrize("path", ["generate", "generate_stream"])
def test_errors_before_the_first_response_are_replies(
    fronts: Addresses, path: str, model: str, body: str, status: int, text: str
) -> None:
    found, content_type, told = curl(fronts["checked"], f"{model}/{path}", body)
    assert (found, content_type) == (status, "application/json")
    assert text in json.loads(told)["error"]


def test_a_client_of_one_response_has_the_stream_as_the_route_says(fronts: Addresses) -> None:
    asked = {"repeat": "checked", "last": "rest", "collect": "rest"}
    answers = {model: curl(fronts[front], f"{model}/generate", '{"n":3}') for model, front in asked.items()}

    assert answers["repeat"][0] == 501
    assert "`translate: {stream: last}`" in json.loads(answers["repeat"][2])["error"]
    assert [json.loads(answers[model][2])["OUTPUT0"] for model in ("last", "collect")] == [2, [0, 1, 2]]


# --- other servers ---

REPEAT = '{"inputs":[{"name":"n","datatype":"INT32","shape":[1],"data":[%d]}]}'


@pytest.mark.parametrize("path", ["generate_stream", "infer_stream"])
def test_mlservers_form_to_mlserver(fronts: Addresses, mlserver: V2Server, path: str) -> None:
    """With the identifiers and headers that MLServer adds, which differ from call to call."""
    # It takes nothing but JSON by name.
    _, _, own_text = curl(mlserver.http, f"repeat/{path}", REPEAT % 3, "-H", "content-type: application/json")
    own = events(own_text)
    status, content_type, text = curl(fronts["mlserver"], f"repeat/{path}", REPEAT % 3)

    assert (status, content_type) == (200, EVENTS)
    assert [each.keys() for each in events(text)] == [each.keys() for each in own]
    assert [each["outputs"] for each in events(text)] == [each["outputs"] for each in own]
    assert [each["outputs"][0]["data"] for each in own] == [[0], [1], [2]]


def test_a_stream_that_mlserver_breaks_off_is_an_error(fronts: Addresses) -> None:
    """It closes the connection where a model fails, and says nothing."""
    *numbers, error = events(curl(fronts["mlserver"], "repeat/generate_stream", REPEAT % -2)[2])
    assert [each["outputs"][0]["data"] for each in numbers] == [[0], [1]]
    assert "closed the connection in the middle of its reply" in error["error"]
    assert error["gateway_reason"] == "unreachable"


@pytest.mark.parametrize(
    ("front", "model", "body", "expected"),
    [
        ("mlserver", "repeat", '{"n":2}', [{"OUTPUT0": 0}, {"OUTPUT0": 1}]),
        ("mlserver", "upper", '{"INPUT0":"abc"}', [{"OUTPUT0": "ABC"}]),
        ("kserve", "double", '{"x":[1,2,3]}', [{"y": [2, 4, 6]}]),
        ("umbridge", "double", '{"input0":[1,2,3]}', [{"output0": [2, 4, 6]}]),
        ("gateway", "count", '{"n":2}', [{"i": 0}, {"i": 1}]),
    ],
)
def test_tritons_form_to_other_servers(
    fronts: Addresses, front: str, model: str, body: str, expected: list[dict[str, Any]]
) -> None:
    status, content_type, text = curl(fronts[front], f"{model}/generate_stream", body)
    assert (status, content_type) == (200, EVENTS)
    found = [{key: each[key] for key in each if not key.startswith("model_")} for each in events(text)]
    assert found == expected


def test_without_a_signature_generate_cannot_be(fronts: Addresses) -> None:
    status, _, text = curl(fronts["gateway"], "identity/generate", '{"x":1}')
    assert status == 501
    assert "declare them by `signature` on the route" in json.loads(text)["error"]


def test_the_reason_of_an_error_passes_through_gateways_in_a_row(fronts: Addresses) -> None:
    asked = '{"inputs":[{"name":"n","datatype":"INT32","shape":[1,1],"data":[-2]}]}'
    *numbers, error = events(curl(fronts["gateway"], "count/generate_stream", asked)[2])
    assert len(numbers) == 2
    assert error["error"] == "model 'count' fails on request after 2 responses"
    assert error["gateway_reason"] == "aborted"


# --- tritonclient's streams, to servers of REST ---


@pytest.mark.parametrize("front", ["client_of_rest", "client_of_mlserver"])
def test_a_stream_of_grpc_is_a_stream_of_rest(fronts: Addresses, front: str, kind: str) -> None:
    (responses,) = tritonclient_grpc(
        fronts[front], kind, stream(*(infer("repeat", number("n", n), id=f"request-{n}") for n in (3, 1, 2)))
    )
    told = [(each["response"]["id"], each["response"]["model_name"], raw_of(each)) for each in responses]
    assert told == [(f"request-{n}", "repeat", packed("i", at)) for n in (3, 1, 2) for at in range(n)]


def test_an_error_of_tritons_comes_after_its_responses(fronts: Addresses) -> None:
    (responses,) = tritonclient_grpc(
        fronts["client_of_rest"], "sync", stream(infer("repeat", number("n", -2)), infer("repeat", number("n", 1)))
    )
    assert [raw_of(each) for each in (*responses[:2], responses[3])] == [packed("i", at) for at in (0, 1, 0)]
    assert "refused after 2 responses" in responses[2]["error"]["message"]


@pytest.mark.parametrize("datatype", SAMPLES)
def test_every_datatype_comes_back_as_it_went(fronts: Addresses, datatype: str) -> None:
    """In a stream where that has a form for it, else as the one response of a plain call."""
    given = tensor("INPUT0", datatype, [2], SAMPLES[datatype])
    (responses,) = tritonclient_grpc(fronts["client_of_rest"], "sync", stream(infer(f"identity_{datatype}", given)))
    assert [raw_of(each) for each in responses] == [SAMPLES[datatype]]
    assert responses[0]["outputs"][0]["shape"] == [2]


def test_shapes_that_generate_lacks_go_by_a_plain_call(fronts: Addresses) -> None:
    numbers = [float(at) for at in range(12)]
    matrix = infer("matrix", doubles("x", [2, 2, 3], *numbers))
    (responses,) = tritonclient_grpc(fronts["client_of_rest"], "sync", stream(matrix))
    assert responses[0]["outputs"][0]["shape"] == [2, 3, 2]


def test_what_can_go_neither_way_is_told_so(fronts: Addresses) -> None:
    given = tensor("n", "INT32", [1, 2], packed("i", 1, 2)) | {"shape": [2, 1]}
    (responses,) = tritonclient_grpc(fronts["client_of_rest"], "sync", stream(infer("repeat", given)))
    assert status_of(responses[0]) != "OK"
    text = responses[0]["error"]["message"]
    assert "decoupled" in text
    assert "Triton's generate_stream takes vectors only; over v2-grpc it streams any" in text
