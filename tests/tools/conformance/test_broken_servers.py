"""Each group of checks finds a server that breaks its rule, and says how."""

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from gateway.tools.conformance import suite
from gateway.tools.conformance.check import Options, Outcome, Transcript, Verdict, run
from gateway.tools.conformance.flatbuffer import infer_request
from gateway.tools.conformance.grps_rpc import grps_message
from gateway.tools.conformance.inputs import parse_input
from gateway.tools.conformance.transports import GRPS, TENSORFLOW, V2, message
from tests.running_gateway import reference
from tests.tools.conformance.broken import (
    Change,
    ChangeBytes,
    ChangeMessage,
    RpcFailure,
    errors,
    lenient,
    mapped,
    members,
    over_grpc,
    over_http,
    over_tcp,
)

FAIL, DEVIATES = Verdict.FAIL, Verdict.DEVIATES
NO_REPLY = "no reply within the timeout"


def outcome(address: str, check: str, *inputs: str, model: str = "", seconds: float = 30) -> Outcome:
    """Of one check, which waits so long for each reply."""
    protocol, options = check.partition(".")[0], Options(model, tuple(map(parse_input, inputs)), timeout=seconds)
    chosen = [each for each in suite(protocol).checks if each.id == check]
    [found] = run(suite(protocol), address, options, chosen, Transcript())
    return found


def cases(table: Mapping[str, Iterable[tuple[str, Any, Verdict, str]]]) -> pytest.MarkDecorator:
    """The checks of each protocol as they are called, with a change, a verdict and a part of its reason."""
    rows = [
        pytest.param(f"{protocol}.{check}", *of_check, id=f"{protocol}.{check}")
        for protocol, checks in table.items()
        for check, *of_check in checks
    ]
    return pytest.mark.parametrize(("check", "change", "verdict", "text"), rows)


def scaled(document: Any) -> Any:
    return {"output": [2 * each for each in document["output"]]}


def outputs(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A V2 response with other outputs."""
    return lambda document: {**document, "outputs": [{**each, **change(each)} for each in document["outputs"]]}


def cut_off(path: str, sent: bytes, status: int, body: bytes) -> tuple[int, bytes]:
    """Binary tensors that lack their last byte."""
    return status, body[:-1] if path.endswith("/infer") and b"binary_data_size" in body else body


HTML = b"<h1>Error</h1>"
OVER_HTTP: dict[str, list[tuple[str, Change, Verdict, str]]] = {
    "umbridge": [
        ("info.version", lambda *reply: (404, b"{}"), FAIL, "GET /Info: status 404"),
        ("info.version", members("/Info", protocolVersion=0.9), FAIL, "`protocolVersion` is 0.9"),
        ("info.version", members("/Info", protocolVersion="1.0"), DEVIATES, "is a string"),
        ("info.models", members("/Info", models=[1]), FAIL, "not an array of strings"),
        ("info.members", members("/Info", more=1), DEVIATES, "additional members: more"),
        ("model-info.support", members("/ModelInfo", support={"Evaluate": "yes"}), FAIL, "not a boolean: Evaluate"),
        ("input-sizes", members("/InputSizes", inputSizes=["2"]), FAIL, "expected an array of whole numbers"),
        ("output-sizes", members("/OutputSizes", outputSizes=[1.0]), DEVIATES, "with a fraction part"),
        ("evaluate", members("/Evaluate", output=[[1.0, 2.0]]), FAIL, "has the sizes [2]; /OutputSizes reports [1]"),
        ("evaluate", lambda *reply: (200, b'{"output": [[nan]]}') if "Ev" in reply[0] else reply[2:], FAIL, "not JSON"),
        ("gradient.finite-differences", mapped("/Gradient", scaled), FAIL, "finite differences give"),
        ("jacobian.finite-differences", mapped("/ApplyJacobian", scaled), FAIL, "finite differences give"),
        ("jacobian.gradient", mapped("/ApplyJacobian", scaled), FAIL, "(J^T sens) * vec give"),
        ("hessian", mapped("/ApplyHessian", scaled), FAIL, "differences of gradients give"),
        ("hessian", members("/ApplyHessian", output=[1.0]), FAIL, "has 1 numbers; expected 2"),
        ("error.model-not-found", lenient(b"{}"), FAIL, "status 200; expected 400 and an error of type ModelNotFound"),
        ("error.input-size", errors(500, HTML), FAIL, "status 500 without a JSON object"),
        ("error.input-count", errors(400, b'{"error": "no"}'), FAIL, "an object with `type` and `message`"),
        ("error.malformed-json", errors(400, b'{"error": {"type": "X", "message": ""}}'), DEVIATES, "error of type X"),
        ("limit.long-name", errors(500, HTML), FAIL, "a name of 10,000 characters"),
    ],
    "v2-rest": [
        ("health.live", lambda *reply: (503, b""), FAIL, "status 503; expected 200"),
        ("health.unknown-model", lenient(b""), FAIL, "an unknown model is ready"),
        ("metadata.server", members("/v2", extensions="none"), FAIL, "`extensions` is 'none'"),
        ("metadata.model", members("/double", versions=None), DEVIATES, "`versions` is null"),
        (
            "metadata.tensors",
            mapped("/double", lambda d: {**d, "inputs": [{**d["inputs"][0], "datatype": "float"}]}),
            FAIL,
            "datatype 'float' is not a V2 datatype",
        ),
        ("metadata.versions", members("/double", versions=["7"]), FAIL, "status 404; the metadata lists this version"),
        ("infer.json", mapped("/infer", outputs(lambda each: {"data": [*each["data"], 1]})), FAIL, "has 3 elements"),
        ("infer.json", mapped("/infer", outputs(lambda each: {"data": ["1", "2"]})), FAIL, "of FP64 contains '1'"),
        ("infer.outputs-described", mapped("/infer", outputs(lambda each: {"datatype": "FP32"})), FAIL, "says FP64"),
        ("infer.id", members("/infer", id="other"), FAIL, "`id` is 'other'"),
        ("infer.id-absent", members("/infer", id="made up"), DEVIATES, "but the request had none"),
        ("infer.optional-members", members("/infer", parameters=None), DEVIATES, "null instead"),
        ("infer.version", members("/infer", model_version="9"), FAIL, "`model_version` is '9'"),
        ("binary.output", cut_off, FAIL, "the body ends within output"),
        ("error.unknown-model", errors(404, HTML), FAIL, "expected an object with the string `error`"),
        ("error.shape", lenient(b"{}"), FAIL, "accepted with status 200"),
        ("error.malformed-json", errors(500, b'{"error": "no"}'), DEVIATES, "expected 4xx for a client error"),
        ("error.unknown-input", lenient(b"{}"), DEVIATES, "accepted with status 200"),
        ("limit.long-name", lenient(b"{}"), FAIL, "expected 4xx"),
    ],
    "v1-rest": [
        ("model.list", members("/v1/models", models="double"), FAIL, "expected an array of strings"),
        ("model.ready", members("/double", ready=False), FAIL, "`ready` is False"),
        ("predict.rows", members(":predict", predictions=[]), FAIL, "0 predictions for 1 instances"),
        (
            "predict.columns",
            lambda *r: (200, b'{"predictions": 1}') if "predict" in r[0] else r[2:],
            DEVIATES,
            "expected `outputs`",
        ),
        ("error.unknown-model", errors(404, b'{"detail": "no"}'), FAIL, "404 with ['detail']"),
        ("error.malformed-json", errors(500, b'{"error": "no"}'), DEVIATES, "status 500; expected 400"),
        ("limit.long-name", lenient(b"{}"), FAIL, "expected 4xx"),
    ],
    "graphpipe": [
        ("metadata.response", lambda *reply: (200, bytes(16)), FAIL, "`inputs` (required) is absent"),
        ("metadata.get", lambda *reply: (404, b""), DEVIATES, "a GET: status 404"),
        (
            "infer.named",
            lambda *r: (200, b"no") if len(r[1]) > 40 else r[2:],
            FAIL,
            "the reply is not an InferResponse",
        ),
        ("error.shape", errors(400, b"wrong"), DEVIATES, "without an InferResponse with `errors`: b'wrong'"),
        ("error.name-count", lenient(infer_request([])), FAIL, "accepted with status 200"),
        ("limit.long-name", lenient(b""), FAIL, "accepted with status 200"),
    ],
    "grps-rest": [
        ("health.live", members("/live", status={"status": "FAILURE", "code": 503, "msg": "x"}), FAIL, "FAILURE 503"),
        (
            "status.http",
            errors(200, b'{"status": {"status": "FAILURE", "code": 404}}'),
            DEVIATES,
            "HTTP 200 with `status.code` 404",
        ),
        ("metadata.server", members("/server", str_data="a: b"), FAIL, "contains no `models`"),
        (
            "predict.gtensors",
            members("/predict", gtensors={"tensors": [{"dtype": "DT_FLOAT64", "shape": [2], "flat_double": [1, 2]}]}),
            FAIL,
            "has 0 elements; its shape [2] requires 2",
        ),
        (
            "error.unknown-model",
            errors(500, b'{"status": {"status": "FAILURE", "code": 500, "msg": "Traceback (most recent call last)"}}'),
            DEVIATES,
            "is a traceback",
        ),
        ("error.shape", lenient(b'{"status": {"status": "SUCCESS", "code": 200}}'), DEVIATES, "accepted with SUCCESS"),
        ("limit.long-name", errors(404, HTML), FAIL, "without a JSON object"),
    ],
}


@cases(OVER_HTTP)
async def test_over_http(check: str, change: Change, verdict: Verdict, text: str) -> None:
    protocol = check.partition(".")[0]
    async with reference(protocol, "posterior" if protocol == "umbridge" else "double") as upstream:
        with over_http(upstream, change) as address:
            found = await asyncio.to_thread(outcome, address, check)
    assert (found.verdict, found.sent != ()) == (verdict, True), found
    assert text in found.reason


@pytest.mark.parametrize("protocol", ["umbridge", "v2-rest", "v1-rest", "graphpipe", "grps-rest"])
async def test_a_server_without_keep_alive(protocol: str) -> None:
    async with reference(protocol, "double" if protocol != "umbridge" else "posterior") as upstream:
        with over_http(upstream, lambda path, sent, status, body: (status, body), keep_alive=False) as address:
            found = await asyncio.to_thread(outcome, address, f"{protocol}.http.keep-alive")
    assert (found.verdict, found.reason) == (DEVIATES, "the server closes the connection after each reply")


SERVICES = {V2: "inference.{}Response", TENSORFLOW: "tensorflow.serving.{}Response", GRPS: "grps.protos.v1.GrpsMessage"}


def of(method: str, change: Callable[[Any], object], schema: str = V2) -> ChangeMessage:
    """The replies of a method, changed as messages."""

    def changed(called: str, sent: bytes, reply: bytes) -> bytes:
        if not called.endswith(f"/{method}"):
            return reply
        answer = message(schema, SERVICES[schema].format(method)).FromString(reply)
        change(answer)
        written: bytes = answer.SerializeToString()
        return written

    return changed


def failing(method: str, code: str) -> ChangeMessage:
    def changed(called: str, sent: bytes, reply: bytes) -> bytes:
        if called.endswith(f"/{method}"):
            raise RpcFailure(code)
        return reply

    return changed


OVER_GRPC: dict[str, list[tuple[str, ChangeMessage, Verdict, str]]] = {
    "v2-grpc": [
        ("health.live", of("ServerLive", lambda m: m.Clear()), FAIL, "`live` is false"),
        ("metadata.server", of("ServerMetadata", lambda m: m.Clear()), FAIL, "`name` is empty"),
        (
            "metadata.tensors",
            of("ModelMetadata", lambda m: setattr(m.inputs[0], "datatype", "TYPE_FP64")),
            FAIL,
            "'TYPE_FP64' is not a V2 datatype",
        ),
        (
            "infer.raw",
            of("ModelInfer", lambda m: m.raw_output_contents.append(b"")),
            FAIL,
            "2 raw_output_contents for 1",
        ),
        ("infer.raw", failing("ModelInfer", "INTERNAL"), FAIL, "ModelInfer: INTERNAL"),
        (
            "infer.one-form",
            of("ModelInfer", lambda m: m.outputs[0].contents.fp64_contents.append(1)),
            FAIL,
            "with both raw and typed",
        ),
        (
            "infer.outputs-described",
            of("ModelInfer", lambda m: setattr(m.outputs[0], "name", "z")),
            FAIL,
            "the outputs are ['z']",
        ),
        ("infer.id", of("ModelInfer", lambda m: setattr(m, "id", "")), FAIL, "`id` is ''"),
        ("infer.version", of("ModelInfer", lambda m: setattr(m, "model_version", "9")), FAIL, "`model_version` is '9'"),
        ("health.unknown-model", failing("ModelReady", "UNAVAILABLE"), FAIL, "an unknown model: UNAVAILABLE"),
        ("stream", lambda method, sent, reply: reply, Verdict.NOT_APPLICABLE, "ModelStreamInfer is UNIMPLEMENTED"),
    ],
    "tfs-grpc": [
        (
            "status.available",
            of("GetModelStatus", lambda m: setattr(m.model_version_status[0], "state", 20), TENSORFLOW),
            FAIL,
            "no version is AVAILABLE: [20]",
        ),
        ("status.unknown-model", failing("GetModelStatus", "UNAVAILABLE"), FAIL, "an unknown model: UNAVAILABLE"),
        (
            "metadata.signatures",
            of("GetModelMetadata", lambda m: m.metadata.clear(), TENSORFLOW),
            FAIL,
            "`metadata` has no `signature_def`",
        ),
        (
            "predict.content",
            of("Predict", lambda m: m.outputs["y"].double_val.append(1), TENSORFLOW),
            FAIL,
            "has 3 elements; its shape requires 2",
        ),
        (
            "predict.model-spec",
            of("Predict", lambda m: setattr(m.model_spec, "name", "other"), TENSORFLOW),
            FAIL,
            "`name` is 'other'",
        ),
        (
            "predict.outputs-described",
            of("Predict", lambda m: m.outputs["z"].CopyFrom(m.outputs["y"]), TENSORFLOW),
            FAIL,
            "the outputs are ['y', 'z']",
        ),
        ("predict.lists", failing("Predict", "INTERNAL"), FAIL, "Predict: INTERNAL"),
        ("error.no-examples", failing("Regress", "NOT_FOUND"), DEVIATES, "Regress without examples: NOT_FOUND"),
    ],
    "grps-grpc": [
        ("health.live", failing("CheckLiveness", "INTERNAL"), FAIL, "CheckLiveness: INTERNAL"),
        (
            "metadata.server-status",
            of("ServerMetadata", lambda m: m.ClearField("status"), GRPS),
            DEVIATES,
            "has no status",
        ),
        (
            "predict.gtensors",
            of("Predict", lambda m: m.gtensors.tensors[0].ClearField("flat_float64"), GRPS),
            FAIL,
            "has 0 elements",
        ),
        ("error.unknown-model", of("Predict", lambda m: m.Clear(), GRPS), FAIL, "is not FAILURE"),
        ("predict.streaming", lambda method, sent, reply: reply, FAIL, "PredictStreaming is UNIMPLEMENTED"),
    ],
}


@cases(OVER_GRPC)
async def test_over_grpc(check: str, change: ChangeMessage, verdict: Verdict, text: str) -> None:
    async with reference(check.partition(".")[0], "double") as upstream:
        with over_grpc(upstream, change) as address:
            model = "double" if check.startswith("tfs-grpc") else ""  # its servers do not list their models
            found = await asyncio.to_thread(outcome, address, check, model=model)
    assert found.verdict == verdict, found
    assert text in found.reason


@pytest.mark.parametrize(
    ("code", "verdict"), [("NOT_FOUND", Verdict.PASS), ("INTERNAL", DEVIATES), ("UNAVAILABLE", FAIL)]
)
async def test_the_status_codes_of_grpc(code: str, verdict: Verdict) -> None:
    async with reference("v2-grpc", "double") as upstream:
        with over_grpc(upstream, failing("ModelMetadata", code)) as address:
            found = await asyncio.to_thread(outcome, address, "v2-grpc.limit.long-name")
    assert found.verdict == verdict, found


def packet(kind: int, subtype: int, payload: bytes = b"") -> bytes:
    return struct.pack(">BBBBI", 0, kind, subtype, 0, len(payload)) + payload


def patched(at: int, value: int) -> ChangeBytes:
    """One byte of each reply."""
    return lambda sent, reply: reply[:at] + bytes([value]) + reply[at + 1 :]


ID = (7 << 32) + 2


def frame(body: bytes = b"", correlation_id: int = ID, **meta: Any) -> ChangeBytes:
    """A frame for each request."""
    raw = message(GRPS, "brpc.policy.RpcMeta")(correlation_id=correlation_id, **meta).SerializeToString()
    return lambda sent, reply: struct.pack(">4sII", b"PRPC", len(raw) + len(body), len(raw)) + raw + body


SUCCESS = frame(grps_message(status={"status": 1, "code": 200}).SerializeToString())
OVER_TCP: dict[str, list[tuple[str, ChangeBytes, Verdict, str]]] = {
    "mip": [
        ("ping", patched(2, 0), FAIL, "expected (0, 1, 1, b'')"),
        ("ping", lambda sent, reply: b"", FAIL, "closed without a reply to a ping"),
        ("ping.again", lambda sent, reply: reply if len(sent) == 8 else b"", DEVIATES, "after one request"),
        ("inference", lambda sent, reply: reply[:-1], FAIL, NO_REPLY),
        ("inference", lambda sent, reply: packet(2, 1, reply[8:] + b"\0"), FAIL, "ends within the head of an output"),
        ("inference.n-output", patched(9, 7), FAIL, "`n-output` is 7; an example has 1 outputs"),
        ("inference.n-input", patched(8, 9), DEVIATES, "`n-input` of the response is 9"),
        ("inference.batch", patched(11, 1), FAIL, "`batch size` is 1; the request had 2"),
        ("error.version", patched(2, 5), DEVIATES, "ERROR_INTERNAL; expected ERROR_PROTOCOL"),
        ("error.kind", lambda sent, reply: packet(1, 1), FAIL, "accepted; expected ERROR_METHOD"),
        ("error.shape-length", lambda sent, reply: b"", FAIL, "closed without a reply; expected ERROR_SHAPE"),
        ("limit.remaining", lambda sent, reply: b"" if len(sent) > 8 else reply, DEVIATES, "without an error"),
    ],
    "grps-brpc": [
        ("health.live", frame(response={"error_code": 1003, "error_text": "x"}), FAIL, "error_code 1003"),
        ("frame.correlation-id", frame(correlation_id=1), FAIL, "correlation_id 1; the request had 30064771074"),
        ("error.unknown-method", frame(), FAIL, "accepted with error_code 0"),
        ("error.malformed", frame(response={"error_code": 2001, "error_text": "x"}), DEVIATES, "expected 1003"),
        ("error.magic", frame(correlation_id=0), FAIL, "not a frame has error_code 0"),
        ("predict.gtensors", patched(0, 88), FAIL, "a frame begins with b'XRPC'"),
        ("error.unknown-model", SUCCESS, FAIL, "accepted with SUCCESS"),
        ("metadata.server", SUCCESS, FAIL, "contains no `models`"),
    ],
}


@cases(OVER_TCP)
async def test_over_byte_streams(check: str, change: ChangeBytes, verdict: Verdict, text: str) -> None:
    given, model = ((), "") if check.endswith("server") else (("x=FP64[2]",), "double-1")
    seconds = 0.5 if text == NO_REPLY else 30
    async with reference(check.partition(".")[0], "double") as upstream:
        with over_tcp(upstream, change) as address:
            found = await asyncio.to_thread(lambda: outcome(address, check, *given, model=model, seconds=seconds))
    assert found.verdict == verdict, found
    assert text in found.reason
