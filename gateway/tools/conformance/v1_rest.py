"""Checks of V1 servers: the KServe V1 protocol, which is TensorFlow Serving's REST API without versions and columns.
Section names consist of the document and a heading."""

import json
from typing import Any
from urllib.parse import quote

from gateway.tools.conformance.check import Suite, basis, deviate, fail, not_applicable, not_tested, require
from gateway.tools.conformance.inputs import InputSpec, Sample, flat, same, sample
from gateway.tools.conformance.transports import HttpReply, HttpServer

UNKNOWN = "no-such-model"
DATATYPES = {
    "DT_FLOAT": "FP32", "DT_DOUBLE": "FP64", "DT_HALF": "FP16", "DT_INT8": "INT8", "DT_INT16": "INT16",
    "DT_INT32": "INT32", "DT_INT64": "INT64", "DT_UINT8": "UINT8", "DT_UINT16": "UINT16", "DT_UINT32": "UINT32",
    "DT_UINT64": "UINT64", "DT_BOOL": "BOOL", "DT_STRING": "BYTES",
}  # fmt: skip
TYPES = tuple(dict.fromkeys(DATATYPES.values()))


class V1RestServer(HttpServer):
    """A server, one of its models, and rows to send to it."""

    @basis
    def listed(self) -> HttpReply:
        return self.get("/v1/models")

    @basis
    def model(self) -> str:
        if self.options.model:
            return self.options.model
        document = self.listed.document
        models = document.get("models") if isinstance(document, dict) else None
        if not isinstance(models, list) or not models or not isinstance(models[0], str):
            not_tested("the server lists no models; set --model")
        return models[0]

    @property
    def path(self) -> str:
        return f"/v1/models/{quote(self.model, safe='')}"

    @basis
    def metadata(self) -> HttpReply:
        return self.get(f"{self.path}/metadata")

    @basis
    def tensors(self) -> list[Sample]:
        """A batch for each input. All batches have the same number of rows."""
        specs = self.options.inputs or tuple(self._described())
        if not specs:
            not_tested("the server reports no signature; describe the inputs with --input NAME=DATATYPE[SHAPE]")
        try:
            return [sample(each) for each in specs]
        except ValueError as error:
            not_tested(str(error))

    @basis
    def rows(self) -> list[Any]:
        """The instances: plain values for a single input, or objects for several inputs."""
        if any(not each.shape for each in self.tensors):
            not_tested("an input has no dimension for rows; describe it with --input NAME=DATATYPE[ROWS,...]")
        if len(self.tensors) == 1:
            nested = self.tensors[0].nested
            return list(nested)
        return [{each.name: each.nested[at] for each in self.tensors} for at in range(self.tensors[0].shape[0])]

    def predict(self, document: Any) -> HttpReply:
        return self.post(f"{self.path}:predict", document)

    @basis
    def predictions(self) -> list[Any]:
        return _predictions(self.predict({"instances": self.rows}), len(self.rows))

    def _described(self) -> list[InputSpec]:
        if self.metadata.status != 200:
            return []
        signatures = self.metadata.object["metadata"]["signature_def"]["signature_def"]
        chosen = signatures.get("serving_default") or next(iter(signatures.values()))
        found = []
        for name, each in chosen["inputs"].items():
            sizes = [int(size["size"]) for size in each["tensor_shape"].get("dim", [])]
            found.append(InputSpec(name, DATATYPES.get(each["dtype"], each["dtype"]), tuple(sizes)))
        return found


SUITE = Suite("v1-rest", V1RestServer)
check = SUITE.check


@check("model.list", "KServe V1: List Models", 'GET /v1/models: {"models": [<model_name>]}')
def models(server: V1RestServer) -> None:
    if server.listed.status != 200:
        not_applicable(f"GET /v1/models: status {server.listed.status}, like TensorFlow Serving")
    found = server.listed.object.get("models")
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        fail(f"`models` is {found!r}; expected an array of strings")


@check("model.ready", "KServe V1: Model Readiness", 'GET /v1/models/M: {"name": M, "ready": $bool}, or the versions')
def model_ready(server: V1RestServer) -> None:
    reply = server.get(server.path)
    require(reply.status == 200, f"status {reply.status}; expected 200")
    document = reply.object
    if "model_version_status" in document:
        states = [each.get("state") for each in document["model_version_status"]]
        require("AVAILABLE" in states, f"no version is AVAILABLE: {states}")
        return
    require(document.get("name") == server.model, f"`name` is {document.get('name')!r}; expected {server.model!r}")
    require(document.get("ready") is True, f"`ready` is {document.get('ready')!r}; expected true")


@check("model.unknown", "KServe V1: Model Readiness", "an unknown model gets 404")
def unknown_status(server: V1RestServer) -> None:
    _is_error(server.get(f"/v1/models/{UNKNOWN}"), "the status of an unknown model", 404)


@check("metadata", "TensorFlow Serving: Model Metadata", "model_spec, and metadata with signature_def")
def metadata(server: V1RestServer) -> None:
    if server.metadata.status != 200:
        not_applicable(f"GET {server.path}/metadata: status {server.metadata.status}, like KServe")
    document = server.metadata.object
    name = document.get("model_spec", {}).get("name")
    require(name == server.model, f"`model_spec.name` is {name!r}; expected {server.model!r}")
    signatures = document["metadata"]["signature_def"]["signature_def"]
    require(signatures, "there is no signature")
    for each in signatures.values():
        for tensor in (*each["inputs"].values(), *each["outputs"].values()):
            require(tensor["dtype"] in DATATYPES, f"`dtype` is {tensor['dtype']!r}; expected a name such as DT_FLOAT")


@check("predict.rows", "KServe V1: Predict", 'predictions: {"predictions": [<value>]}, one for each instance')
def rows(server: V1RestServer) -> None:
    require(server.predictions is not None, "no predictions")


@check("predict.two-rows", "KServe V1: Predict", "instances is a list; the predictions are in the same order")
def two_rows(server: V1RestServer) -> None:
    found = _predictions(server.predict({"instances": server.rows[:1] * 2}), 2)
    require(_equal(found[0], found[1]), "two equal instances have different predictions")
    require(_equal(found[0], server.predictions[0]), "a second instance changes the prediction of the first")


@check("predict.again", "KServe V1: Predict", "the same instances have the same predictions")
def again(server: V1RestServer) -> None:
    found = _predictions(server.predict({"instances": server.rows}), len(server.rows))
    require(_equal(found, server.predictions), "the same request gets a different reply")


@check("predict.content-type", "KServe V1: Predict", "the response is JSON")
def content_type(server: V1RestServer) -> None:
    reply = server.predict({"instances": server.rows})
    found = reply.headers.get("content-type", "")
    if found.partition(";")[0].strip() != "application/json":
        deviate(f"the Content-Type is {found!r}; expected 'application/json'")


@check("predict.content-type-charset", "KServe V1: Predict", "the request is JSON")
def content_type_charset(server: V1RestServer) -> None:
    reply = server.post(
        f"{server.path}:predict", {"instances": server.rows}, Content_Type="application/json; charset=utf-8"
    )
    if reply.status != 200:
        deviate(f"Content-Type 'application/json; charset=utf-8': status {reply.status}")


@check("predict.columns", "TensorFlow Serving: Predict", '"inputs" in columnar format gives "outputs"')
def columns(server: V1RestServer) -> None:
    inputs = {each.name: each.nested for each in server.tensors}
    reply = server.predict({"inputs": inputs if len(inputs) > 1 else next(iter(inputs.values()))})
    if reply.status != 200:
        not_applicable(f"`inputs`: status {reply.status}; KServe leaves `inputs` to the model")
    document = reply.object
    if "outputs" not in document:
        deviate(f"the response has {sorted(document)}; expected `outputs`")


@check("predict.version", "TensorFlow Serving: Predict", "POST /v1/models/M/versions/V:predict")
def version(server: V1RestServer) -> None:
    document = server.get(server.path).object
    versions = [each["version"] for each in document.get("model_version_status", []) if each["state"] == "AVAILABLE"]
    spec = server.metadata.document
    if isinstance(spec, dict) and spec.get("model_spec", {}).get("version"):
        versions.append(spec["model_spec"]["version"])
    if not versions:
        not_applicable("the server reports no versions")
    reply = server.post(f"{server.path}/versions/{versions[0]}:predict", {"instances": server.rows})
    found = _predictions(reply, len(server.rows))
    require(found, "no predictions")


SUITE.check_datatypes(
    "predict.datatype",
    "TensorFlow Serving: JSON mapping",
    {each: (each, f"{each} as JSON values") for each in TYPES},
    lambda server: require(server.predictions, "no predictions"),
)


@check("error.unknown-model", "KServe V1: Predict", "errors have a status and a JSON object with `error`")
def unknown_model(server: V1RestServer) -> None:
    _is_error(server.post(f"/v1/models/{UNKNOWN}:predict", {"instances": [1]}), "an unknown model", 404)


@check("error.malformed-json", "KServe V1: Predict", "the request is a JSON object")
def malformed(server: V1RestServer) -> None:
    _is_error(server.predict(b'{"instances": ['), "malformed JSON", 400)


@check("error.empty-body", "KServe V1: Predict", "the request is a JSON object")
def empty(server: V1RestServer) -> None:
    _is_error(server.predict(b""), "an empty body", 400)


@check("error.no-instances", "KServe V1: Predict", "instances are required")
def no_instances(server: V1RestServer) -> None:
    _is_error(server.predict({"note": 1}), "neither `instances` nor `inputs`", 400)


@check("error.instances-no-list", "KServe V1: Predict", "instances is a list")
def no_list(server: V1RestServer) -> None:
    _is_error(server.predict({"instances": "x"}), "`instances` that is a string", 400)


@check("error.ragged", "TensorFlow Serving: Predict", "instances are rows of one shape")
def ragged(server: V1RestServer) -> None:
    if len(server.tensors) != 1 or len(server.tensors[0].shape) < 2:
        not_applicable("the rows are not arrays")
    row = server.rows[0]
    _is_error(server.predict({"instances": [row, row[:-1]]}), "rows of different lengths", 400)


@check("error.wrong-type", "TensorFlow Serving: JSON mapping", "numbers are JSON numbers")
def wrong_type(server: V1RestServer) -> None:
    numeric = [each for each in server.tensors if each.datatype not in ("BYTES", "BOOL")]
    if not numeric:
        not_applicable("the model has no numeric input")
    changed = [Sample(e.name, e.datatype, e.shape, ["x"] * len(e.values)) for e in server.tensors]
    rows = [{each.name: each.nested[at] for each in changed} for at in range(changed[0].shape[0])]
    instances = list(changed[0].nested) if len(changed) == 1 else rows
    _is_error(server.predict({"instances": instances}), "strings instead of numbers", 400)


@check("error.method", "KServe V1: Predict", "predict is a POST request")
def method(server: V1RestServer) -> None:
    reply = server.get(f"{server.path}:predict")
    require(400 <= reply.status < 500, f"a GET of :predict: status {reply.status}; expected 4xx")


@check("limit.long-name", "KServe V1", "the URL contains the model name; the server stays available after a long name")
def long_name(server: V1RestServer) -> None:
    reply = server.get(f"/v1/models/{'n' * 4000}")
    require(400 <= reply.status < 500, f"a name of 4,000 characters: status {reply.status}; expected 4xx")


@check("http.keep-alive", "HTTP/1.1", "a connection stays open until client or server closes it")
def keep_alive(server: V1RestServer) -> None:
    server.check_keeps_open("GET", server.path)


@check("http.chunked", "HTTP/1.1", "requests may be chunked")
def chunked(server: V1RestServer) -> None:
    reply = server.chunked(f"{server.path}:predict", json.dumps({"instances": server.rows}).encode())
    found = _predictions(reply, len(server.rows))
    require(_equal(found, server.predictions), "the reply differs from the reply to the plain request")


def _predictions(reply: HttpReply, rows: int) -> list[Any]:
    if reply.status != 200:
        fail(f"status {reply.status} for rows from the signature: {reply.body[:120]!r}; set other inputs with --input")
    found = reply.object.get("predictions")
    if not isinstance(found, list):
        fail(f"the response has {sorted(reply.object)}; expected `predictions`, an array")
    require(len(found) == rows, f"{len(found)} predictions for {rows} instances")
    return found


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_equal(each, theirs[key]) for key, each in ours.items())
    ours, theirs = flat(ours), flat(theirs)
    if any(isinstance(each, dict) for each in (*ours, *theirs)):
        return len(ours) == len(theirs) and all(map(_equal, ours, theirs))
    return same("FP32", ours, theirs)


def _is_error(reply: HttpReply, what: str, status: int) -> None:
    require(reply.status != 200, f"{what}: accepted with status 200")
    reply.check_is_error(what, str(status))
    if reply.status != status:
        deviate(f"{what}: status {reply.status}; expected {status}")
