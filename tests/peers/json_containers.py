"""Servers with the habits of model servers that no package index has, or only with a system around them.

Written from their documents and from observations of the originals, and independent of the gateway. Each doubles the
numbers that it gets; `boom` among them, or a negative number, makes its model fail.

- `torchserve`, TorchServe 0.12: indented JSON without a content type; a handler's exception is 503; broken JSON reaches
  the handler as bytes
- `sagemaker`, a container for SageMaker such as scikit-learn's: JSON, CSV, `.npy`; Accept picks the type of the reply
- `vertex`, a container for Vertex AI as its SDK builds them: exceptions are 500 with `detail`
- `seldon`, seldon-core-microservice 1.x: the reply has the member of the request; exceptions are 500 with a `status`
- `cog`, Cog 0.23: failures of the model have status 200, and so has health, which tells a state
- `huggingface`, the inference toolkit with a text classifier: a list of labels for each text
- `embeddings`, a server of OpenAI's API for embeddings: floats or base64; counts what it calls tokens
- `ray`, a Ray Serve deployment: takes and returns bare JSON; errors are plain text

    with serve(cog) as server:
        call(server.url)
        assert server.requests == ["POST /predictions"]
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import numpy as np

JSON = "application/json"


@dataclass(frozen=True)
class Asked:
    """A request; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Told:
    status: int
    body: bytes = b""
    type: str = JSON


Container: TypeAlias = Callable[[Asked], Told]


class ModelError(Exception):
    """The model failed."""


def double(numbers: Any) -> Any:
    """Nested lists of numbers, or a number, twice."""
    if isinstance(numbers, list):
        return [double(each) for each in numbers]
    if not isinstance(numbers, int | float) or numbers < 0:
        raise ModelError("boom")
    return 2 * numbers


def _json(status: int, document: object) -> Told:
    return Told(status, json.dumps(document).encode())


# --- TorchServe ---


def torchserve(asked: Asked) -> Told:
    """The model `double`, version 1.0; its handler doubles a list, or counts bytes."""
    if (asked.method, asked.path) == ("GET", "/ping"):
        return _pretty(200, {"status": "Healthy"})
    if (asked.method, asked.path) == ("GET", "/models"):
        return _pretty(200, {"models": [{"modelName": "double", "modelUrl": "double.mar"}]})
    _, root, model, *version = asked.path.split("/")
    if root != "predictions" or model != "double":
        return _failure(404, "ModelNotFoundException", f"Model not found: {model}")
    if version not in ([], ["1.0"]):
        message = f"Model version: {version[0]} does not exist for model: {model}"
        return _failure(404, "ModelVersionNotFoundException", message)
    try:
        found = double(asked.document)
    except ModelError:
        return _failure(503, "InternalServerException", "Prediction failed")
    except ValueError:
        found = {"bytes": len(asked.body)}
    return Told(200, json.dumps(found, indent=2).encode(), "")


def _failure(code: int, kind: str, message: str) -> Told:
    return _pretty(code, {"code": code, "type": kind, "message": message})


def _pretty(status: int, document: object) -> Told:
    return Told(status, json.dumps(document, indent=2).encode() + b"\n")


# --- SageMaker, Vertex AI ---


def sagemaker(asked: Asked) -> Told:
    """Reads what Content-Type says (JSON without one), and writes what Accept asks for."""
    if asked.path == "/ping":
        return Told(200)
    if asked.path != "/invocations":
        return Told(404)
    try:
        numbers = _numbers(asked.headers.get("content-type", JSON), asked.body)
        return _written(asked.headers.get("accept", JSON), np.array(double(numbers.tolist())))
    except KeyError:
        return Told(415, b"this type is not supported", "text/plain")
    except ModelError as error:
        return _json(500, {"message": str(error)})


def _numbers(kind: str, body: bytes) -> np.ndarray[Any, Any]:
    read: dict[str, Callable[[], Any]] = {
        JSON: lambda: np.array(json.loads(body)),
        "text/csv": lambda: np.loadtxt(io.BytesIO(body), delimiter=",", ndmin=2),
        "application/x-npy": lambda: np.load(io.BytesIO(body), allow_pickle=False),
    }
    return np.asarray(read[kind.partition(";")[0]]())


def _written(kind: str, array: np.ndarray[Any, Any]) -> Told:
    if "text/csv" in kind:
        return Told(200, "".join(",".join(map(str, row)) + "\n" for row in array.tolist()).encode(), "text/csv")
    if "application/x-npy" in kind:
        file = io.BytesIO()
        np.save(file, array)
        return Told(200, file.getvalue(), "application/x-npy")
    return _json(200, array.tolist())


def vertex(asked: Asked) -> Told:
    if asked.path == "/health":
        return _json(200, {})
    if asked.path != "/predict":
        return _json(404, {"detail": "Not Found"})
    try:
        return _json(200, {"predictions": double(asked.document["instances"])})
    except (ModelError, KeyError, ValueError) as error:
        kind = type(error).__name__
        return _json(500, {"detail": f"An exception {kind} occurred. Arguments: {error.args}."})


# --- Seldon ---


def seldon(asked: Asked) -> Told:
    if asked.path == "/health/ping":
        return Told(200, b"pong", "text/html; charset=utf-8")
    if asked.path == "/health/status":
        return _json(200, {"meta": {}, "strData": "healthy"})
    try:
        return _json(200, _seldon(asked.document))
    except (ModelError, KeyError, ValueError) as error:
        status = {"code": -1, "info": str(error), "reason": "MICROSERVICE_INTERNAL_ERROR", "status": 1}
        return _json(500, {"status": status})


def _seldon(message: dict[str, Any]) -> dict[str, Any]:
    meta = message.get("meta", {})
    if "strData" in message:
        return {"strData": message["strData"].upper(), "meta": meta}
    if "binData" in message:
        return {"binData": base64.b64encode(base64.b64decode(message["binData"])[::-1]).decode(), "meta": meta}
    data = message["data"]
    if "tensor" in data:
        tensor = {"shape": data["tensor"]["shape"], "values": double(data["tensor"]["values"])}
        return {"data": {"names": ["t:0", "t:1"], "tensor": tensor}, "meta": meta}
    return {"data": {"names": ["t:0", "t:1"], "ndarray": double(data["ndarray"])}, "meta": meta}


# --- Cog ---


def cog(asked: Asked) -> Told:
    if asked.path == "/health-check":
        return _json(200, {"status": "READY", "setup": {"status": "succeeded", "logs": ""}})
    if asked.path == "/":
        return _json(200, {"docs_url": "/docs"})
    try:
        document = asked.document
    except ValueError as error:
        return Told(400, f"Failed to parse the request body as JSON: {error}".encode(), "text/plain")
    identity = {"id": document["id"]} if "id" in document else {}
    rest = {"logs": "", "metrics": {"predict_time": 0.03}}
    try:
        output = double(document["input"]["x"])
    except ModelError as error:
        return _json(200, {"error": f"Prediction failed: {error}", **identity, **rest, "status": "failed"})
    except KeyError:
        return _json(422, {"detail": "input: x: Field required"})
    return _json(200, {**identity, **rest, "output": output, "status": "succeeded"})


# --- Hugging Face, OpenAI, Ray ---


def huggingface(asked: Asked) -> Told:
    if asked.path == "/health":
        return Told(200)
    texts = asked.document["inputs"]
    if texts == ["boom"]:
        return _json(400, {"error": "boom"})
    top = asked.document.get("parameters", {}).get("top_k", 2)
    return _json(200, [_labels(text)[:top] for text in ([texts] if isinstance(texts, str) else texts)])


def _labels(text: str) -> list[dict[str, Any]]:
    score = 0.75 if "good" in text else 0.25
    labels = [{"label": "POSITIVE", "score": score}, {"label": "NEGATIVE", "score": 1 - score}]
    return sorted(labels, key=lambda each: -each["score"])


def embeddings(asked: Asked) -> Told:
    """The embedding of a text, or of tokens, is how long it is and its half."""
    if asked.path == "/health":
        return Told(200)
    if asked.path == "/v1/models":
        return _json(200, {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "me"}]})
    document = asked.document
    given = document["input"]
    several = isinstance(given, list) and not (given and isinstance(given[0], int))
    if given in ("boom", ["boom"]):
        error = {"message": "boom", "type": "invalid_request_error", "param": None, "code": None}
        return _json(400, {"error": error})
    lengths = [len(each) for each in (given if several else [given])]
    encode = _base64 if document.get("encoding_format") == "base64" else list
    data = [
        {"object": "embedding", "index": at, "embedding": encode([float(length), length / 2])}
        for at, length in enumerate(lengths)
    ]
    usage = {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths)}
    return _json(200, {"object": "list", "data": data, "model": document["model"], "usage": usage})


def _base64(numbers: list[float]) -> str:
    return base64.b64encode(np.array(numbers, "<f4").tobytes()).decode()


def ray(asked: Asked) -> Told:
    if asked.path == "/-/healthz":
        return Told(200, b"success", "text/plain")
    try:
        return _json(200, double(asked.document))
    except ModelError:
        return Told(500, b"Internal Server Error", "text/plain")


CONTAINERS: Mapping[str, Container] = {
    each.__name__: each for each in (torchserve, sagemaker, vertex, seldon, cog, huggingface, embeddings, ray)
}


# --- serving ---


@dataclass
class Server:
    """A running container; `requests` has the method and path of each request."""

    url: str
    requests: list[str] = field(default_factory=list)


@contextmanager
def serve(container: Container) -> Iterator[Server]:
    """The container on loopback, until the end of the context."""
    running = Server("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            running.requests.append(f"{self.command} {self.path}")
            told = container(Asked(self.command, self.path, headers, body))
            self.send_response(told.status)
            if told.type:
                self.send_header("Content-Type", told.type)
            self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            self.wfile.write(told.body)

        do_GET = do_POST = _answer  # noqa: N815 - BaseHTTPRequestHandler looks these names up

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
