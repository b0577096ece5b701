"""Servers with the habits of model servers that no package index has, or only with a system around them.

Independent of the gateway. Each doubles the numbers that it gets; a negative number makes its model fail. Those with a
file in `recorded` say what the real servers said there (`test_json_containers.py` compares).

- `torchserve`, TorchServe 0.12: indented JSON without a content type; a handler's exception is 503; bodies that are no
  JSON, or do not say so, reach the handler as bytes, and web forms as fields; errors close the connection
- `sagemaker`, AWS's multi-model-server with SageMaker's inference toolkit: JSON, CSV, `.npy`; Accept picks the type of
  the reply; an error is a text with a traceback, and the reason phrase
- `vertex`, a container for Vertex AI as its SDK builds them: a reply has the type that is accepted, also `*/*`
- `seldon`, seldon-core-microservice 1.18: the reply has the member of the request; each reply closes the connection
- `cog`, Cog 0.23: failures of the model have status 200, and so has health, which tells a state; one call at a time
- `cog_0_16` and `cog_0_9`, older ones: all members in each reply
- `huggingface`, the inference toolkit with a text classifier: a list of labels for each text
- `embeddings`, a server of OpenAI's API for embeddings: floats or base64; counts what it calls tokens
- `infinity`, Infinity 0.0.78: the same API without `/v1`, and FastAPI's errors
- `ray`, a deployment of Ray Serve 2.60 at `/`, and `ray_applications`, two at `/double` and `/text`: bare JSON; errors
  are plain text

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
from dataclasses import dataclass, field, replace
from http.server import ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import numpy as np

from tests.in_thread import QuietHandler, in_thread

JSON, WEB_FORM, TEXT = "application/json", "application/x-www-form-urlencoded", "text/plain; charset=utf-8"


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

    @property
    def type(self) -> str:
        """The media type of the body; empty if the request names none."""
        return self.headers.get("content-type", "").partition(";")[0].strip()

    @property
    def fields(self) -> Mapping[str, str]:
        """The fields of a web form."""
        return dict(parse_qsl(self.body.decode("latin-1"), keep_blank_values=True)) if self.type == WEB_FORM else {}


@dataclass(frozen=True)
class Told:
    """A reply. `phrase` is the reason phrase where it is not HTTP's; `closes` and `chunked` are how it ends."""

    status: int
    body: bytes = b""
    type: str = JSON
    phrase: str | None = None
    closes: bool = False
    chunked: bool = False


Container: TypeAlias = Callable[[Asked], Told]


class ModelError(Exception):
    """The model failed."""


def double(numbers: Any) -> Any:
    """Nested lists and objects of numbers, or a number, twice."""
    if isinstance(numbers, list):
        return [double(each) for each in numbers]
    if isinstance(numbers, dict):
        return {name: double(each) for name, each in numbers.items()}
    if not isinstance(numbers, int | float) or numbers < 0:
        raise ModelError("boom")
    return 2 * numbers


def _json(status: int, document: object) -> Told:
    return Told(status, json.dumps(document).encode())


# --- TorchServe ---

MODEL = "/predictions/double"


def torchserve(asked: Asked) -> Told:
    """The model `double`, version 1.0; its handler doubles a list, or counts bytes."""
    if (asked.method, asked.path) == ("GET", "/ping"):
        return _pretty(200, {"status": "Healthy"})
    if (asked.method, asked.path) == ("GET", "/api-description"):
        return _pretty(200, {"openapi": "3.0.1", "info": {"title": "TorchServe APIs", "version": "0.12.0"}})
    if asked.path == "/":
        text = "Requested method is not allowed, please refer to API document."
        return _failure(405, "MethodNotAllowedException", text)
    _, root, *names = asked.path.split("/")
    if root != "predictions" or not 1 <= len(names) <= 2:
        text = "Requested resource is not found, please refer to API document."
        return _failure(404, "ResourceNotFoundException", text)
    model, *version = names
    if model != "double":
        return _failure(404, "ModelNotFoundException", f"Model not found: {model}")
    if version not in ([], ["1.0"]):
        message = f"Model version: {version[0]} does not exist for model: {model}"
        return _failure(404, "ModelVersionNotFoundException", message)
    if asked.type == WEB_FORM and "data" not in asked.fields:
        return _failure(503, "InternalServerException", "Prediction failed")
    try:
        if asked.type != JSON:
            raise ValueError
        found = floats(double(asked.document))
    except ModelError:
        return _failure(503, "InternalServerException", "Prediction failed")
    except ValueError:
        found = {"bytes": len(asked.fields.get("data", "") or asked.body)}
    return Told(200, json.dumps(found, indent=2).encode(), "", phrase="")


def floats(numbers: Any) -> Any:
    """Nested lists of numbers as numbers with a point."""
    return [floats(each) for each in numbers] if isinstance(numbers, list) else float(numbers)


def _failure(code: int, kind: str, message: str) -> Told:
    return replace(_pretty(code, {"code": code, "type": kind, "message": message}), closes=True)


def _pretty(status: int, document: object) -> Told:
    return Told(status, json.dumps(document, indent=2).encode() + b"\n")


# --- SageMaker, Vertex AI ---

NO_SUCH_TYPE = """Content type {} is not supported by this framework.

            Please implement input_fn to to deserialize the request data or an output_fn to
            serialize the response. For more information, see the SageMaker Python SDK README."""


def sagemaker(asked: Asked) -> Told:
    """Reads what Content-Type says, and writes what Accept asks for, JSON without it."""
    if asked.path == "/ping":
        return _pretty(200, {"status": "Healthy"})
    if asked.path == "/api-description":
        return _pretty(200, {"openapi": "3.0.1", "info": {"title": "Model Server APIs", "version": "1.0.0"}})
    if asked.path not in ("/invocations", "/models/double/invoke", MODEL):
        if asked.path.startswith("/models/"):
            return _failure(404, "ModelNotFoundException", f"Model not found: {asked.path.split('/')[2]}")
        text = "Requested resource is not found, please refer to API document."
        return _failure(404, "ResourceNotFoundException", text)
    try:
        numbers = _numbers(asked.type or "None", asked.body).tolist()
        if isinstance(numbers, dict):
            return _raised("'<' not supported between instances of 'dict' and 'int'")
        accept = asked.headers.get("accept", "*/*")
        return _written(JSON if accept == "*/*" else accept, np.array(double(numbers)))
    except KeyError as error:
        return _raised(NO_SUCH_TYPE.format(error.args[0]))
    except (ModelError, ValueError) as error:
        return _raised(str(error))


def _raised(text: str) -> Told:
    """An exception of the model: its text is the reason phrase, too."""
    phrase = "".join(" " if each == "\n" else each for each in text)
    body = f"{text}\nTraceback (most recent call last):\n  ...\n"
    return Told(500, body.encode(), "", phrase=phrase, closes=True)


def _numbers(kind: str, body: bytes) -> np.ndarray[Any, Any]:
    read: dict[str, Callable[[], Any]] = {
        JSON: lambda: np.array(json.loads(body)),
        "text/csv": lambda: np.array([[_number(each) for each in line.split(b",")] for line in body.split()]).squeeze(),
        "application/x-npy": lambda: np.load(io.BytesIO(body), allow_pickle=False),
    }
    return np.asarray(read[kind]())


def _number(cell: bytes) -> float | int:
    return float(cell) if b"." in cell else int(cell)


def _written(kind: str, array: np.ndarray[Any, Any]) -> Told:
    if kind == "text/csv":
        rows = np.atleast_2d(array).tolist()
        return Told(200, "".join(",".join(map(str, row)) + "\n" for row in rows).encode(), "text/csv", phrase="")
    if kind == "application/x-npy":
        file = io.BytesIO()
        np.save(file, array)
        return Told(200, file.getvalue(), "application/x-npy", phrase="")
    if kind != JSON:
        raise KeyError(kind)
    return Told(200, json.dumps(array.tolist()).encode(), phrase="")


SUPPORTED = 'Currently supported {} in DefaultSerializer: "application/json".'


def vertex(asked: Asked) -> Told:
    if asked.path == "/health":
        return _json(200, {})
    if asked.path != "/predict":
        return _compact(404, {"detail": "Not Found"})
    if asked.method != "POST":
        return _compact(405, {"detail": "Method Not Allowed"})
    accept = asked.headers.get("accept", "*/*")
    if asked.type != JSON:
        text = f"Unsupported content type of the request: {asked.type or None}.\n{SUPPORTED.format('content-type')}"
        return _compact(400, {"detail": text})
    try:
        instances = asked.document["instances"]
        if accept not in ("*/*", JSON):
            text = f"Unsupported accept of the response: {accept}.\n{SUPPORTED.format('accept')}"
            return _compact(400, {"detail": text})
        return replace(_json(200, {"predictions": double(instances)}), type=accept)
    except KeyError as error:
        return _compact(500, {"detail": f"The following exception has occurred: KeyError. Arguments: {error.args}."})
    except ValueError:
        text = (
            f"JSON deserialization failed for the request data: {asked.body!r}.\nTo specify a different type, please "
        )
        supported = SUPPORTED.format("content-type")
        return _compact(400, {"detail": f'{text}set the "content-type" header in the request.\n{supported}'})
    except ModelError as error:
        return _compact(500, {"detail": f"The following exception has occurred: ValueError. Arguments: {error.args}."})


def _compact(status: int, document: object, **more: Any) -> Told:
    return Told(status, json.dumps(document, separators=(",", ":")).encode(), **more)


# --- Seldon ---


def seldon(asked: Asked) -> Told:
    path, _, query = asked.path.partition("?")
    if path == "/health/ping":
        return Told(200, b"pong", "text/html; charset=utf-8", closes=True)
    if path == "/health/status":
        return _of_seldon(200, {"meta": {}, "strData": "not implemented - assuming healthy"})
    if path not in ("/predict", "/api/v1.0/predictions", "/api/v0.1/predictions"):
        text = "404 Not Found: The requested URL was not found on the server. If you entered the URL manually please "
        return _seldon_failure(500, f"{text}check your spelling and try again.", "MICROSERVICE_INTERNAL_ERROR")
    fields = {**dict(parse_qsl(query)), **asked.fields}
    try:
        message = json.loads(fields["json"]) if "json" in fields else asked.document if asked.type == JSON else None
    except ValueError:
        message = None
    if message is None:
        return _seldon_failure(400, "Can't find JSON in data", "MICROSERVICE_BAD_DATA")
    if not {"data", "strData", "binData"} & message.keys():
        return _seldon_failure(400, f"Invalid request data type: {message}", "MICROSERVICE_BAD_DATA")
    try:
        return _of_seldon(200, _seldon(message))
    except (ModelError, KeyError, ValueError) as error:
        return _seldon_failure(500, str(error), "MICROSERVICE_INTERNAL_ERROR")


def _seldon_failure(status: int, info: str, reason: str) -> Told:
    return _of_seldon(status, {"status": {"code": -1, "info": info, "reason": reason, "status": 1}})


def _of_seldon(status: int, document: object) -> Told:
    body = json.dumps(document, separators=(",", ":"), sort_keys=True).encode() + b"\n"
    phrase = {200: "OK", 400: "BAD REQUEST", 500: "INTERNAL SERVER ERROR"}[status]
    return Told(status, body, phrase=phrase, closes=True)


def _seldon(message: dict[str, Any]) -> dict[str, Any]:
    meta = message.get("meta", {})
    if "strData" in message:
        return {"strData": message["strData"].upper(), "meta": meta}
    if "binData" in message:
        return {"binData": base64.b64encode(base64.b64decode(message["binData"])[::-1]).decode(), "meta": meta}
    data = message["data"]
    given = np.reshape(data["tensor"]["values"], data["tensor"]["shape"]) if "tensor" in data else data["ndarray"]
    found = np.asarray(_doubled_by_numpy(np.asarray(given)))
    names = [f"t:{at}" for at in range(found.shape[-1])]
    if "tensor" in data:
        tensor = {"shape": list(found.shape), "values": found.ravel().tolist()}
        return {"data": {"names": names, "tensor": tensor}, "meta": meta}
    return {"data": {"names": names, "ndarray": found.tolist()}, "meta": meta}


def _doubled_by_numpy(given: np.ndarray[Any, Any]) -> Any:
    if given.dtype.kind == "U":
        text = "ufunc 'multiply' did not contain a loop with signature matching types"
        raise ModelError(f"{text} (dtype('int64'), dtype('{given.dtype.str}')) -> None")
    if (given < 0).any():
        raise ModelError("boom")
    return given * 2


# --- Cog ---

BUSY = threading.Event()
"""Set while a test wants Cogs to be busy."""


def cog(asked: Asked) -> Told:
    """Cog 0.23, whose server is written in Rust."""
    if asked.path == "/health-check":
        return _compact(200, {"status": "READY", "setup": {"status": "succeeded", "logs": "..."}})
    if asked.path == "/":
        return _compact(200, {"cog_version": "0.23.1", "predictions_url": "/predictions"})
    if asked.path.endswith("/cancel"):
        return _compact(404, {})
    if not asked.path.startswith("/predictions"):
        return Told(404, b"", "")
    if asked.method not in ("POST", "PUT"):
        return Told(405, b"", "")
    if asked.type != JSON:
        return Told(415, b"Expected request with `Content-Type: application/json`", TEXT)
    try:
        document = asked.document
    except ValueError:
        member, at = ("input: ", 9) if asked.body else ("", 0)
        text = f"Failed to parse the request body as JSON: {member}EOF while parsing a value at line 1 column {at}"
        return Told(400, text.encode(), TEXT)
    if not isinstance(document, dict):
        text = "Failed to deserialize the JSON body into the target type: invalid length 0, expected struct "
        return Told(422, f"{text}PredictionRequest with 5 elements at line 1 column 2".encode(), TEXT)
    if BUSY.is_set():
        return _compact(409, {"error": "At capacity - all prediction slots busy", "status": "failed"})
    id = _id(asked) or document.get("id", "pred_18ec3d703a0bab1a")
    if asked.headers.get("prefer") == "respond-async":
        return _compact(202, {"id": id, "status": "starting"})
    rest = {"logs": "", "metrics": {"predict_time": 0.03}}
    given = document.get("input", {})
    try:
        output = double(_input(given))
    except ModelError as error:
        text = f"Prediction failed: Prediction failed: {error}"
        return _compact(200, {"error": text, "id": id, **rest, "status": "failed"})
    return _compact(200, {"id": id, **rest, "output": output, "status": "succeeded"})


def _id(asked: Asked) -> str:
    """The id in a path `/predictions/ID`."""
    return asked.path.removeprefix("/predictions").strip("/")


def _input(given: dict[str, Any]) -> list[float]:
    """The `x` of a prediction. Raises ModelError, as Python would."""
    further = given.keys() - {"x", "fail", "wait"}
    if further:
        text = f"Predictor.predict() got an unexpected keyword argument {min(further)!r}"
        raise ModelError(f"TypeError: {text}")
    x = given.get("x")
    if not isinstance(x, list):
        text = "'<' not supported between instances of 'str' and 'int'"
        raise ModelError(f"TypeError: {text if x else chr(39) + 'NoneType' + chr(39) + ' object is not iterable'}")
    if given.get("fail") or _is_negative(x):
        raise ModelError("ValueError: boom")
    return x


def _is_negative(numbers: Any) -> bool:
    """Whether a negative number is among nested lists of numbers."""
    return any(map(_is_negative, numbers)) if isinstance(numbers, list) else numbers < 0


def cog_0_16(asked: Asked) -> Told:
    """Cog 0.12 to 0.16, with FastAPI and pydantic 2."""
    return _old_cog(asked, {"fail": False, "wait": 0}, {}, _WORDS_OF_PYDANTIC_2)


def cog_0_9(asked: Asked) -> Told:
    """Cog 0.9, with pydantic 1."""
    events = ["start", "output", "logs", "completed"]
    more = {"output_file_prefix": None, "webhook_events_filter": events, "webhook": None}
    return _old_cog(asked, {"fail": False}, more, _WORDS_OF_PYDANTIC_1)


def _wrong(type: str, loc: list[str], msg: str, given: object) -> dict[str, Any]:
    return {"type": type, "loc": ["body", *loc], "msg": msg, "input": given}


def _no_json(body: str) -> dict[str, Any]:
    told = {"type": "json_invalid", "loc": ["body", len(body)], "msg": "JSON decode error", "input": {}}
    return {**told, "ctx": {"error": "Expecting value"}}


def _no_json_1(body: str) -> dict[str, Any]:
    at = len(body)
    context = {"msg": "Expecting value", "doc": body, "pos": at, "lineno": 1, "colno": at + 1}
    message = f"Expecting value: line 1 column {at + 1} (char {at})"
    return {"loc": ["body", at], "msg": message, "type": "value_error.jsondecode", "ctx": context}


NO_OBJECT = "Input should be a valid dictionary or object to extract fields from"
_WORDS_OF_PYDANTIC_2: Mapping[str, Any] = {
    "missing": lambda given: _wrong("missing", ["input", "x"], "Field required", given),
    "object": lambda given: _wrong("model_attributes_type", [], NO_OBJECT, given),
    "list": lambda given: _wrong("list_type", ["input", "x"], "Input should be a valid list", given),
    "json": _no_json,
    "[]": 422,
    "{}": "1 validation error for PredictionResponse\ninput.x\n  Field required [type=missing, input_value={}, "
    "input_type=dict]\n    For further information visit https://errors.pydantic.dev/2.14/v/missing",
}
_WORDS_OF_PYDANTIC_1: Mapping[str, Any] = {
    "missing": lambda _: {"loc": ["body", "input", "x"], "msg": "field required", "type": "value_error.missing"},
    "object": lambda _: {"loc": ["body"], "msg": "value is not a valid dict", "type": "type_error.dict"},
    "list": lambda _: {"loc": ["body", "input", "x"], "msg": "value is not a valid list", "type": "type_error.list"},
    "json": _no_json_1,
    "[]": 500,
    "{}": "1 validation error for PredictionResponse\ninput -> x\n  field required (type=value_error.missing)",
}


def _old_cog(asked: Asked, defaults: dict[str, Any], more: dict[str, Any], words: Mapping[str, Any]) -> Told:
    if asked.path == "/health-check":
        return _compact(200, {"status": "READY", "setup": {"logs": "", "status": "succeeded"}})
    if asked.path == "/":
        return _compact(200, {"docs_url": "/docs", "openapi_url": "/openapi.json"})
    if asked.path.endswith("/cancel"):
        return _compact(404, {})
    if not asked.path.startswith("/predictions"):
        return _compact(404, {"detail": "Not Found"})
    if asked.method not in ("POST", "PUT"):
        return _compact(405, {"detail": "Method Not Allowed"})
    if not asked.body:
        return Told(500, b"Internal Server Error", TEXT)
    body = asked.body.decode()
    if asked.type != JSON:
        return _compact(422, {"detail": [words["object"](body)]})
    try:
        document = asked.document
    except ValueError:
        return _compact(422, {"detail": [words["json"](body)]})
    if document == {} or (document == [] and words["[]"] == 500):
        return _compact(500, {"detail": words["{}"]})
    if not isinstance(document, dict):
        return _compact(422, {"detail": [words["object"](document)]})
    given = document.get("input", {})
    if "x" not in given:
        return _compact(422, {"detail": [words["missing"](given)]})
    if not isinstance(given["x"], list):
        return _compact(422, {"detail": [words["list"](given["x"])]})
    if BUSY.is_set():
        return _compact(409, {"detail": "Already running a prediction"})
    read = {"x": floats(given["x"]), **{name: given.get(name, default) for name, default in defaults.items()}}
    told = {
        "input": read,
        "output": None,
        "id": _id(asked) or document.get("id"),
        "version": None,
        "created_at": None,
        "started_at": "2026-11-28T14:09:47.394922+00:00",
        "completed_at": "2026-11-28T14:09:47.399352+00:00",
        "logs": "",
        "error": None,
        "status": "succeeded",
        "metrics": {"predict_time": 0.00443},
    }
    if asked.headers.get("prefer") == "respond-async":
        return _compact(202, {**told, "completed_at": None, "status": "processing", "metrics": None, **more})
    if read["fail"] or _is_negative(read["x"]):
        return _compact(200, {**told, "logs": "...", "error": "boom", "status": "failed", "metrics": None, **more})
    return _compact(200, {**told, "output": double(read["x"]), **more})


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


TINY = [
    -0.33053016662597656, -0.20325514674186707, -0.0792122483253479, 0.6766552329063416, -0.3343808650970459,
    -0.12063474208116531, -0.10627846419811249, 0.4976363182067871,
]  # fmt: skip
YOU = [
    -0.10460096597671509, -0.2277822494506836, 0.16948428750038147, 0.5834913849830627, -0.3734957277774811,
    -0.4342971742153168, -0.09355099499225616, 0.48075130581855774,
]  # fmt: skip


def infinity(asked: Asked) -> Told:
    """Its model knows two embeddings: that of `you`, and that of every other text."""
    if asked.path == "/health":
        return _compact(200, {"unix": 1795877665.6505158})
    if asked.path == "/models":
        model = {"id": "tiny", "object": "model", "owned_by": "infinity", "created": 1795877665}
        more = {"stats": {"queue_fraction": 0.0, "queue_absolute": 0, "results_pending": 0, "batch_size": 32}}
        return _compact(
            200, {"data": [{**model, **more, "backend": "torch", "capabilities": ["embed"]}], "object": "list"}
        )
    if asked.path == "/":
        return Told(307, b"", "")
    if asked.path != "/embeddings":
        return _compact(404, {"detail": "Not Found"})
    try:
        document = asked.document
    except ValueError:
        return _compact(422, {"detail": [_no_json(asked.body.decode())]})
    given = document["input"]
    texts = given if isinstance(given, list) else [given]
    if any(not isinstance(each, str) for each in texts):
        place = ["body", "text", "input", "list[constrained-str]"]
        text = {"type": "string_type", "msg": "Input should be a valid string"}
        wrong = [{**text, "loc": [*place, at], "input": each} for at, each in enumerate(texts)]
        return _compact(422, {"detail": [*wrong, {**text, "loc": [*place[:3], "constrained-str"], "input": given}]})
    encode = _base64 if document.get("encoding_format") == "base64" else list
    data = [
        {"object": "embedding", "embedding": encode((YOU if each == "you" else TINY)[: document.get("dimensions")])}
        for each in texts
    ]
    tokens = sum(map(len, texts))
    told = {"object": "list", "data": [{**each, "index": at} for at, each in enumerate(data)], "model": "tiny"}
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return _compact(200, {**told, "usage": usage, "id": "infinity-3e92f3a7", "created": 1795877665})


def ray(asked: Asked) -> Told:
    return _ray(asked, {"/": "default"})


def ray_applications(asked: Asked) -> Told:
    return _ray(asked, {"/double": "double", "/text": "text"})


def _ray(asked: Asked, routes: Mapping[str, str]) -> Told:
    """Applications by their route prefixes: `text` greets, and the others double."""
    if asked.path == "/-/healthz":
        return Told(200, b"success", TEXT, chunked=True)
    if asked.path == "/-/routes":
        return _compact(200, routes, chunked=True)
    found = next((name for prefix, name in routes.items() if f"{asked.path}/".startswith(f"{prefix.rstrip('/')}/")), "")
    if not found:
        text = f"Path '{asked.path}' not found. Ping http://.../-/routes for available routes."
        return Told(404, text.encode(), TEXT, chunked=True)
    try:
        if found == "text":
            return Told(200, f"hello {asked.document}".encode(), TEXT, chunked=True)
        return _compact(200, double(asked.document), chunked=True)
    except (ModelError, ValueError):
        return Told(500, b"Internal Server Error", "")


CONTAINERS: Mapping[str, Container] = {
    each.__name__: each
    for each in (
        torchserve, sagemaker, vertex, seldon, cog, cog_0_16, cog_0_9, huggingface, embeddings, infinity, ray,
        ray_applications,
    )
}  # fmt: skip


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

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            running.requests.append(f"{self.command} {self.path}")
            told = container(Asked(self.command, self.path, headers, body))
            self.send_response(told.status, told.phrase)
            if told.type:
                self.send_header("Content-Type", told.type)
            if told.closes:
                self.send_header("Connection", "close")
            if told.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(told.body), told.body))
                return
            self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            self.wfile.write(told.body)

        do_GET = do_POST = do_PUT = _answer

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        running.url = f"http://{address}"
        yield running
