"""Checks of V2 servers over HTTP (Predict Protocol Version 2; Open Inference Protocol). Sections are its headings."""

import json
from math import prod
from typing import Any
from urllib.parse import quote

from gateway.tools.conformance.check import Suite, basis, deviate, fail, not_applicable, not_tested, require
from gateway.tools.conformance.http import HttpReply, HttpServer
from gateway.tools.conformance.inputs import DATATYPES, InputSpec, Sample, Values, flat, same, unpacked
from gateway.tools.conformance.v2 import UNKNOWN, UNKNOWN_VERSION, samples

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
        """The model of --model, else the first model that the server lists as ready: V2 itself cannot list models."""
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
            not_tested("the server lists no models; name one with --model")
        return models[0]

    @property
    def path(self) -> str:
        return f"/v2/models/{quote(self.model, safe='')}"

    @basis
    def metadata(self) -> dict[str, Any]:
        reply = self.get(self.path)
        require(reply.status == 200, f"GET {self.path}: status {reply.status}; expected 200")
        return reply.object

    @basis
    def tensors(self) -> list[Sample]:
        return samples(self.options, lambda: _specs(self.metadata.get("inputs")))

    @basis
    def answer(self) -> dict[str, Any]:
        """The reply to the plain request, which is compared with other encodings of the request."""
        return self.infer()

    def infer(self, **more: Any) -> dict[str, Any]:
        """Return the response to the inputs in JSON, which must succeed."""
        if any(each.datatype == "FP16" for each in self.tensors):
            not_tested("an input is FP16, which is problematic to communicate in JSON, as the specification says")
        reply = self.post(f"{self.path}/infer", {"id": "1", "inputs": [_json(each) for each in self.tensors], **more})
        return _succeeded(reply)

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
        deviate("`versions` is null; an optional member is left out where there is none")
    require(
        isinstance(versions, list) and all(isinstance(each, str) for each in versions),
        f"`versions` is {versions!r}; expected an array of strings",
    )
    platform = metadata.get("platform")
    require(isinstance(platform, str), f"`platform` is {platform!r}; expected a string")
    for key in ("inputs", "outputs"):
        require(isinstance(metadata.get(key), list), f"`{key}` is {metadata.get(key)!r}; expected an array")


@check("metadata.tensors", "Model Metadata", "each tensor has name, datatype and shape; variable dimensions are -1")
def tensor_metadata(server: V2RestServer) -> None:
    described = [*(server.metadata.get("inputs") or []), *(server.metadata.get("outputs") or [])]
    if not described:
        not_tested("the metadata names no tensors")
    for each in described:
        require(isinstance(each.get("name"), str), f"a tensor has the name {each.get('name')!r}")
        datatype, shape = each.get("datatype"), each.get("shape")
        require(datatype in (*DATATYPES, "BF16"), f"tensor {each['name']!r}: datatype {datatype!r} is not one of V2")
        sizes = shape if isinstance(shape, list) else [None]
        if not all(isinstance(size, int) and size >= -1 for size in sizes):
            fail(f"tensor {each['name']!r}: shape {shape!r}; expected an array of whole numbers, -1 or greater")


@check("metadata.versions", "Model Metadata", "versions are those that may be explicitly requested")
def versions(server: V2RestServer) -> None:
    listed = server.metadata.get("versions")
    if not listed:
        not_applicable("the metadata lists no versions")
    for each in listed[:3]:
        path = f"{server.path}/versions/{quote(each, safe='')}"
        status = server.get(path).status
        require(status == 200, f"GET {path}: status {status}; the metadata lists this version")


@check("infer.json", "Inference Response JSON Object", "model_name, and outputs with name, shape, datatype and data")
def infer_json(server: V2RestServer) -> None:
    answer = server.answer
    require(
        answer.get("model_name") == server.model,
        f"`model_name` is {answer.get('model_name')!r}; expected {server.model!r}",
    )
    for each in _outputs(answer):
        _values(each)


@check("infer.outputs-described", "Model Metadata", "outputs: the outputs produced by the model")
def outputs_described(server: V2RestServer) -> None:
    specs = {each["name"]: each for each in server.metadata.get("outputs") or []}
    if not specs:
        not_tested("the metadata names no outputs")
    outputs = {each["name"]: each for each in _outputs(server.answer)}
    require(outputs.keys() == specs.keys(), f"the outputs are {sorted(outputs)}; the metadata has {sorted(specs)}")
    for name, each in outputs.items():
        said = specs[name]
        _same_datatype(name, each["datatype"], said["datatype"])
        if not _fits(each["shape"], said["shape"]):
            fail(f"output {name!r} has the shape {each['shape']}; the metadata says {said['shape']}")


@check("infer.nested-data", "Tensor Data", "elements may be presented multi-dimensional, or flattened")
def nested(server: V2RestServer) -> None:
    reply = server.post(
        f"{server.path}/infer", {"id": "1", "inputs": [{**_head(each), "data": each.nested} for each in server.tensors]}
    )
    _same_outputs(server.answer, _succeeded(reply), "the request with nested data")


@check("infer.id", "Inference Response JSON Object", "id: the identifier given in the request")
def id_comes_back(server: V2RestServer) -> None:
    found = server.infer(id="conformance-42").get("id")
    require(found == "conformance-42", f"`id` is {found!r}; the request had 'conformance-42'")


@check("infer.id-text", "Inference Request JSON Object", "id is a string, of any characters")
def id_of_any_characters(server: V2RestServer) -> None:
    found = server.infer(id="é \u4e2d/%00").get("id")
    require(found == "é \u4e2d/%00", f"`id` is {found!r}; the request had 'é \u4e2d/%00'")


@check(
    "infer.id-absent", "Inference Request JSON Object", "id is optional; the response has that of the request, if any"
)
def no_id(server: V2RestServer) -> None:
    reply = server.post(f"{server.path}/infer", {"inputs": [_json(each) for each in server.tensors]})
    if "id" in _succeeded(reply):
        deviate("there is an `id`, though the request had none")


@check("infer.optional-members", "Inference Response JSON Object", "model_version and parameters are optional")
def optional_members(server: V2RestServer) -> None:
    nulls = [key for key, value in server.answer.items() if value is None]
    nulls += [f"outputs: {key}" for each in _outputs(server.answer) for key, value in each.items() if value is None]
    if nulls:
        deviate(f"null where an optional member is left out: {', '.join(sorted(set(nulls)))}")


@check("infer.requested-output", "Request Output", "outputs: which output tensors should be returned from the model")
def requested_output(server: V2RestServer) -> None:
    wanted = _outputs(server.answer)[-1]["name"]
    found = [each["name"] for each in _outputs(server.infer(outputs=[{"name": wanted}]))]
    require(wanted in found, f"output {wanted!r} was asked for; the response has {found}")
    if found != [wanted]:
        deviate(f"output {wanted!r} was asked for; the response has {found}")


@check(
    "infer.parameters", "Parameters", "name/value pairs: strings, numbers or booleans; servers may know some of them"
)
def parameters(server: V2RestServer) -> None:
    body = {
        "id": "1",
        "inputs": [_json(each) for each in server.tensors],
        "parameters": {"note": "x", "level": 1, "on": True},
    }
    reply = server.post(f"{server.path}/infer", body)
    if reply.status != 200:
        _is_error(reply, "parameters that the server does not know")
        return
    _same_outputs(server.answer, reply.object, "the request with parameters")


@check("infer.version", "HTTP/REST", "POST v2/models/${MODEL_NAME}/versions/${MODEL_VERSION}/infer")
def version(server: V2RestServer) -> None:
    listed = server.metadata.get("versions")
    if not listed:
        not_applicable("the metadata lists no versions")
    body = {"id": "1", "inputs": [_json(each) for each in server.tensors]}
    answer = _succeeded(server.post(f"{server.path}/versions/{quote(listed[-1], safe='')}/infer", body))
    found = answer.get("model_version")
    require(found in (None, listed[-1]), f"`model_version` is {found!r}; version {listed[-1]!r} was asked for")


@check("infer.content-type", "Inference Request Examples", "Content-Type: application/json")
def content_type(server: V2RestServer) -> None:
    reply = server.post(f"{server.path}/infer", {"id": "1", "inputs": [_json(each) for each in server.tensors]})
    _succeeded(reply)
    found = reply.headers.get("content-type", "")
    if found.partition(";")[0].strip() != "application/json":
        deviate(f"a response of JSON has the Content-Type {found!r}")


def _check_datatype(datatype: str) -> None:
    @check(f"infer.datatype.{datatype}", "Tensor Data Types", f"{datatype} is a datatype of tensors")
    def _(server: V2RestServer) -> None:
        if not any(each.datatype == datatype for each in server.tensors):
            not_applicable(f"the model has no input of {datatype}")
        if datatype == "FP16":
            server.needs_binary()  # "fp16 is problematic to communicate explicitly"
            _succeeded(server.binary(server.tensors, parameters={"binary_data_output": True}), binary=True)
        else:
            _outputs(server.answer)


for _datatype in DATATYPES:
    _check_datatype(_datatype)


@check("binary.input", "Extension binary_tensor_data", "binary_data_size: the input's bytes follow the JSON")
def binary_input(server: V2RestServer) -> None:
    server.needs_binary()
    reply = server.binary(server.tensors)
    found, expected = _binary_outputs(reply), {each["name"]: _values(each) for each in _outputs(server.answer)}
    for name, (datatype, values) in found.items():
        if name in expected:
            require(same(datatype, values, expected[name]), f"output {name!r} differs from that of JSON inputs")


@check("binary.output", "Extension binary_tensor_data", "binary_data: true asks for an output as bytes after the JSON")
def binary_output(server: V2RestServer) -> None:
    server.needs_binary()
    wanted = [{"name": each["name"], "parameters": {"binary_data": True}} for each in _outputs(server.answer)]
    body = {"id": "1", "inputs": [_json(each) for each in server.tensors], "outputs": wanted}
    reply = server.post(f"{server.path}/infer", body)
    require(reply.status == 200, f"status {reply.status}; expected 200")
    require(LENGTH in reply.headers, "there is no Inference-Header-Content-Length in the reply")
    found = _binary_outputs(reply)
    for each in _outputs(server.answer):
        require(each["name"] in found, f"there is no output {each['name']!r}")
        datatype, values = found[each["name"]]
        require(same(datatype, values, _values(each)), f"output {each['name']!r} differs from the same in JSON")


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
    _same_outputs(server.answer, _succeeded(reply), "the request of both forms")


@check("binary.size", "Extension binary_tensor_data", "binary_data_size is the size of the tensor's data in bytes")
def binary_size(server: V2RestServer) -> None:
    server.needs_binary()
    first, *others = server.tensors
    short = Sample(first.name, first.datatype, (*first.shape, 7), first.values)
    _is_error(server.binary([short, *others]), "fewer bytes than the shape needs")


@check(
    "binary.header-length", "Extension binary_tensor_data", "Inference-Header-Content-Length: the length of the JSON"
)
def binary_header(server: V2RestServer) -> None:
    server.needs_binary()
    body = json.dumps({"id": "1", "inputs": [_json(each) for each in server.tensors]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(body) + 100)}
    _is_error(server.request("POST", f"{server.path}/infer", body, headers), "a header length beyond the body")


@check(
    "error.unknown-model", "Inference Response JSON Error Object", "a failed request has an error status and `error`"
)
def unknown_model(server: V2RestServer) -> None:
    _is_error(server.get(f"/v2/models/{UNKNOWN}"), "metadata of an unknown model")
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    _is_error(server.post(f"/v2/models/{UNKNOWN}/infer", body), "inference with an unknown model")


@check("error.unknown-version", "Inference", "the model version in the URL is the one to use")
def unknown_version(server: V2RestServer) -> None:
    body = {"id": "1", "inputs": [_json(each) for each in server.tensors]}
    _is_error(server.post(f"{server.path}/versions/{UNKNOWN_VERSION}/infer", body), "a version that does not exist")


@check("error.malformed-json", "Inference Request JSON Object", "the request object is JSON")
def malformed(server: V2RestServer) -> None:
    _is_error(server.post(f"{server.path}/infer", b'{"inputs": ['), "malformed JSON")


@check("error.empty-body", "Inference Request JSON Object", "the request object is required in the HTTP body")
def empty(server: V2RestServer) -> None:
    _is_error(server.post(f"{server.path}/infer", b""), "an empty body")


@check("error.no-inputs", "Inference Request JSON Object", "inputs are required")
def no_inputs(server: V2RestServer) -> None:
    _is_error(server.post(f"{server.path}/infer", {"id": "1"}), "no `inputs`")


@check("error.missing-input", "Model Metadata", "inputs: the inputs required by the model")
def missing_input(server: V2RestServer) -> None:
    if len(server.tensors) < 2:
        not_applicable("the model has one input")
    reply = server.post(f"{server.path}/infer", {"id": "1", "inputs": [_json(each) for each in server.tensors[1:]]})
    _is_error(reply, f"no input {server.tensors[0].name!r}")


@check("error.unknown-input", "Model Metadata", "inputs: the inputs required by the model")
def unknown_input(server: V2RestServer) -> None:
    renamed = [{**_json(each), "name": f"no_such_{each.name}"} for each in server.tensors]
    _is_error(
        server.post(f"{server.path}/infer", {"id": "1", "inputs": renamed}), "inputs of unknown names", lenient=True
    )


@check("error.unknown-output", "Request Output", "name: the name of the output tensor")
def unknown_output(server: V2RestServer) -> None:
    body = {"id": "1", "inputs": [_json(each) for each in server.tensors], "outputs": [{"name": "no_such_output"}]}
    _is_error(server.post(f"{server.path}/infer", body), "an output of an unknown name", lenient=True)


@check("error.unknown-datatype", "Tensor Data Types", "datatypes are those of the table")
def unknown_datatype(server: V2RestServer) -> None:
    changed = [{**_json(each), "datatype": "FP33"} for each in server.tensors]
    _is_error(server.post(f"{server.path}/infer", {"id": "1", "inputs": changed}), "the datatype FP33")


@check("error.other-datatype", "Model Metadata", "datatype: the data-type of the tensor elements")
def other_datatype(server: V2RestServer) -> None:
    first, *others = server.tensors
    changed = Sample(first.name, "BOOL", first.shape, [True] * len(first.values))
    if first.datatype == "BOOL":
        changed = Sample(first.name, "FP32", first.shape, [0.5] * len(first.values))
    reply = server.post(f"{server.path}/infer", {"id": "1", "inputs": [_json(each) for each in (changed, *others)]})
    _is_error(reply, f"{changed.datatype} for {first.datatype}", lenient=True)


@check("error.shape", "Tensor Data", "the data has as many elements as the shape")
def wrong_shape(server: V2RestServer) -> None:
    changed = [{**_json(each), "data": [*each.values, each.values[0]]} for each in server.tensors if each.values]
    if not changed:
        not_applicable("the inputs are empty")
    _is_error(
        server.post(f"{server.path}/infer", {"id": "1", "inputs": changed}), "one element more than the shape has"
    )


@check("error.negative-shape", "Request Input", "each dimension must be representable as an unsigned 64-bit integer")
def negative_shape(server: V2RestServer) -> None:
    changed = [{**_json(each), "shape": [-1, *each.shape[1:]]} for each in server.tensors]
    _is_error(
        server.post(f"{server.path}/infer", {"id": "1", "inputs": changed}),
        "a dimension of -1 in a request",
        lenient=True,
    )


@check("limit.long-name", "HTTP/REST", "the model name is part of the URL; the server stays available after a long one")
def long_name(server: V2RestServer) -> None:
    reply = server.get(f"/v2/models/{'n' * 4000}")
    require(400 <= reply.status < 500, f"a name of 4,000 characters: status {reply.status}; expected 4xx")
    if not isinstance(reply.document, dict) or not isinstance(reply.document.get("error"), str):
        deviate(f"a name of 4,000 characters: status {reply.status} without a JSON object with `error`")


@check("http.keep-alive", "HTTP/REST", "HTTP/1.1 keeps a connection unless a side closes it")
def keep_alive(server: V2RestServer) -> None:
    first, second = server.kept_alive("GET", "/v2/health/live")
    if second is None:
        deviate("the server closes the connection after each reply")
    require((first.status, second.status) == (200, 200), f"the second request on a connection: {second.status}")


@check("http.keep-alive-after-error", "HTTP/REST", "HTTP/1.1 keeps a connection unless a side closes it")
def keep_alive_after_error(server: V2RestServer) -> None:
    first, second = server.kept_alive("POST", f"{server.path}/infer", b'{"inputs": [')
    if second is None:
        deviate("the server closes the connection after an error")
    require(second.status == first.status, f"the same wrong request twice: {first.status}, then {second.status}")


@check("http.chunked", "HTTP/REST", "HTTP/1.1 requests may be chunked")
def chunked(server: V2RestServer) -> None:
    body = json.dumps({"id": "1", "inputs": [_json(each) for each in server.tensors]}).encode()
    _same_outputs(server.answer, _succeeded(server.chunked(f"{server.path}/infer", body)), "the chunked request")


def _is_healthy(reply: HttpReply) -> None:
    require(reply.status == 200, f"status {reply.status}; expected 200")
    if reply.body:
        if not isinstance(reply.document, dict):
            deviate("the body is not empty, and no JSON object either")
        # "should be empty" in one text, and an object in the Open Inference Protocol
        for key in ("live", "ready"):
            require(reply.document.get(key, True) is True, f"status 200, but `{key}` is {reply.document.get(key)!r}")


def _is_error(reply: HttpReply, what: str, lenient: bool = False) -> None:
    """Check that the reply is an error in the specification's format. `lenient`: servers can accept this request."""
    if reply.status == 200:
        (deviate if lenient else fail)(f"{what}: accepted with status 200")
    require(400 <= reply.status < 600, f"{what}: status {reply.status}; expected 4xx")
    document = reply.document
    if not isinstance(document, dict) or not isinstance(document.get("error"), str):
        found = sorted(document) if isinstance(document, dict) else "no JSON object"
        fail(f"{what}: status {reply.status} with {found}; expected an object with the string `error`")
    if reply.status >= 500:
        deviate(f"{what}: status {reply.status}; a fault of the client is 4xx")


def _succeeded(reply: HttpReply, binary: bool = False) -> dict[str, Any]:
    if reply.status != 200:
        document = reply.document
        error = document.get("error", document) if isinstance(document, dict) else "no JSON object"
        fail(f"status {reply.status} for inputs by the metadata: {_shortened(error)}; other inputs: --input")
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
        len(values) == count, f"output {name!r} has {len(values)} elements; its shape {output['shape']} has {count}"
    )
    expected = {"BOOL": bool, "BYTES": str}.get(datatype, float)
    for each in values:
        right = isinstance(each, int | float) and not isinstance(each, bool) if expected is float else True
        right = right and (expected is float or isinstance(each, expected))
        require(right, f"output {name!r} of {datatype} holds {_shortened(each)}")
    return values


def _binary_outputs(reply: HttpReply) -> dict[str, tuple[str, Values]]:
    """Return datatype and elements of each output, whether they came in JSON or after it."""
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
        require(len(values) == count, f"output {each['name']!r} has {len(values)} elements, its shape {count}")
        found[each["name"]] = (each["datatype"], values)
    require(at == len(reply.body), f"{len(reply.body) - at} bytes follow the last output")
    return found


def _same_outputs(expected: dict[str, Any], found: dict[str, Any], what: str) -> None:
    ours, theirs = ({each["name"]: each for each in _outputs(answer)} for answer in (expected, found))
    require(ours.keys() == theirs.keys(), f"{what} has the outputs {sorted(theirs)}; the plain one {sorted(ours)}")
    for name, each in ours.items():
        equal = same(each["datatype"], _values(each), _values(theirs[name]))
        require(equal and each["shape"] == theirs[name]["shape"], f"{what} gives another {name!r} than the plain one")


def _same_datatype(name: str, found: str, said: str) -> None:
    require(found == said, f"output {name!r} has the datatype {found}; the metadata says {said}")


def _fits(shape: list[int], said: list[int]) -> bool:
    return len(shape) == len(said) and all(each in (-1, size) for size, each in zip(shape, said, strict=True))


def _specs(described: Any) -> list[InputSpec]:
    tensors = described if isinstance(described, list) else []
    return [InputSpec(each["name"], each["datatype"], tuple(each["shape"])) for each in tensors]


def _head(tensor: Sample) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}


def _json(tensor: Sample) -> dict[str, Any]:
    return {**_head(tensor), "data": tensor.values}


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}..."
