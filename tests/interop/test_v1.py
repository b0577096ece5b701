"""V1 with a real KServe and its client, a server with the habits of TensorFlow Serving, and what its clients write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop.exchanges import Listen, exchange, get
from tests.interop.kserve_v1 import asked, start_kserve_v1
from tests.interop.processes import Server, V2Server
from tests.peers import tensorflow_serving

CONFIG = """
listeners:
  - {{name: kserve, bind: "127.0.0.1:{kserve}", protocols: [v1-rest, v2-rest]}}
  - {{name: tensorflow, bind: "127.0.0.1:{tensorflow}", protocols: [v1-rest], flavor: {{v1-rest: tensorflow}}}}
backends:
  kserve: {{protocol: v1-rest, endpoints: ["{server}"]}}
  tensorflow: {{protocol: v1-rest, endpoints: ["{tf}"]}}
  mlserver: {{protocol: v2-rest, endpoints: ["{mlserver}"], flavor: mlserver}}
routes:
  - {{match: {{model: "tf-*"}}, backend: tensorflow, rewrite: {{model: "{{1}}"}}}}
  - {{match: {{model: "v2-double"}}, backend: mlserver, rewrite: {{model: double}}}}
  - {{match: {{model: "*"}}, backend: kserve}}
"""


@dataclass
class Site:
    """A gateway that looks like KServe at one address and like TensorFlow Serving at another."""

    kserve: str
    tensorflow: str
    behind: tensorflow_serving.Server

    def predict(self, model: str, body: str, *, tensorflow: bool = True) -> tuple[int, Any]:
        address = self.tensorflow if tensorflow else self.kserve
        return exchange(f"http://{address}", "POST", f"/v1/models/{model}:predict", body)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_kserve_v1(tmp_path_factory.mktemp("kserve-v1")) as found:
        yield found


@pytest.fixture(scope="module")
def site(listen: Listen, server: Server, mlserver: V2Server) -> Iterator[Site]:
    with tensorflow_serving.serve() as behind:
        fronts = listen(CONFIG, server=server.address, tf=behind.address, mlserver=mlserver.http)
        yield Site(fronts["kserve"], fronts["tensorflow"], behind)


def infer(model: str, **body: Any) -> dict[str, Any]:
    return {"op": "infer", "model": model, "body": body}


# --- KServe, and its client ---


def test_the_real_client_and_the_real_server(site: Site, server: Server) -> None:
    steps = [
        infer("double", instances=[[1, 2.5], [3, 4]]),
        infer(
            "echo", instances=[{"x": 1, "y": "ä"}, {"x": 2, "y": ""}], parameters={"k": 1}, other=[1, {"deep": None}]
        ),
        infer("echo", instances=[[1], [2, 3], None]),
        infer("echo", instances=[{"b64": "AAEC"}]),
        infer("double", inputs={"a": [[1, 2]], "b": [3]}),
        {"op": "explain", "model": "double", "body": {"instances": [1]}},
        {"op": "ready", "model": "double"},
        {"op": "live"},
    ]
    through, direct = asked(site.kserve, *steps), asked(server.address, *steps)
    assert through == direct
    assert through[0] == {"predictions": [[2.0, 5.0], [6.0, 8.0]]}


def test_errors_are_those_of_the_server(site: Site, server: Server) -> None:
    steps = [infer("fail", instances=[1]), infer("nope", instances=[1]), infer("double", instances=5)]
    steps.append(infer("fail", instances=[2]))  # the last: KServe closes then, which its own client does not see
    through, direct = ([each["error"] for each in asked(url, *steps)] for url in (site.kserve, server.address))
    assert [each.replace(site.kserve, server.address) for each in through] == direct


def test_a_call_after_a_crash_succeeds(site: Site) -> None:
    """The server closes the connection after a 500 and does not say so."""
    steps = [infer("fail", instances=[2]), infer("double", instances=[1])] * 10
    assert asked(site.kserve, *steps)[1::2] == [{"predictions": [2]}] * 10


def test_the_real_client_in_front_of_a_v2_server(site: Site) -> None:
    assert asked(site.kserve, infer("v2-double", instances=[[0.5, -1.25, 3]])) == [{"predictions": [[1.0, -2.5, 6.0]]}]
    [refused] = asked(site.kserve, {"op": "explain", "model": "v2-double", "body": {"instances": [[1]]}})
    assert "501" in refused["error"]


def test_a_transformer_asks_its_predictor_through_the_gateway(site: Site, tmp_path: Path) -> None:
    with start_kserve_v1(tmp_path / "transformer", site.kserve) as transformer:
        found = asked(transformer.address, infer("double", instances=[[1, 2.5]]))
    assert found == [{"predictions": [[2.0, 5.0]]}]


# --- TensorFlow Serving, and what its clients write ---


@pytest.mark.parametrize(
    ("model", "body", "answer"),
    [
        ("double", '{"instances":[[1,2.5],[3,4]]}', {"predictions": [[2.0, 5.0], [6.0, 8.0]]}),
        ("double", '{"instances":[{"x":[1]}]}', {"predictions": [[2.0]]}),
        ("double", '{"inputs":[[1]]}', {"outputs": [[2.0]]}),
        ("double", '{"inputs":{"x":[[1]]},"signature_name":"serving_default"}', {"outputs": [[2.0]]}),
        (
            "add_sub",
            '{"instances":[{"a":1,"b":2},{"a":3,"b":5}]}',
            {"predictions": [{"sum": 3.0, "difference": -1.0}, {"sum": 8.0, "difference": -2.0}]},
        ),
        ("add_sub", '{"inputs":{"b":[2],"a":[1]}}', {"outputs": {"sum": [3.0], "difference": [-1.0]}}),
        ("reverse", '{"instances":[{"b64":"AAH/"}]}', {"predictions": [{"b64": "/wEA"}]}),
        ("count", '{"instances":[1.0,41]}', {"predictions": [2, 42]}),
    ],
)
def test_every_form_of_a_request_in_the_words_of_its_answer(site: Site, model: str, body: str, answer: object) -> None:
    """Numbers take the datatype that the model declares, and bytes come back as they are in `b64`."""
    assert site.predict(f"tf-{model}", body) == (200, answer)


def test_a_fraction_is_no_integer(site: Site) -> None:
    status, answer = site.predict("tf-count", '{"instances":[1.5]}')
    assert (status, "INT64" in answer["error"]) == (400, True)


def test_what_is_not_finite_stands_bare(site: Site) -> None:
    status, answer = site.predict("tf-log", '{"instances":[0,-1]}')
    assert (status, [str(each) for each in answer["predictions"]]) == (200, ["-inf", "nan"])


@pytest.mark.parametrize("part", ["", "/versions/2", "/labels/stable"])
def test_versions_and_labels_reach_the_server(site: Site, part: str) -> None:
    status, answer = exchange(
        f"http://{site.tensorflow}", "POST", f"/v1/models/tf-double{part}:predict", '{"instances":[[1]]}'
    )
    assert (status, answer) == (200, {"predictions": [[2.0]]})
    assert f"POST /v1/models/double{part}:predict" in site.behind.requests


def test_a_version_or_a_label_that_is_not_there_is_told_by_the_server(site: Site) -> None:
    for part, status in (("versions/9", 404), ("labels/none", 400)):
        url = f"/v1/models/tf-double/{part}:predict"
        assert exchange(f"http://{site.tensorflow}", "POST", url, '{"instances":[[1]]}')[0] == status


def test_two_inputs_need_names(site: Site) -> None:
    status, answer = site.predict("tf-add_sub", '{"instances":[1,2]}')
    assert status == 400
    assert "'a'" in answer["error"]
    assert "'b'" in answer["error"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", "JSON Parse error"),
        ("[1]", "object"),
        ("{}", "Missing 'inputs' or 'instances' key"),
        ('{"instances":[]}', "No values in 'instances' array"),
        ('{"instances":[[1],[2,3]]}', "ragged"),
        ('{"instances":[1,"a"]}', "next to"),
        ('{"instances":[1],"inputs":[1]}', "both"),
        ('{"instances":[1],"signature_name":5}', "must be a string"),
        ('{"instances":[{"b64":"?"}]}', "base64"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_sent(site: Site, body: str, text: str) -> None:
    before = len(site.behind.requests)
    status, answer = site.predict("tf-double", body)
    assert (status, text in answer["error"]) == (400, True), answer
    assert len(site.behind.requests) == before


def test_status_and_metadata(site: Site) -> None:
    url = f"http://{site.tensorflow}"
    assert get(url, "/v1/models/tf-double")[1]["model_version_status"][0]["state"] == "AVAILABLE"
    status, metadata = get(url, "/v1/models/tf-double/metadata")
    inputs = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]
    assert (status, inputs["x"]["dtype"]) == (200, "DT_FLOAT")
    assert exchange(url, "POST", "/v1/models/tf-double:foo", "{}") == (
        400,
        {"error": "Malformed request: POST /v1/models/tf-double:foo"},
    )
    assert exchange(url, "POST", "/v1/models/tf-double:classify", "{}")[0] == 501


def test_a_v2_client_sees_the_models_signature(site: Site) -> None:
    status, told = get(f"http://{site.kserve}", "/v2/models/tf-double")
    assert (status, told["inputs"]) == (200, [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}])
    assert told["versions"] == ["2", "1"] or told["versions"] == ["2"]


def test_the_kserve_client_in_front_of_tensorflow(site: Site) -> None:
    assert asked(site.kserve, infer("tf-double", instances=[[1, 2]]), {"op": "ready", "model": "tf-double"}) == [
        {"predictions": [[2.0, 4.0]]},
        True,
    ]
