"""Checks of V2 servers over HTTP. Section names are headings of the Predict Protocol, Version 2 (Open Inference
Protocol)."""

import json
from math import prod
from typing import Any
from urllib.parse import quote

from gateway.tools.conformance.check import Suite, basis, deviate, fail, not_applicable, not_tested, require
from gateway.tools.conformance.inputs import InputSpec, Sample, Values, flat, same, unpacked
from gateway.tools.conformance.transports import HttpReply, HttpServer
from gateway.tools.conformance.v2 import UNKNOWN, V2Answer, V2Inference, V2Output, add_checks, same_outputs, samples

BINARY = "binary_tensor_data"
LENGTH = "inference-header-content-length"


class V2RestServer(HttpServer):
    """A server, one of its models, and the inputs to send to it."""

    @basis
    def server_metadata(self) -> dict[str, Any]:
        reply = self.get("/v2")
        require(reply.status == 200, f"GET /v2: status {reply.status}; expected 200")
        return reply.object

    @basis
    def model(self) -> str:
        """The model from `--model`, or the first model that the server lists (as ready) through extensions of V2."""
        if self.options.model:
            return self.options.model
        index = self.post("/v2/repository/index", {"ready": True}).document
        for each in index if isinstance(index, list) else []:
            if (
                isinstance(each, dict)
                and each.get("state", "READY").endswith("READY")
                and isinstance(each["name"], str)
            ):
                return each["name"]
        listed = self.get("/v2/models").document
        models = listed.get("models") if isinstance(listed, dict) else None
        if not models or not isinstance(models, list) or not isinstance(models[0], str):
            not_tested("the server lists no models; set --model")
        return models[0]

    @property
    def path(self) -> str:
        return _path(self.model)

    @basis
    def metadata(self) -> dict[str, Any]:
        reply = self.get(self.path)
        require(reply.status == 200, f"GET {self.path}: status {reply.status}; expected 200")
        return reply.object

    @property
    def versions(self) -> list[str]:
        return self.metadata.get("versions") or []

    @property
    def described(self) -> tuple[list[Any], list[Any]]:
        inputs, outputs = (self.metadata.get(key) or [] for key in ("inputs", "outputs"))
        return [*map(_described, inputs)], [*map(_described, outputs)]

    @basis
    def tensors(self) -> list[Sample]:
        return samples(
            self.options, lambda: [InputSpec(name, kind, tuple(shape)) for name, kind, shape in self.described[0]]
        )

    @basis
    def plain(self) -> V2Answer:
        return self.infer(V2Inference())

    def infer(self, inference: V2Inference) -> V2Answer:
        if any(each.datatype == "FP16" for each in self.tensors):
            not_tested("an input is FP16, which the specification calls problematic to communicate in JSON")
        return self.answered(self.ask(inference))

    def ask(self, inference: V2Inference) -> HttpReply:
        tensors = self.tensors if inference.tensors is None else inference.tensors
        body: dict[str, Any] = {"id": inference.id} if inference.id else {}
        body["inputs"] = [_json(each) for each in tensors]
        if inference.outputs:
            body["outputs"] = [{"name": each} for each in inference.outputs]
        if inference.parameters:
            body["parameters"] = dict(inference.parameters)
        return self.post(f"{_path(inference.model or self.model, inference.version)}/infer", body)

    def ask_metadata(self, model: str, version: str = "") -> HttpReply:
        return self.get(_path(model, version))

    def error(self, reply: HttpReply) -> str:
        return "" if reply.status == 200 else f"status {reply.status}"

    def answered(self, reply: HttpReply) -> V2Answer:
        return _answer(_succeeded(reply))

    def check_outputs(self) -> None:
        if any(each.datatype == "FP16" for each in self.tensors):
            self.needs_binary()  # "fp16 is problematic to communicate explicitly"
            _succeeded(self.binary(self.tensors, parameters={"binary_data_output": True}), binary=True)
        else:
            _outputs(self.plain.raw)

    def refused(self, reply: HttpReply, what: str, *codes: str, lenient: bool = False) -> None:
        if reply.status == 200:
            (deviate if lenient else fail)(f"{what}: accepted with status 200")
        reply.check_is_error(what, "4xx")
        if reply.status >= 500:
            deviate(f"{what}: status {reply.status}; expected 4xx for a client error")

    def binary(self, tensors: list[Sample], **more: Any) -> HttpReply:
        """Return the reply to inputs in the binary format."""
        inputs = [{**_head(each), "parameters": {"binary_data_size": len(each.raw)}} for each in tensors]
        head = json.dumps({"id": "1", "inputs": inputs, **more}).encode()
        body = head + b"".join(each.raw for each in tensors)
        headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
        return self.request("POST", f"{self.path}/infer", body, headers)

    def needs_binary(self) -> None:
        extensions = self.server_metadata.get("extensions")
        if not isinstance(extensions, list) or BINARY not in extensions:
            not_applicable(f"the server's metadata does not list the extension {BINARY}")


SUITE = Suite("v2-rest", V2RestServer)
check = SUITE.check


@check("health.live", "Health / Server Live", "a 200 status code indicates true and a 4xx status code indicates false")
def live(server: V2RestServer) -> None:
    _is_healthy(server.get("/v2/health/live"))


@check("health.ready", "Health / Server Ready", "200 if all the models are ready for inferencing")
def ready(server: V2RestServer) -> None:
    _is_healthy(server.get("/v2/health/ready"))


@check("health.model-ready", "Health / Model Ready", "200 if a specific model is ready for inferencing")
def model_ready(server: V2RestServer) -> None:
    _is_healthy(server.get(f"{server.path}/ready"))


@check("health.unknown-model", "Health", "a 4xx status code indicates false")
def unknown_is_not_ready(server: V2RestServer) -> None:
    reply = server.get(f"/v2/models/{UNKNOWN}/ready")
    require(reply.status != 200, "an unknown model is ready")
    require(400 <= reply.status < 500, f"status {reply.status} for an unknown model; expected 4xx")


@check("metadata.server", "Server Metadata", "name, version and extensions (strings, and an array of strings)")
def server_metadata(server: V2RestServer) -> None:
    metadata = server.server_metadata
    for key in ("name", "version"):
        require(isinstance(metadata.get(key), str), f"`{key}` is {metadata.get(key)!r}; expected a string")
    extensions = metadata.get("extensions")
    if not isinstance(extensions, list) or not all(isinstance(each, str) for each in extensions):
        fail(f"`extensions` is {extensions!r}; expected an array of strings")


@check("metadata.model", "Model Metadata", "name, versions (optional), platform, inputs and outputs")
def model_metadata(server: V2RestServer) -> None:
    metadata = server.metadata
    require(metadata.get("name") == server.model, f"`name` is {metadata.get('name')!r}; expected {server.model!r}")
    versions = metadata.get("versions", [])
    if versions is None:
        deviate("`versions` is null; a server omits optional members without a value")
    require(
        isinstance(versions, list) and all(isinstance(each, str) for each in versions),
        f"`versions` is {versions!r}; expected an array of strings",
    )
    platform = metadata.get("platform")
    require(isinstance(platform, str), f"`platform` is {platform!r}; expected a string")
    for key in ("inputs", "outputs"):
        require(isinstance(metadata.get(key), list), f"`{key}` is {metadata.get(key)!r}; expected an array")


@check("infer.json", "Inference Response JSON Object", "model_name, and outputs with name, shape, datatype and data")
def infer_json(server: V2RestServer) -> None:
    answer = server.plain.raw
    require(
        answer.get("model_name") == server.model,
        f"`model_name` is {answer.get('model_name')!r}; expected {server.model!r}",
    )
    require(server.plain.outputs, "the response has no outputs")


RULES = {
    "metadata.tensors": ("Model Metadata", "each tensor has name, datatype and shape; variable dimensions are -1"),
    "metadata.versions": ("Model Metadata", "versions lists the versions that clients can request"),
    "infer.outputs-described": ("Model Metadata", "outputs: the outputs produced by the model"),
    "infer.id": ("Inference Response JSON Object", "id: the identifier given in the request"),
    "infer.id-text": ("Inference Request JSON Object", "id is a string with any characters"),
    "infer.id-absent": (
        "Inference Request JSON Object",
        "id is optional; the response repeats the id of the request, if any",
    ),
    "infer.requested-output": ("Request Output", "outputs: which output tensors should be returned from the model"),
    "infer.parameters": (
        "Parameters",
        "name/value pairs: strings, numbers or booleans; servers can support some of them",
    ),
    "infer.version": ("HTTP/REST", "POST v2/models/${MODEL_NAME}/versions/${MODEL_VERSION}/infer"),
    "error.unknown-model": ("Inference Response JSON Error Object", "a failed request has an error status and `error`"),
    "error.unknown-version": ("Inference", "the URL selects the model version"),
    "error.missing-input": ("Model Metadata", "inputs: the inputs required by the model"),
    "error.unknown-input": ("Model Metadata", "inputs: the inputs required by the model"),
    "error.unknown-output": ("Request Output", "name: the name of the output tensor"),
    "error.other-datatype": ("Model Metadata", "datatype: the data-type of the tensor elements"),
}
"""The section and the rule of each check in `v2`."""
add_checks(SUITE, RULES)


@check("infer.nested-data", "Tensor Data", "elements can be nested arrays, or one flat array")
def nested(server: V2RestServer) -> None:
    reply = server.post(
        f"{server.path}/infer", {"id": "1", "inputs": [{**_head(each), "data": each.nested} for each in server.tensors]}
    )
    same_outputs(server.plain, server.answered(reply), "the request with nested data")


@check("infer.optional-members", "Inference Response JSON Object", "model_version and parameters are optional")
def optional_members(server: V2RestServer) -> None:
    nulls = [key for key, value in server.plain.raw.items() if value is None]
    nulls += [f"outputs: {key}" for each in _outputs(server.plain.raw) for key, value in each.items() if value is None]
    if nulls:
        deviate(f"null instead of an omitted member: {', '.join(sorted(set(nulls)))}")


@check("infer.content-type", "Inference Request Examples", "Content-Type: application/json")
def content_type(server: V2RestServer) -> None:
    reply = server.ask(V2Inference())
    _succeeded(reply)
    found = reply.headers.get("content-type", "")
    if found.partition(";")[0].strip() != "application/json":
        deviate(f"a JSON response has the Content-Type {found!r}")


@check("binary.input", "Extension binary_tensor_data", "binary_data_size: the input's bytes follow the JSON")
def binary_input(server: V2RestServer) -> None:
    server.needs_binary()
    reply = server.binary(server.tensors)
    found, expected = _binary_outputs(reply), {each["name"]: _values(each) for each in _outputs(server.plain.raw)}
    for name, (datatype, values) in found.items():
        if name in expected:
            require(same(datatype, values, expected[name]), f"output {name!r} differs from the output for JSON inputs")


@check("binary.output", "Extension binary_tensor_data", "binary_data: true requests an output as bytes after the JSON")
def binary_output(server: V2RestServer) -> None:
    server.needs_binary()
    wanted = [{"name": each["name"], "parameters": {"binary_data": True}} for each in _outputs(server.plain.raw)]
    body = {"id": "1", "inputs": [_json(each) for each in server.tensors], "outputs": wanted}
    reply = server.post(f"{server.path}/infer", body)
    require(reply.status == 200, f"status {reply.status}; expected 200")
    require(LENGTH in reply.headers, "the reply has no Inference-Header-Content-Length")
    found = _binary_outputs(reply)
    for each in _outputs(server.plain.raw):
        require(each["name"] in found, f"output {each['name']!r} is missing")
        datatype, values = found[each["name"]]
        require(same(datatype, values, _values(each)), f"output {each['name']!r} differs from the same output in JSON")


@check("binary.mixed", "Extension binary_tensor_data", "binary and JSON tensors may be mixed in a request")
def binary_mixed(server: V2RestServer) -> None:
    server.needs_binary()
    if len(server.tensors) < 2:
        not_applicable("the model has one input")
    first, *others = server.tensors
    inputs = [{**_head(first), "parameters": {"binary_data_size": len(first.raw)}}, *map(_json, others)]
    head = json.dumps({"id": "1", "inputs": inputs, "parameters": {"binary_data_output": False}}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    reply = server.request("POST", f"{server.path}/infer", head + first.raw, headers)
    same_outputs(server.plain, server.answered(reply), "the request with both forms")


@check("binary.size", "Extension binary_tensor_data", "binary_data_size is the size of the tensor's data in bytes")
def binary_size(server: V2RestServer) -> None:
    server.needs_binary()
    first, *others = server.tensors
    short = Sample(first.name, first.datatype, (*first.shape, 7), first.values)
    server.refused(server.binary([short, *others]), "fewer bytes than the shape needs")


@check(
    "binary.header-length", "Extension binary_tensor_data", "Inference-Header-Content-Length: the length of the JSON"
)
def binary_header(server: V2RestServer) -> None:
    server.needs_binary()
    body = json.dumps({"id": "1", "inputs": [_json(each) for each in server.tensors]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(body) + 100)}
    server.refused(
        server.request("POST", f"{server.path}/infer", body, headers), "a header length beyond the body's size"
    )


@check("error.malformed-json", "Inference Request JSON Object", "the request object is JSON")
def malformed(server: V2RestServer) -> None:
    server.refused(server.post(f"{server.path}/infer", b'{"inputs": ['), "malformed JSON")


@check("error.empty-body", "Inference Request JSON Object", "the request object is required in the HTTP body")
def empty(server: V2RestServer) -> None:
    server.refused(server.post(f"{server.path}/infer", b""), "an empty body")


@check("error.no-inputs", "Inference Request JSON Object", "inputs are required")
def no_inputs(server: V2RestServer) -> None:
    server.refused(server.post(f"{server.path}/infer", {"id": "1"}), "no `inputs`")


@check("error.unknown-datatype", "Tensor Data Types", "a datatype is one of the datatypes in the table")
def unknown_datatype(server: V2RestServer) -> None:
    changed = [Sample(each.name, "FP33", each.shape, each.values) for each in server.tensors]
    server.refused(server.ask(V2Inference(changed)), "the datatype FP33")


@check("error.shape", "Tensor Data", "the data has as many elements as the shape")
def wrong_shape(server: V2RestServer) -> None:
    changed = [
        Sample(each.name, each.datatype, each.shape, [*each.values, each.values[0]])
        for each in server.tensors
        if each.values
    ]
    if not changed:
        not_applicable("the inputs are empty")
    server.refused(server.ask(V2Inference(changed)), "one element more than the shape requires")


@check("error.negative-shape", "Request Input", "each dimension must be representable as an unsigned 64-bit integer")
def negative_shape(server: V2RestServer) -> None:
    changed = [Sample(each.name, each.datatype, (-1, *each.shape[1:]), each.values) for each in server.tensors]
    server.refused(server.ask(V2Inference(changed)), "a dimension of -1 in a request", lenient=True)


@check("limit.long-name", "HTTP/REST", "the URL contains the model name; the server stays available after a long name")
def long_name(server: V2RestServer) -> None:
    reply = server.get(f"/v2/models/{'n' * 4000}")
    require(400 <= reply.status < 500, f"a name of 4,000 characters: status {reply.status}; expected 4xx")
    if not isinstance(reply.document, dict) or not isinstance(reply.document.get("error"), str):
        deviate(f"a name of 4,000 characters: status {reply.status} without a JSON object with `error`")


@check("http.keep-alive", "HTTP/REST", "HTTP/1.1 keeps a connection open until client or server closes it")
def keep_alive(server: V2RestServer) -> None:
    server.check_keeps_open("GET", "/v2/health/live")


@check("http.keep-alive-after-error", "HTTP/REST", "HTTP/1.1 keeps a connection open until client or server closes it")
def keep_alive_after_error(server: V2RestServer) -> None:
    first, second = server.kept_alive("POST", f"{server.path}/infer", b'{"inputs": [')
    if second is None:
        deviate("the server closes the connection after an error")
    require(second.status == first.status, f"the same wrong request twice: {first.status}, then {second.status}")


@check("http.chunked", "HTTP/REST", "HTTP/1.1 requests may be chunked")
def chunked(server: V2RestServer) -> None:
    body = json.dumps({"id": "1", "inputs": [_json(each) for each in server.tensors]}).encode()
    same_outputs(server.plain, server.answered(server.chunked(f"{server.path}/infer", body)), "the chunked request")


def _is_healthy(reply: HttpReply) -> None:
    require(reply.status == 200, f"status {reply.status}; expected 200")
    if reply.body:
        if not isinstance(reply.document, dict):
            deviate("the body is neither empty nor a JSON object")
        # "should be empty" in one specification, and an object in the Open Inference Protocol
        for key in ("live", "ready"):
            require(reply.document.get(key, True) is True, f"status 200, but `{key}` is {reply.document.get(key)!r}")


def _succeeded(reply: HttpReply, binary: bool = False) -> dict[str, Any]:
    if reply.status != 200:
        document = reply.document
        error = document.get("error", document) if isinstance(document, dict) else "no JSON object"
        fail(f"status {reply.status} for inputs from the metadata: {_shortened(error)}; set other inputs with --input")
    if binary:
        _binary_outputs(reply)
        return {}
    return reply.object


def _outputs(answer: dict[str, Any]) -> list[dict[str, Any]]:
    outputs = answer.get("outputs")
    if not isinstance(outputs, list) or not outputs or not all(isinstance(each, dict) for each in outputs):
        fail(f"`outputs` is {_shortened(outputs)}; expected an array of tensors")
    for each in outputs:
        for key, kind in (("name", str), ("datatype", str), ("shape", list)):
            require(isinstance(each.get(key), kind), f"an output's `{key}` is {_shortened(each.get(key))}")
    return outputs


def _values(output: dict[str, Any]) -> Values:
    name, datatype, data = output["name"], output["datatype"], output.get("data")
    require(isinstance(data, list), f"output {name!r}: `data` is {_shortened(data)}; expected an array")
    values = flat(data)
    count = prod(output["shape"])
    require(
        len(values) == count,
        f"output {name!r} has {len(values)} elements; its shape {output['shape']} requires {count}",
    )
    expected = {"BOOL": bool, "BYTES": str}.get(datatype, float)
    for each in values:
        right = isinstance(each, int | float) and not isinstance(each, bool) if expected is float else True
        right = right and (expected is float or isinstance(each, expected))
        require(right, f"output {name!r} of {datatype} contains {_shortened(each)}")
    return values


def _binary_outputs(reply: HttpReply) -> dict[str, tuple[str, Values]]:
    """Return the datatype and the elements of each output, which can be in the JSON or after it."""
    require(reply.status == 200, f"status {reply.status}; expected 200")
    size = int(reply.headers.get(LENGTH, len(reply.body)))
    document = json.loads(reply.body[:size])
    found, at = {}, size
    for each in _outputs(document):
        length = (each.get("parameters") or {}).get("binary_data_size")
        if length is None:
            found[each["name"]] = (each["datatype"], _values(each))
            continue
        raw, at = reply.body[at : at + length], at + length
        require(len(raw) == length, f"the body ends within output {each['name']!r}")
        values = unpacked(each["datatype"], raw)
        count = prod(each["shape"])
        require(len(values) == count, f"output {each['name']!r} has {len(values)} elements; its shape requires {count}")
        found[each["name"]] = (each["datatype"], values)
    require(at == len(reply.body), f"{len(reply.body) - at} bytes follow the last output")
    return found


def _answer(document: dict[str, Any]) -> V2Answer:
    def read() -> dict[str, V2Output]:
        return {each["name"]: V2Output(each["datatype"], each["shape"], _values(each)) for each in _outputs(document)}

    return V2Answer(document, document.get("id"), "id" in document, document.get("model_version"), read)


def _described(tensor: dict[str, Any]) -> tuple[Any, Any, Any]:
    return tensor.get("name"), tensor.get("datatype"), tensor.get("shape")


def _path(model: str, version: str = "") -> str:
    return f"/v2/models/{quote(model, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")


def _head(tensor: Sample) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}


def _json(tensor: Sample) -> dict[str, Any]:
    return {**_head(tensor), "data": tensor.values}


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}..."
