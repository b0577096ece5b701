"""The real graphpipe client -> gateway -> the real Triton and UM-Bridge servers; V2, UM-Bridge and graphpipe clients ->
gateway -> a GraphPipe server with the Go one's habits."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.interop.client_scripts import run_steps
from tests.interop.exchanges import Addresses, Listen, get
from tests.interop.processes import Triton
from tests.interop.rawhttp import post
from tests.interop.real_clients import Step, doubles, infer, packed, raw_of, tensor, tritonclient, umbridge
from tests.peers.graphpipe_go import Server, serve

CONFIG = """
listeners:
  - {{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest, umbridge, graphpipe]}}
  - {{name: lone, bind: "127.0.0.1:{lone}", protocols: [graphpipe], model: single}}
backends:
  triton: {{protocol: v2-rest, endpoints: ["{triton}"]}}
  science: {{protocol: umbridge, endpoints: ["{science}"]}}
  go: {{protocol: graphpipe, endpoints: ["{go}"]}}
  trusted: {{protocol: graphpipe, endpoints: ["{go}/trusted/"], trust_metadata: true}}
routes:
  - {{match: {{path: /api/single}}, backend: triton, rewrite: {{model: single}}}}
  - {{match: {{protocol: graphpipe, path: "/any/*"}}, backend: triton, rewrite: {{model: upper}}}}
  - {{match: {{model: um_posterior}}, backend: science, rewrite: {{model: posterior}}}}
  - {{match: {{model: um_double}}, backend: science, rewrite: {{model: double}}, translate: {{cast: round}}}}
  - {{match: {{model: um_strict}}, backend: science, rewrite: {{model: double}}}}
  - {{match: {{model: um_scaled}}, backend: science, rewrite: {{model: scaled}}}}
  - match: {{model: go_points}}
    backend: go
    signature:
      inputs: [{{name: input0, datatype: FP64, shape: [-1, 2]}}]
      outputs: [{{name: output0, datatype: FP64, shape: [-1, 2]}}]
  - {{match: {{model: go_trusted}}, backend: trusted}}
  - {{match: {{model: "go*"}}, backend: go}}
  - {{match: {{model: "*"}}, backend: triton}}
"""


class Site:
    def __init__(self, addresses: Addresses, go: Server) -> None:
        self.address = addresses["http"]
        self.url, self.lone = f"http://{self.address}", f"http://{addresses['lone']}"
        self.go = go

    def ask(self, *steps: Step) -> list[Any]:
        return graphpipe(f"{self.url}/graphpipe", *steps)


def graphpipe(uri: str, *steps: Step) -> list[Any]:
    """Run the steps in the real client (see clients/graphpipe_client.py)."""
    return run_steps("graphpipe", "graphpipe_client", uri, steps)


@pytest.fixture(scope="module")
def site(listen: Listen, triton: Triton, umbridge_server: str) -> Iterator[Site]:
    with serve() as go:
        yield Site(listen(CONFIG, triton=triton.http, science=umbridge_server, go=go.url), go)


def numbers(dtype: str, values: Any) -> dict[str, Any]:
    """An array for the client, and from it."""
    array = np.array(values, dtype)
    return {"dtype": dtype, "shape": list(array.shape), "raw": base64.b64encode(array.tobytes()).decode()}


def strings(*values: bytes) -> dict[str, Any]:
    return {"strings": [base64.b64encode(value).decode() for value in values], "shape": [len(values)]}


def execute(model: str, array: dict[str, Any], **options: object) -> Step:
    return {"op": "execute", "path": f"/{model}", "input": array, **options}


# --- The real client in front of Triton ---

IDENTITIES = {
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8", "int16": "INT16",
    "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64",
}  # fmt: skip


def test_every_type_to_triton_and_back(site: Site) -> None:
    arrays = {dtype: numbers(dtype, [0, 1, 100]) for dtype in IDENTITIES}
    results = site.ask(*(execute(f"identity_{IDENTITIES[dtype]}", array) for dtype, array in arrays.items()))
    assert dict(zip(arrays, results, strict=True)) == arrays


def test_large_arrays(site: Site) -> None:
    large = numbers("float32", np.arange(300_000))
    assert site.ask(execute("identity_FP32", large)) == [large]


def test_strings_and_bool(site: Site) -> None:
    upper, flags, unfit = site.ask(
        execute("upper", strings(b"abc", b"", "é".encode(), b"a\0\xff")),
        execute("identity_BOOL", numbers("uint8", [0, 1, 1])),
        execute("identity_BOOL", numbers("uint8", [0, 2])),
    )
    assert upper == strings(b"ABC", b"", "é".encode(), b"A\0\xff")
    assert flags == numbers("uint8", [0, 1, 1])
    assert unfit["error"]["type"] == "HTTPError"


def test_several_inputs_by_position_and_by_name(site: Site) -> None:
    one, other = numbers("int32", [5, 7]), numbers("int32", [1, 2])
    by_position, by_name, chosen = site.ask(
        {"op": "execute_multi", "path": "/add_sub", "inputs": [one, other]},
        {"op": "execute_multi", "path": "/add_sub", "inputs": [other, one], "input_names": ["INPUT1", "INPUT0"]},
        {"op": "execute_multi", "path": "/add_sub", "inputs": [one, other], "output_names": ["OUTPUT1"]},
    )
    assert by_position == by_name == [numbers("int32", [6, 9]), numbers("int32", [4, 5])]
    assert chosen == [numbers("int32", [4, 5])]


def test_metadata(site: Site) -> None:
    told, described = site.ask({"op": "metadata", "path": "/single"}, {"op": "describe", "path": "/single"})
    assert told["name"] == "single"
    assert told["inputs"] == [{"name": "x", "shape": [-1, 3], "type": 10}]
    assert described == {
        "names": [["x"], ["y"]],
        "types": [["float32"], ["float32"]],
        "shapes": [[[None, 3]], [[None, 3]]],
    }


def test_get_is_answered_with_json(site: Site) -> None:
    status, told = get(site.url, "/graphpipe/single")
    assert (status, told["Name"]) == (200, "single")
    assert told["Inputs"] == [{"Name": "x", "Description": "", "Shape": [-1, 3], "Type": 10}]
    assert get(site.url, "/graphpipe/nobody")[0] == 404


def test_a_batch_and_a_single_row(site: Site) -> None:
    row = numbers("float32", [1, 2, 3])
    batch = numbers("float32", [[1, 2, 3], [4, 5, 6]])
    assert site.ask(execute("single", row), execute("single", batch)) == [
        numbers("float32", [2, 4, 6]),
        numbers("float32", [[2, 4, 6], [8, 10, 12]]),
    ]


def test_paths_that_routes_own_and_the_listeners_model(site: Site) -> None:
    x, y = numbers("float32", [[1, 2, 3]]), numbers("float32", [[2, 4, 6]])
    assert graphpipe(site.url, {**execute("", x), "path": "/api/single"}) == [y]
    assert graphpipe(site.url, {"op": "metadata", "path": "/api/single?at=all"})[0]["inputs"][0]["name"] == "x"
    assert graphpipe(site.url, {**execute("", strings(b"a")), "path": "/any/where/else"}) == [strings(b"A")]
    assert graphpipe(site.lone, {**execute("", x), "path": "/"}) == [y]
    assert get(site.lone, "/")[1]["Name"] == "single"
    assert get(site.url, "/nowhere")[0] == 404


def test_errors_reach_the_client_in_its_words(site: Site) -> None:
    """Under another status than 200 the client drops what the body says; `?errors=200` is for that."""
    wrong = numbers("int64", [1, 2, 3])
    plain, told, unknown, metadata = site.ask(
        execute("single", wrong),
        {**execute("", wrong), "path": "/single?errors=200"},
        {**execute("", wrong), "path": "/nobody?errors=200"},
        {"op": "metadata", "path": "/nobody"},
    )
    assert plain["error"]["type"] == "HTTPError"
    assert plain["error"]["text"].startswith("400")
    assert told["error"]["type"] == "Exception"
    assert "'x' is INT64, expected FP32" in told["error"]["text"]
    assert "nobody" in unknown["error"]["text"]
    assert metadata["error"]["text"].startswith("404")


@pytest.mark.parametrize("body", [b"", b"\0" * 64, b"\xff" * 64, b"not a flatbuffer"])
def test_what_is_no_flatbuffer_is_answered(site: Site, body: bytes) -> None:
    reply = post(site.address, "/graphpipe/single", body, "Content-Type: application/x-www-form-urlencoded")
    assert reply.status == 400
    assert b"flatbuffer" in reply.body


# --- The real client in front of UM-Bridge ---


def test_numbers_become_points_of_um_bridge(site: Site) -> None:
    x = [[1.0, 2.5, -3.0], [4.0, 5.0, 6.0]]
    doubled = numbers("float64", [[2 * number for number in row] for row in x])
    single, double, integers, strict, text = site.ask(
        execute("um_double", numbers("float32", x)),
        execute("um_double", numbers("float64", x)),
        execute("um_double", numbers("int64", [[1, 2, 3]])),
        execute("um_strict", numbers("int64", [[1, 2, 3]])),
        execute("um_double", strings(b"a")),
    )
    assert single == double == doubled
    assert integers == numbers("float64", [[2, 4, 6]])
    assert strict["error"]["type"] == text["error"]["type"] == "HTTPError"


def test_config_reaches_um_bridge(site: Site) -> None:
    x = numbers("float64", [1, 2])
    (scaled,) = site.ask({"op": "execute_multi", "path": "/um_scaled", "inputs": [x], "config": '{"scale": 3}'})
    assert scaled == [numbers("float64", [3, 6])]


def test_metadata_of_um_bridge(site: Site) -> None:
    (told,) = site.ask({"op": "metadata", "path": "/um_posterior"})
    assert told["server"] == "umbridge"
    assert told["inputs"] == [{"name": "input0", "shape": [-1, 2], "type": 11}]


# --- A Go-like server behind the gateway ---


def test_the_real_client_reaches_the_go_server_as_if_alone(site: Site) -> None:
    steps: list[Step] = [
        {**execute("", numbers("float32", [[1, 2]])), "path": "/go"},
        {**execute("", strings(b"ab", b"c")), "path": "/go"},
        {"op": "execute_multi", "path": "/go", "inputs": [numbers("int8", [1])], "input_names": ["input0"]},
        {"op": "execute_multi", "path": "/go", "inputs": [numbers("int8", [1])], "output_names": ["output0"]},
        execute("go", numbers("float64", np.arange(5000.0))),
        {"op": "describe", "path": "/go"},
    ]
    behind, alone = site.ask(*steps), graphpipe(site.go.url, *steps)
    assert behind == alone
    assert behind[0] == numbers("float32", [[2, 4]])
    assert "POST /graphpipe/go" in site.go.requests


def test_tritonclient_reaches_the_go_server(site: Site) -> None:
    named, other, half = tritonclient(
        site.address,
        "sync",
        infer("go", doubles("input0", [1, 3], 1, 2, 3)),
        infer("go", doubles("theirs", [1, 3], 1, 2, 3)),
        infer("go", tensor("input0", "FP16", [1], packed("e", 1))),
    )
    assert named["outputs"][0]["name"] == "output0"
    assert raw_of(named) == packed("d", 2, 4, 6)
    assert "Unexpected input for 'theirs' was sent" in str(other)
    assert "Invalid type: 9" in str(half)


def test_a_panic_of_the_server_is_not_the_gateways(site: Site) -> None:
    (empty,) = tritonclient(site.address, "sync", infer("go", doubles("input0", [0, 3])))
    assert "closed the connection before it answered" in str(empty)
    assert get(site.url, "/v2/models/go")[1]["inputs"] == []  # a type and a shape that are wrong are not told


def test_metadata_is_used_where_the_configuration_trusts_it(site: Site) -> None:
    told = get(site.url, "/v2/models/go_trusted")[1]
    assert told["inputs"] == [{"name": "input0", "datatype": "INT64", "shape": [2]}]
    assert told["platform"] == "graphpipe-go"
    assert "POST /trusted/" in site.go.requests


def test_the_umbridge_client_reaches_the_go_server(site: Site) -> None:
    models, sizes, info, doubled = umbridge(
        site.url,
        {"op": "models"},
        {"op": "sizes", "model": "go_points"},
        {"op": "info", "model": "go_points"},
        {"op": "evaluate", "model": "go_points", "input": [[1.5, -2]]},
    )
    assert "go_points" in models
    assert sizes == {"inputs": [2], "outputs": [2]}
    assert [word for word, claimed in info.items() if claimed] == ["Evaluate"]
    assert doubled == [[3.0, -4.0]]


@pytest.mark.parametrize("path", ["/control/shutdown", "//control/is_alive"])
def test_nobody_steers_a_server_through_the_gateway(site: Site, path: str) -> None:
    before = len(site.go.requests)
    assert get(site.url, path)[0] == 404
    assert not [each for each in site.go.requests[before:] if "control" in each]
