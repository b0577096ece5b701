"""Real servers that speak JSON in forms of their own, and test servers for containers, called by V2 and UM-Bridge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.interop import json_servers, processes
from tests.interop.exchanges import gateway
from tests.interop.real_clients import (
    Step,
    doubles,
    elements,
    infer,
    packed,
    raw_of,
    status_of,
    tensor,
    tritonclient,
    tritonclient_grpc,
    umbridge,
)
from tests.peers.json_containers import CONTAINERS, serve

FLASK = {
    "infer": {"path": "/predict", "request": {"features": "$x"}, "response": {"prediction": "$y"}},
    "ready": {"path": "/health"},
    "tensors": {"x": "FP64 [-1, 3]", "y": "FP64 [-1]"},
}
IMAGES = {
    "infer": {
        "path": "/predict",
        "media_type": "multipart/form-data",
        "request": {"file": "$image"},
        "response": {"class_id": "$class|text", "class_name": "$name|text"},
    },
    "tensors": {"image": "BYTES [1]", "class": "BYTES [1]", "name": "BYTES [1]"},
}
FLOWERS = {
    "infer": {
        "path": "/predict",
        "request": {"sepal_length": "$sepal|scalar", "petal_length": "$petal|scalar"},
        "response": {"species": "$species|text", "probability": "$probability|scalar"},
    },
    "ready": {"path": "/health"},
    "error": {"$any": [{"detail": "$message"}, {"detail": [{"msg": "$message"}]}]},
    "tensors": {"sepal": "FP64 [1]", "petal": "FP64 [1]", "species": "BYTES [1]", "probability": "FP64 [1]"},
}
DECLARED = {"flask": FLASK, "images": IMAGES, "flowers": FLOWERS}
"""The forms that a user writes; the others are ready."""


@dataclass(frozen=True)
class Server:
    """A server: its form, the model that it is asked for, and the signature of its route, which UM-Bridge needs."""

    form: str
    start: Callable[[Path], processes.Server] | None = None
    """Starts it with its files in a new folder, beside which MLflow's models are. None: the container of this name in
    `tests.peers.json_containers`."""
    model: str = ""
    shapes: tuple[list[int], list[int]] | None = None


def _mlflow(model: str) -> Callable[[Path], processes.Server]:
    return lambda folder: json_servers.start_mlflow(folder, folder.parent / "mlflow-models" / model)


SERVERS = {
    "flask": Server("flask", json_servers.start_flask),
    "images": Server("images", lambda folder: json_servers.start_flask(folder, "flask_images")),
    "flowers": Server("flowers", json_servers.start_fastapi),
    "litserve": Server("litserve", json_servers.start_litserve, shapes=([1], [1])),
    "mlflow": Server("mlflow", _mlflow("plain"), shapes=([-1, 2], [-1])),
    "mlflow-columns": Server("mlflow", _mlflow("columns")),
    "bentoml": Server("bentoml", json_servers.start_bentoml, "double", ([-1, 3], [-1, 3])),
    "bentoml-weigh": Server("bentoml", json_servers.start_bentoml, "weigh"),
    "bentoml-shout": Server("bentoml", json_servers.start_bentoml, "shout"),
    "torchserve": Server("torchserve", model="double", shapes=([-1, 3], [-1, 3])),
    "sagemaker": Server("sagemaker", shapes=([-1, 3], [-1, 3])),
    "vertex": Server("vertex", shapes=([-1, 3], [-1, 3])),
    "seldon": Server("seldon", shapes=([-1, 3], [-1, 3])),
    "cog": Server("cog", shapes=([-1, 3], [-1, 3])),
    "cog_0_16": Server("cog", shapes=([-1, 3], [-1, 3])),
    "cog_0_9": Server("cog", shapes=([-1, 3], [-1, 3])),
    "ray": Server("ray", shapes=([-1, 3], [-1, 3])),
    "ray_applications": Server("ray-applications", model="double", shapes=([-1, 3], [-1, 3])),
    "huggingface": Server("huggingface"),
    "embeddings": Server("openai-embeddings", model="m"),
    "infinity": Server("infinity", model="tiny"),
}
"""By the names of their models at the gateway."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses, for REST and for gRPC, of a gateway in front of all servers."""
    folder = tmp_path_factory.mktemp("servers")
    json_servers.write_mlflow_models(folder / "mlflow-models")
    with ExitStack() as stack:
        running: dict[object, str] = {}
        for name, server in SERVERS.items():
            start = server.start or name
            if start not in running:
                running[start] = _started(name, server, folder / name, stack)
        endpoints = {name: running[server.start or name] for name, server in SERVERS.items()}
        http, grpc = (f"127.0.0.1:{processes.free_port()}" for _ in range(2))
        config = json.dumps(_config(http, grpc, endpoints))
        stack.enter_context(gateway(config, tmp_path_factory.mktemp("gateway")))
        yield http, grpc


def _started(name: str, server: Server, folder: Path, stack: ExitStack) -> str:
    if server.start is None:
        return stack.enter_context(serve(CONTAINERS[name])).url
    return stack.enter_context(server.start(folder)).url


def _config(http: str, grpc: str, endpoints: dict[str, str]) -> dict[str, Any]:
    return {
        "forms": DECLARED,
        "listeners": [
            {"name": "http", "bind": http, "protocols": ["v2-rest", "umbridge"]},
            {"name": "grpc", "bind": grpc, "protocols": ["v2-grpc"]},
        ],
        "backends": {
            name: {"protocol": "json", "form": server.form, "endpoints": [endpoints[name]]}
            for name, server in SERVERS.items()
        },
        "routes": [_route(name, server) for name, server in SERVERS.items()],
    }


def _route(name: str, server: Server) -> dict[str, Any]:
    route: dict[str, Any] = {"match": {"model": name}, "backend": name}
    if server.model:
        route["rewrite"] = {"model": server.model}
    if server.shapes is not None:
        inputs, outputs = (
            [{"name": each, "datatype": "FP64", "shape": shape}]
            for each, shape in zip("xy", server.shapes, strict=True)
        )
        route["signature"] = {"inputs": inputs, "outputs": outputs}
    return route


ROWS = doubles("x", [2, 3], 1, 2, 3, 4, 5.5, 6)
DOUBLED = [2.0, 4.0, 6.0, 8.0, 11.0, 12.0]


def texts(name: str, *values: bytes) -> Step:
    return tensor(name, "BYTES", [len(values)], elements(*values))


def numbers(result: Any) -> list[float]:
    """The elements of the first output."""
    datatype = {"FP64": "<f8", "FP32": "<f4", "INT64": "<i8"}[result["outputs"][0]["datatype"]]
    found: list[float] = np.frombuffer(raw_of(result), datatype).tolist()
    return found


NUMBERS: dict[str, tuple[Step, list[float]]] = {
    "flask": (ROWS, [6.0, 15.5]),
    "litserve": (doubles("x", [1], 4), [80.0]),
    "mlflow": (doubles("x", [2, 2], 1, 2, 3, 4), [9.0, 19.0]),
    **{name: (ROWS, DOUBLED) for name, server in SERVERS.items() if server.shapes == ([-1, 3], [-1, 3])},
}
"""What is sent to a model of numbers, and what comes back."""

OTHERS: dict[str, tuple[Step, ...]] = {
    "mlflow-columns": (doubles("b", [2], 2, 4), doubles("a", [2], 1, 3)),
    "images": (texts("image", b"\xff\xfe"),),
    "flowers": (doubles("sepal", [1], 5), doubles("petal", [1], 1)),
    "bentoml-weigh": (doubles("values", [2], 1, 2.5),),
    "bentoml-shout": ({**texts("text", b"hi"), "shape": []},),
    "huggingface": (texts("text", b"good", b"bad"),),
    "embeddings": (texts("text", b"hello", b"you"),),
    "infinity": (texts("text", b"hello", b"you"),),
}
"""What is sent to the other models."""

NEGATIVE = doubles("x", [1, 3], -1, 2, 3)
FAILURES: dict[str, tuple[Step, str, str]] = {
    "flask": (doubles("x", [0, 3]), "500", "Internal Server Error"),
    "flowers": (doubles("sepal", [2], 1, 2), "400", "sepal"),
    "litserve": (doubles("x", [2], 1, 2), "400", "x"),
    "mlflow": (doubles("x", [1, 3], 1, 2, 3), "400", "x"),
    "mlflow-columns": (doubles("a", [1], 1), "400", "b"),
    "bentoml-weigh": (doubles("z", [1], 1), "400", "1 validation error for Input"),
    "torchserve": (NEGATIVE, "500", "Prediction failed"),
    "sagemaker": (NEGATIVE, "500", "boom"),
    "vertex": (NEGATIVE, "500", "ValueError"),
    "seldon": (NEGATIVE, "500", "boom"),
    "cog": (NEGATIVE, "500", "ValueError: boom"),
    "cog_0_16": (NEGATIVE, "500", "boom"),
    "cog_0_9": (NEGATIVE, "500", "boom"),
    "ray": (NEGATIVE, "500", "Internal Server Error"),
    "huggingface": (texts("text", b"boom"), "400", "boom"),
    "embeddings": (texts("text", b"boom"), "400", "boom"),
}
"""What makes a server fail, the status of the V2 client's error, and a piece of its text."""


@pytest.fixture(scope="module")
def told(site: tuple[str, str]) -> dict[str, Any]:
    """What V2's clients and UM-Bridge's get for all calls of this file: the start of a client takes long."""
    calls = {
        **{f"{name}, numbers": infer(name, sent) for name, (sent, _) in NUMBERS.items()},
        **{name: infer(name, *sent) for name, sent in OTHERS.items()},
        **{f"{name}, a failure": infer(name, sent) for name, (sent, _, _) in FAILURES.items()},
        **{f"{name}, ready": {"op": "model_ready", "model": name} for name in SERVERS},
    }
    over_grpc = {f"{name}, over gRPC": infer(name, sent) for name, (sent, _) in NUMBERS.items()}
    points = {f"{name}, a point": {"op": "evaluate", "model": name, "input": [POINT]} for name in POINTS}
    http, grpc = site
    return {
        **dict(zip(calls, tritonclient(http, "sync", *calls.values()), strict=True)),
        **dict(zip(over_grpc, tritonclient_grpc(grpc, "sync", *over_grpc.values()), strict=True)),
        **dict(zip(points, umbridge(f"http://{http}", *points.values()), strict=True)),
    }


POINT = [1.0, 2.0, 3.0]
POINTS = {
    name: [[6.0]] if name == "flask" else [[2.0, 4.0, 6.0]] for name in NUMBERS if name not in ("litserve", "mlflow")
}
"""What UM-Bridge's clients get for POINT."""


@pytest.mark.parametrize("name", NUMBERS)
def test_tritonclient_calls_a_server_of_numbers(told: dict[str, Any], name: str) -> None:
    _, expected = NUMBERS[name]
    assert numbers(told[f"{name}, numbers"]) == pytest.approx(expected)
    assert numbers(told[f"{name}, over gRPC"]) == pytest.approx(expected)


@pytest.mark.parametrize("name", POINTS)
def test_umbridge_s_client_calls_a_server_of_numbers(told: dict[str, Any], name: str) -> None:
    assert told[f"{name}, a point"] == POINTS[name]


def test_columns_of_a_table_reach_a_model_with_a_signature(told: dict[str, Any]) -> None:
    assert numbers(told["mlflow-columns"]) == pytest.approx([9.0, 19.0])


@pytest.mark.parametrize(
    ("name", "outputs", "first"),
    [
        ("images", ["class", "name"], elements(b"1")),
        ("flowers", ["species", "probability"], elements(b"setosa")),
        ("bentoml-weigh", None, packed("d", 1, 2.5)),
        ("bentoml-shout", None, elements(b"HI")),
    ],
)
def test_a_program_gets_its_file_its_fields_or_its_arguments(
    told: dict[str, Any], name: str, outputs: list[str] | None, first: bytes
) -> None:
    if outputs is not None:
        assert [each["name"] for each in told[name]["outputs"]] == outputs
    assert raw_of(told[name]) == first


def test_texts_reach_models_of_texts(told: dict[str, Any]) -> None:
    assert [each["shape"] for each in told["huggingface"]["outputs"]] == [[2, 2], [2, 2]]
    assert numbers(told["embeddings"]) == [5.0, 2.5, 3.0, 1.5]
    assert told["infinity"]["outputs"][0]["shape"] == [2, 8]


@pytest.mark.parametrize("name", FAILURES)
def test_a_server_s_error_reaches_the_client(told: dict[str, Any], name: str) -> None:
    _, status, message = FAILURES[name]
    found = told[f"{name}, a failure"]
    assert status_of(found) == status
    assert message in found["error"]["message"]


@pytest.mark.parametrize("name", SERVERS)
def test_each_server_is_ready(told: dict[str, Any], name: str) -> None:
    assert told[f"{name}, ready"] is True
