"""Checks of grps servers over HTTP. Section names are headings of the grps document "Interface" (in Chinese)."""

import json
from typing import Any
from urllib.parse import quote

from gateway.tools.conformance import grps
from gateway.tools.conformance.check import Suite, basis, deviate, fail, not_applicable, require
from gateway.tools.conformance.grps import DTYPE_RULES, DTYPES, FAILURE, FLAT, NAMES, SUCCESS, UNKNOWN
from gateway.tools.conformance.inputs import Sample, nest
from gateway.tools.conformance.transports import HttpReply, HttpServer

ROOT = "/grps/v1"
PREDICT = f"{ROOT}/infer/predict"
FLAGS = {"SUCCESS": SUCCESS, "FAILURE": FAILURE, 1: SUCCESS, 2: FAILURE}


class GrpsRestServer(HttpServer):
    """A server, one of its models, and the inputs to send to it."""

    @basis
    def models(self) -> list[str]:
        return grps.listed(str(_succeeded(self.get(f"{ROOT}/metadata/server"), "server metadata").get("str_data", "")))

    @basis
    def model(self) -> str:
        return self.options.model or grps.first(self.models)

    @basis
    def name(self) -> str:
        """The model's name without its version."""
        reply = self.get(f"{ROOT}/metadata/server")
        told = str(reply.object.get("str_data", "")) if reply.status == 200 else ""
        return grps.bare(self.model, grps.names(told))

    @basis
    def tensors(self) -> list[Sample]:
        if self.options.inputs:
            return grps.tensors(self.options, ())
        reply = self.post(f"{ROOT}/metadata/model", {"str_data": self.name})
        told = grps.described(str(reply.object.get("str_data", ""))) if reply.status == 200 else []
        return grps.tensors(self.options, told)

    @property
    def body(self) -> dict[str, Any]:
        """A request with the inputs."""
        return {"model": self.model, "gtensors": {"tensors": [grps.generic(each) for each in self.tensors]}}

    @basis
    def answer(self) -> dict[str, Any]:
        return _succeeded(self.post(PREDICT, self.body), "a prediction with inputs from the signature")


SUITE = Suite("grps-rest", GrpsRestServer)
check = SUITE.check


@check("health.live", "Health", "GET /grps/v1/health/live: status SUCCESS")
def live(server: GrpsRestServer) -> None:
    _succeeded(server.get(f"{ROOT}/health/live"), "live")


@check("health.ready", "Health", "GET /grps/v1/health/ready: a status, SUCCESS once the server is online")
def ready(server: GrpsRestServer) -> None:
    reply = server.get(f"{ROOT}/health/ready")
    code, flag, _ = _status(reply)
    if flag == FAILURE:
        deviate(f"the server is not ready: code {code}; grps' own servers are not ready until a call of health/online")
    _succeeded(reply, "ready")


@check("status.http", "RESTful", "`status` contains the result; the HTTP status is the same code")
def http_code(server: GrpsRestServer) -> None:
    reply = server.post(PREDICT, {**server.body, "model": UNKNOWN})
    code, _, _ = _status(reply)
    if reply.status != code:
        deviate(f"an unknown model: HTTP {reply.status} with `status.code` {code}")


@check("metadata.server", "Metadata / Server level", "str_data is a YAML description")
def server_metadata(server: GrpsRestServer) -> None:
    require(server.models, "the description contains no `models`")


@check("metadata.model", "Metadata / Model level", "str_data is a YAML description of the requested model")
def model_metadata(server: GrpsRestServer) -> None:
    reply = server.post(f"{ROOT}/metadata/model", {"str_data": server.name})
    found = str(_succeeded(reply, "metadata of a model").get("str_data", ""))
    require("name" in found, f"str_data is {found[:80]!r}; expected YAML with the model's name")


@check(
    "predict.gtensors", "Infer / gtensors", "the reply has status and gtensors: name, dtype, shape and flattened data"
)
def gtensors(server: GrpsRestServer) -> None:
    require(_tensors(server.answer), "the reply has no tensors")


@check("predict.dtype-number", "RESTful", "an enumeration value can be a name or a number: DT_UINT8 or 1")
def dtype_number(server: GrpsRestServer) -> None:
    numbers = {name: at for at, name in enumerate(DTYPES.values(), 1)}
    changed = [{**grps.generic(each), "dtype": numbers[DTYPES[each.datatype]]} for each in server.tensors]
    reply = server.post(PREDICT, {"model": server.model, "gtensors": {"tensors": changed}})
    _same(server.answer, _succeeded(reply, "dtype as a number"), "dtype as a number")


@check("predict.model-query", "Model selection", "the query or the payload selects the model; the payload has priority")
def model_query(server: GrpsRestServer) -> None:
    body = {key: each for key, each in server.body.items() if key != "model"}
    found = _succeeded(server.post(f"{PREDICT}?model={quote(server.model)}", body), "the model in the query")
    _same(server.answer, found, "the model in the query")
    found = _succeeded(server.post(f"{PREDICT}?model={UNKNOWN}", server.body), "a model in the query and the payload")
    _same(server.answer, found, "a model in the query and the payload")


@check("predict.ndarray", "Infer / ndarray", "a nested array represents one DT_FLOAT32 tensor")
def ndarray(server: GrpsRestServer) -> None:
    if [each.datatype for each in server.tensors] != ["FP32"]:
        not_applicable("the model's input is not one FP32 tensor")
    if len(_tensors(server.answer)) != 1:
        not_applicable("the model has several outputs")
    [tensor] = server.tensors
    body = {"model": server.model, "ndarray": nest(tensor.values, tensor.shape)}
    found = _succeeded(server.post(f"{PREDICT}?return-ndarray=true", body), "ndarray")
    require("ndarray" in found, f"with return-ndarray=true the reply has {sorted(found)}; expected `ndarray`")


@check("predict.int64", "RESTful", "protobuf's JSON mapping: 64-bit integers are numbers or strings")
def int64(server: GrpsRestServer) -> None:
    if not any(each.datatype == "INT64" for each in server.tensors):
        not_applicable("the model has no INT64 input")
    texts = [
        {**grps.generic(each), FLAT[each.datatype]: [str(value) for value in each.values]}
        if each.datatype == "INT64"
        else grps.generic(each)
        for each in server.tensors
    ]
    reply = server.post(PREDICT, {"model": server.model, "gtensors": {"tensors": texts}})
    _same(server.answer, _succeeded(reply, "integers as strings"), "integers as strings")


SUITE.check_datatypes(
    "predict.dtype",
    "gtensors",
    DTYPE_RULES,
    lambda server: require(_tensors(server.answer), "the reply has no tensors"),
)


@check("predict.content-type", "RESTful", "application/json, for requests and replies")
def content_type(server: GrpsRestServer) -> None:
    found = server.post(PREDICT, server.body).headers.get("content-type", "")
    if found.partition(";")[0].strip() != "application/json":
        deviate(f"the reply has the Content-Type {found!r}; expected 'application/json'")


@check("predict.content-type-charset", "RESTful", "application/json")
def content_type_charset(server: GrpsRestServer) -> None:
    reply = server.post(PREDICT, server.body, Content_Type="application/json; charset=utf-8")
    if _status(reply)[1] != SUCCESS:
        deviate("'application/json; charset=utf-8' is refused")


@check("predict.streaming", "Streaming / HTTP", "streaming=true: chunked, one GrpsMessage for each response")
def streaming(server: GrpsRestServer) -> None:
    reply = server.post(f"{PREDICT}?streaming=true", server.body)
    messages = _concatenated(reply.body)
    if not messages:
        not_applicable("the model streams no messages")
    failures = [each for each in messages if FLAGS.get(each.get("status", {}).get("status")) != SUCCESS]
    if failures:
        not_applicable(f"the model does not stream: {str(failures[0].get('status'))[:120]}")
    if "chunked" not in reply.headers.get("transfer-encoding", ""):
        deviate("the reply is not chunked")


@check("error.unknown-model", "Model selection", "name and version select the model")
def unknown_model(server: GrpsRestServer) -> None:
    _failed(server.post(PREDICT, {**server.body, "model": UNKNOWN}), "an unknown model", 404, 500)


@check("error.unknown-model-metadata", "Metadata / Model level", "str_data selects the model")
def unknown_metadata(server: GrpsRestServer) -> None:
    reply = server.post(f"{ROOT}/metadata/model", {"str_data": "no-such-model"})
    _failed(reply, "metadata of an unknown model", 404)


@check("error.malformed-json", "RESTful", "GrpsMessage as JSON")
def malformed(server: GrpsRestServer) -> None:
    _failed(server.post(PREDICT, b'{"model": '), "malformed JSON", 400)


@check("error.empty-body", "RESTful", "GrpsMessage as JSON")
def empty(server: GrpsRestServer) -> None:
    _failed(server.post(PREDICT, b""), "an empty body", 400)


@check("error.no-data", "Unified payload", "a request sets one member of data_oneof")
def no_data(server: GrpsRestServer) -> None:
    _failed(server.post(PREDICT, {"model": server.model}), "no data", 400, lenient=True)


@check("error.content-type", "RESTful", "application/json or application/octet-stream; a server can refuse others")
def wrong_content_type(server: GrpsRestServer) -> None:
    reply = server.post(PREDICT, json.dumps(server.body).encode(), Content_Type="text/plain")
    if reply.status == 200 and _status(reply)[1] == SUCCESS:
        _same(server.answer, reply.object, "the request as text/plain")
        return
    _failed(reply, "the Content-Type text/plain", 400, 415)


@check("error.shape", "gtensors", "the flattened data has as many elements as the shape")
def wrong_shape(server: GrpsRestServer) -> None:
    changed = [{**grps.generic(each), "shape": [*each.shape, 7]} for each in server.tensors]
    reply = server.post(PREDICT, {"model": server.model, "gtensors": {"tensors": changed}})
    _failed(reply, "fewer elements than the shape requires", 400, lenient=True)


@check("error.dtype", "gtensors", "dtype selects the list that contains the data")
def wrong_dtype(server: GrpsRestServer) -> None:
    changed = [{**grps.generic(each), "dtype": "DT_NONE"} for each in server.tensors]
    reply = server.post(PREDICT, {"model": server.model, "gtensors": {"tensors": changed}})
    _failed(reply, "the dtype DT_NONE", 400, lenient=True)


@check("limit.long-name", "Model selection", "model is a string; the server stays available after a long name")
def long_name(server: GrpsRestServer) -> None:
    _failed(server.post(PREDICT, {**server.body, "model": "n" * 10_000}), "a name of 10,000 characters", 404, 500)


@check("http.keep-alive", "RESTful", "HTTP/1.1 keeps a connection open until client or server closes it")
def keep_alive(server: GrpsRestServer) -> None:
    server.check_keeps_open("GET", f"{ROOT}/health/live")


@check("http.chunked", "RESTful", "HTTP/1.1 requests may be chunked")
def chunked(server: GrpsRestServer) -> None:
    reply = server.chunked(PREDICT, json.dumps(server.body).encode())
    _same(server.answer, _succeeded(reply, "a chunked request"), "the chunked request")


def _status(reply: HttpReply) -> tuple[int, int, str]:
    """Return the code, the flag and the message in the reply's `status`."""
    status = reply.object.get("status")
    if not isinstance(status, dict):
        fail(f"HTTP {reply.status}: `status` is missing in {sorted(reply.object)}")
    flag = FLAGS.get(status.get("status", 0), 0)
    return int(status.get("code", 0)), flag, str(status.get("msg", ""))


def _succeeded(reply: HttpReply, what: str) -> dict[str, Any]:
    grps.judge_status(*_status(reply), what)
    require(reply.status == 200, f"{what}: HTTP {reply.status} with SUCCESS; expected 200")
    return reply.object


def _failed(reply: HttpReply, what: str, *codes: int, lenient: bool = False) -> None:
    if not isinstance(reply.document, dict):
        fail(f"{what}: HTTP {reply.status} without a JSON object; expected `status` FAILURE")
    grps.judge_failure(*_status(reply), what, codes, lenient)


def _tensors(answer: dict[str, Any]) -> list[tuple[str, str, list[Any]]]:
    found = []
    for each in answer.get("gtensors", {}).get("tensors", []):
        dtype = each.get("dtype")
        dtype = list(DTYPES.values())[dtype - 1] if isinstance(dtype, int) else dtype
        require(dtype in NAMES, f"a tensor has the dtype {dtype!r}")
        values = each.get(FLAT[NAMES[dtype]], [])
        count = 1
        for size in each.get("shape", []):
            count *= size
        name = each.get("name", "")
        require(
            len(values) == count,
            f"tensor {name!r} has {len(values)} elements; its shape {each.get('shape')} requires {count}",
        )
        found.append((name, dtype, values))
    return found


def _same(expected: dict[str, Any], found: dict[str, Any], what: str) -> None:
    ours, theirs = _tensors(expected), _tensors(found)
    equal = len(ours) == len(theirs) and all(
        a[:2] == b[:2] and grps.equal(a[2], b[2]) for a, b in zip(ours, theirs, strict=True)
    )
    require(equal, f"{what}: the reply differs from the plain request's")


def _concatenated(body: bytes) -> list[dict[str, Any]]:
    """Return the concatenated JSON objects in a body."""
    decoder, text, at, found = json.JSONDecoder(), body.decode(), 0, []
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        document, at = decoder.raw_decode(text, at)
        found.append(document)
    return found
