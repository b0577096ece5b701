"""A server with the habits of TensorFlow Serving's REST API, which no package index has.

Written from its documentation and sources' behaviour, and independent of the gateway. Its habits:

- `:predict` of models, versions (digits) and labels; `GET` of a model's status and metadata; all else is 400
- `instances` are rows: bare for the model's one input, else objects with exactly its names; `inputs` are columns
- replies are bare for one output; numbers of floats have a point or an exponent, NaN and Infinity stand bare
- integers refuse `1.0`, strings take `{"b64": ..}`, outputs called `*_bytes` are given so
- errors are `{"error": text}`, pretty-printed

    with serve() as server:
        call(server.address)
        assert server.requests == ["POST /v1/models/double:predict"]
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import Any

import numpy as np

from tests.in_thread import QuietHandler, in_thread

Array = np.ndarray[Any, Any]
DTYPES = {"DT_FLOAT": np.float32, "DT_DOUBLE": np.float64, "DT_INT32": np.int32, "DT_INT64": np.int64}
STRING = "DT_STRING"


@dataclass(frozen=True)
class Port:
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Model:
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    compute: Callable[..., Mapping[str, Array]]
    versions: tuple[str, ...] = ("1",)
    labels: Mapping[str, str] | None = None


def _floats(*shape: int) -> Port:
    return Port("DT_FLOAT", shape)


def _logarithm(x: Array) -> Mapping[str, Array]:
    with np.errstate(all="ignore"):
        return {"y": np.log(x)}


MODELS = {
    "double": Model(
        {"x": _floats(-1, -1)}, {"y": _floats(-1, -1)}, lambda x: {"y": 2 * x}, ("1", "2"), {"stable": "1"}
    ),
    "add_sub": Model(
        {"a": _floats(-1), "b": _floats(-1)},
        {"sum": _floats(-1), "difference": _floats(-1)},
        lambda a, b: {"sum": a + b, "difference": a - b},
    ),
    "count": Model({"n": Port("DT_INT64", (-1,))}, {"n": Port("DT_INT64", (-1,))}, lambda n: {"n": n + 1}),
    "reverse": Model(
        {"image": Port(STRING, (-1,))},
        {"image_bytes": Port(STRING, (-1,))},
        lambda image: {"image_bytes": np.array([each[::-1] for each in image.tolist()] + [None], object)[:-1]},
    ),
    "log": Model({"x": _floats(-1)}, {"y": _floats(-1)}, _logarithm),
    "total": Model({"x": _floats(-1)}, {"y": _floats()}, lambda x: {"y": x.sum()}),
}


class Refused(Exception):  # noqa: N818 - what the original calls an error is a reply
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


PATH = re.compile(r"/v1/models/([^/:]+)(?:/(versions|labels)/([^/:]+))?(?::(\w+)|/(metadata))?", re.IGNORECASE)


def answer(method: str, path: str, body: bytes) -> str:
    """The text of a 200."""
    found = PATH.fullmatch(path)
    if found is None:
        raise Refused(400, f"Malformed request: {method} {path}")
    name, kind, label, verb, metadata = found.groups()
    if method == "POST" and (verb or "").lower() == "predict":
        document = _parsed(body)
        return _predict(name, _model(name, kind, label), document)
    if method != "GET" or verb:
        raise Refused(400, f"Malformed request: {method} {path}")
    if name not in MODELS:
        raise Refused(404, f"Could not find any versions of model {name}")
    model = MODELS[name]
    if metadata:
        return json.dumps(_metadata(name, model), indent=1)
    if kind == "versions" and label not in model.versions:
        raise Refused(404, f"Could not find version {label} of model {name}")
    versions = [label] if kind == "versions" else model.versions
    return json.dumps({"model_version_status": [_status(each) for each in versions]}, indent=1)


def _status(version: str) -> dict[str, Any]:
    return {"version": version, "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}


def _metadata(name: str, model: Model) -> dict[str, Any]:
    definition = {
        side: {key: _info(key, port) for key, port in ports.items()}
        for side, ports in (("inputs", model.inputs), ("outputs", model.outputs))
    }
    return {
        "model_spec": {"name": name, "signature_name": "", "version": model.versions[-1]},
        "metadata": {"signature_def": {"signature_def": {"serving_default": definition}}},
    }


def _info(name: str, port: Port) -> dict[str, Any]:
    dimensions = [{"size": str(size), "name": ""} for size in port.shape]
    return {"dtype": port.dtype, "tensor_shape": {"dim": dimensions, "unknown_rank": False}, "name": f"{name}:0"}


def _model(name: str, kind: str | None, label: str | None) -> Model:
    if name not in MODELS:
        raise Refused(404, f"Servable not found for request: Latest({name})")
    model = MODELS[name]
    if kind == "labels" and label not in (model.labels or {}):
        raise Refused(400, f"Unrecognized servable version label: {label}")
    if kind == "versions" and label not in model.versions:
        raise Refused(404, f"Servable not found for request: Specific({name}, {label})")
    return model


def _parsed(body: bytes) -> dict[str, Any]:
    if not body:
        raise Refused(400, "JSON Parse error: The document is empty")
    try:
        document = json.loads(body)
    except ValueError as error:
        raise Refused(400, "JSON Parse error: Invalid value. at offset: 0") from error
    if not isinstance(document, dict):
        raise Refused(400, "JSON Value is not an object")
    if "instances" in document and "inputs" in document:
        raise Refused(400, "Not formatted correctly: both keys")
    if not ("instances" in document or "inputs" in document):
        raise Refused(400, "Missing 'inputs' or 'instances' key")
    if document.get("signature_name", "serving_default") != "serving_default":
        raise Refused(400, f'Serving signature name: "{document["signature_name"]}" not found in signature def')
    return document


def _predict(name: str, model: Model, document: dict[str, Any]) -> str:
    by_rows = "instances" in document
    columns = _columns(document["instances"], model) if by_rows else _named(document["inputs"], model)
    arrays = {key: _array(key, columns[key], port) for key, port in model.inputs.items()}
    if by_rows and len({len(array) for array in arrays.values()}) > 1:
        raise Refused(400, "inputs differ in their batch size")
    outputs = model.compute(**arrays)
    if by_rows:
        if any(np.ndim(array) == 0 for array in outputs.values()):
            raise Refused(400, "Tensor name: y has inconsistent batch size")
        return f'{{\n    "predictions": {_rows(outputs)}\n}}'
    return f'{{\n    "outputs": {_whole(outputs)}\n}}'


def _columns(instances: Any, model: Model) -> dict[str, Any]:
    if not isinstance(instances, list) or not instances:
        raise Refused(400, "JSON Value: [] No values in 'instances' array")
    names = set(model.inputs)
    if all(isinstance(row, dict) and row.keys() == names for row in instances):
        return {name: [row[name] for row in instances] for name in names}
    if len(names) > 1 or any(isinstance(row, dict) and "b64" not in row for row in instances):
        raise Refused(
            400, "Failed to process element: 0 of 'instances' list. Error: JSON Value is not formatted correctly"
        )
    return {next(iter(names)): instances}


def _named(inputs: Any, model: Model) -> dict[str, Any]:
    if isinstance(inputs, dict) and "b64" not in inputs:
        if inputs.keys() != set(model.inputs):
            raise Refused(400, "input tensor alias not found in signature")
        return inputs
    if len(model.inputs) > 1:
        raise Refused(400, "JSON Value is not formatted correctly: several inputs")
    return {next(iter(model.inputs)): inputs}


def _array(name: str, given: Any, port: Port) -> Array:
    if port.dtype == STRING:
        flat = [base64.b64decode(each["b64"]) if isinstance(each, dict) else each.encode() for each in given]
        return np.array([*flat, None], object)[:-1]
    if port.dtype.startswith("DT_INT") and "." in json.dumps(given):
        raise Refused(400, f"JSON Value: 1.0 Type: Number is not of expected type: {port.dtype.lower()[3:]}")
    try:
        return np.array(given, DTYPES[port.dtype])
    except (TypeError, ValueError) as error:
        raise Refused(400, "Failed to process element: 1 of 'instances' list. Error: ragged") from error


def _rows(outputs: Mapping[str, Array]) -> str:
    if len(outputs) == 1:
        [(name, array)] = outputs.items()
        return f"[{', '.join(_text(name, row) for row in array)}\n    ]"
    rows = zip(*outputs.values(), strict=True)
    texts = (
        ", ".join(f'"{name}": {_text(name, each)}' for name, each in zip(outputs, row, strict=True)) for row in rows
    )
    return f"[{', '.join('{' + text + '}' for text in texts)}\n    ]"


def _whole(outputs: Mapping[str, Array]) -> str:
    if len(outputs) == 1:
        [(name, array)] = outputs.items()
        return _text(name, array)
    return "{" + ", ".join(f'"{name}": {_text(name, array)}' for name, array in outputs.items()) + "}"


def _text(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        return json.dumps({"b64": base64.b64encode(value).decode()} if name.endswith("_bytes") else value.decode())
    if np.ndim(value):
        return f"[{', '.join(_text(name, each) for each in value)}]"
    if not np.issubdtype(type(value), np.floating):
        return str(value)
    text = json.dumps(float(str(value)))
    return text if any(mark in text for mark in ".eNI") else f"{text}.0"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []
        self.bodies: list[bytes] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.requests.append(f"{self.command} {self.path}")
        self.server.bodies.append(body)
        status = 200
        if not self.path.startswith("/v1/"):
            return self._reply(404, b"<html>Not found</html>", "text/html", close=True)
        try:
            text = answer(self.command, self.path, body)
        except Refused as refused:
            status, text = refused.status, json.dumps({"error": refused.text}, indent=4)
        return self._reply(status, text.encode(), "application/json")

    do_GET = do_POST = do_PUT = _handle

    def _reply(self, status: int, body: bytes, kind: str, *, close: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if close:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve() -> Iterator[Server]:
    """Serve on a free loopback port."""
    server = Server()
    with in_thread(server):
        yield server
