"""Real clients of APIs that the ready forms describe, through the gateway to V2 servers."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.interop.client_scripts import run_steps
from tests.interop.form_listeners import speaking_forms

MODELS = ("embed", "embed_tokens", "sentiment", "zero_shot", "similarity", "picture", "plane", "plane_of_rows")
LISTENERS = {
    "openai-embeddings": ("openai-embeddings", ""),
    "sagemaker": ("sagemaker", "plane_of_rows"),
    "mlflow": ("mlflow", "plane_of_rows"),
    "mlflow-of-columns": ("mlflow", "plane"),
    **{model: ("huggingface", model) for model in ("sentiment", "embed", "zero_shot", "similarity", "picture")},
}
"""For each listener the form that it speaks, and the model that it is of."""


@pytest.fixture(scope="module", params=["v2-rest", "v2-grpc"])
def urls(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with speaking_forms(tmp_path_factory.mktemp("gateway"), request.param, MODELS, LISTENERS) as found:
        yield found


def asked(peer: str, script: str, url: str, *steps: dict[str, Any]) -> list[Any]:
    return run_steps(peer, script, url, steps)


def test_openai_embeds_texts_and_tokens(urls: dict[str, str]) -> None:
    """It asks for base64 unless it is told otherwise, and decodes it."""
    texts, one, numbers, tokens, models, model = asked(
        "json-clients",
        "openai_client",
        urls["openai-embeddings"],
        {"op": "embed", "model": "embed", "input": ["hello", "you"]},
        {"op": "embed", "model": "embed", "input": "hello"},
        {"op": "embed", "model": "embed", "input": "hello", "encoding_format": "float"},
        {"op": "embed", "model": "embed_tokens", "input": [1, 2, 3]},
        {"op": "models"},
        {"op": "model", "model": "embed"},
    )
    assert texts["data"] == [[5.0, 2.5], [3.0, 1.5]]
    assert one["data"] == numbers["data"] == [[5.0, 2.5]]
    assert tokens["data"] == [[6.0, 3.0]]
    assert set(MODELS) <= set(models)
    assert model == "embed"


def test_openai_raises_the_error_of_its_status(urls: dict[str, str]) -> None:
    absent, unlisted, wrong = asked(
        "json-clients",
        "openai_client",
        urls["openai-embeddings"],
        {"op": "embed", "model": "none", "input": "hello"},
        {"op": "model", "model": "none"},
        {"op": "embed", "model": "embed", "input": [1, 2]},
    )
    assert (absent["error"]["type"], absent["error"]["status"]) == ("NotFoundError", 404)
    assert (unlisted["error"]["type"], unlisted["error"]["status"]) == ("NotFoundError", 404)
    assert "none" in absent["error"]["text"]
    assert (wrong["error"]["type"], wrong["error"]["status"]) == ("BadRequestError", 400)


def test_boto3_invokes_endpoints_with_json_csv_and_npy(urls: dict[str, str]) -> None:
    file = io.BytesIO()
    np.save(file, np.array([[1.0, 2.0]]))
    steps: list[dict[str, Any]] = [
        {"Body": b'{"instances": [[1, 2]]}', "ContentType": "application/json"},
        {"Body": b'{"instances": [[1, 2]]}'},
        {"Body": b"1,2\n3,4\n", "ContentType": "text/csv", "Accept": "text/csv"},
        {"Body": file.getvalue(), "ContentType": "application/x-npy", "Accept": "application/x-npy"},
    ]
    named, unnamed, csv, npy = asked(
        "json-clients",
        "sagemaker_client",
        urls["sagemaker"],
        *({**step, "Body": _base64(step["Body"]), "EndpointName": "plane_of_rows"} for step in steps),
    )
    assert json.loads(base64.b64decode(named["body"])) == {"predictions": [9.0]}
    assert json.loads(base64.b64decode(unnamed["body"])) == {"predictions": [9.0]}
    assert (base64.b64decode(csv["body"]), csv["type"]) == (b"9.0\r\n19.0\r\n", "text/csv")
    assert np.load(io.BytesIO(base64.b64decode(npy["body"]))).tolist() == [9.0]


def test_boto3_raises_what_the_gateway_tells(urls: dict[str, str]) -> None:
    step = {"Body": _base64(b"[[1, 2]]"), "ContentType": "application/json", "EndpointName": "none"}
    [found] = asked("json-clients", "sagemaker_client", urls["sagemaker"], step)
    assert found["error"]["status"] == 404
    assert "none" in found["error"]["text"]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_mlflow_s_client_sends_arrays_and_tables(urls: dict[str, str]) -> None:
    ready, rows, short = asked(
        "json-servers",
        "mlflow_client",
        urls["mlflow"],
        {"op": "ping"},
        {"op": "invoke", "array": [[1.0, 2.0], [3.0, 4.0]]},
        {"op": "invoke", "array": [[1.0, 2.0, 3.0]]},
    )
    assert ready is None
    assert rows == [9.0, 19.0]
    assert "shape" in short["error"]
    table = {"op": "invoke", "table": {"a": [1.0, 3.0], "b": [2.0, 4.0]}}
    assert asked("json-servers", "mlflow_client", urls["mlflow-of-columns"], table) == [[9.0, 19.0]]


@pytest.mark.parametrize(
    ("model", "step", "expected"),
    [
        (
            "sentiment",
            {"op": "text_classification", "args": ["good"]},
            [{"label": "POSITIVE", "score": 0.75}, {"label": "NEGATIVE", "score": 0.25}],
        ),
        ("embed", {"op": "feature_extraction", "args": ["hello"]}, [[5.0, 2.5]]),
        ("similarity", {"op": "sentence_similarity", "args": ["a", ["a", "b"]]}, [1.0, 0.0]),
        (
            "picture",
            {"op": "image_classification", "args": [{"bytes": _base64(b"\xff\xfe")}]},
            [{"label": "bright", "score": 1.0}],
        ),
    ],
)
def test_hugging_face_s_client_runs_its_tasks(
    urls: dict[str, str], model: str, step: dict[str, Any], expected: object
) -> None:
    assert asked("json-clients", "huggingface_client", urls[model], step) == [expected]


def test_a_parameter_that_a_model_does_not_know_is_told_to_hugging_face_s_client(urls: dict[str, str]) -> None:
    """It always sends `multi_label`, which the reference server's models do not take."""
    step = {"op": "zero_shot_classification", "args": ["x", ["a", "bc"]]}
    [found] = asked("json-clients", "huggingface_client", urls["zero_shot"], step)
    assert "takes no parameter 'multi_label'" in found["error"]
