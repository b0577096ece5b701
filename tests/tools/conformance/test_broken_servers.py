"""Each group of checks finds a server that breaks its rule, and says how."""

import asyncio
import struct
from collections.abc import Callable
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


def scaled(document: Any) -> Any:
    return {"output": [2 * each for each in document["output"]]}


def outputs(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A V2 response with other outputs."""
    return lambda document: {**document, "outputs": [{**each, **change(each)} for each in document["outputs"]]}


HTML = b"<h1>Error</h1>"
OVER_HTTP: list[tuple[str, Change, Verdict, str]] = [
    ("umbridge.info.version", lambda *reply: (404, b"{}"), FAIL, "GET /Info: status 404"),
    ("umbridge.info.version", members("/Info", protocolVersion=0.9), FAIL, "`protocolVersion` is 0.9"),
    ("umbridge.info.version", members("/Info", protocolVersion="1.0"), DEVIATES, "is a string"),
    ("umbridge.info.models", members("/Info", models=[1]), FAIL, "not an array of strings"),
    ("umbridge.info.members", members("/Info", more=1), DEVIATES, "additional members: more"),
    (
        "umbridge.model-info.support",
        members("/ModelInfo", support={"Evaluate": "yes"}),
        FAIL,
        "not a boolean: Evaluate",
    ),
    ("umbridge.input-sizes", members("/InputSizes", inputSizes=["2"]), FAIL, "expected an array of whole numbers"),
    ("umbridge.output-sizes", members("/OutputSizes", outputSizes=[1.0]), DEVIATES, "with a fraction part"),
    (
        "umbridge.evaluate",
        members("/Evaluate", output=[[1.0, 2.0]]),
        FAIL,
        "has the sizes [2]; /OutputSizes reports [1]",
    ),
    (
        "umbridge.evaluate",
        lambda *reply: (200, b'{"output": [[nan]]}') if "Ev" in reply[0] else reply[2:],
        FAIL,
        "not JSON",
    ),
    ("umbridge.gradient.finite-differences", mapped("/Gradient", scaled), FAIL, "finite differences give"),
    ("umbridge.jacobian.finite-differences", mapped("/ApplyJacobian", scaled), FAIL, "finite differences give"),
    ("umbridge.jacobian.gradient", mapped("/ApplyJacobian", scaled), FAIL, "(J^T sens) * vec give"),
    ("umbridge.hessian", mapped("/ApplyHessian", scaled), FAIL, "differences of gradients give"),
    ("umbridge.hessian", members("/ApplyHessian", output=[1.0]), FAIL, "has 1 numbers; expected 2"),
    (
        "umbridge.error.model-not-found",
        lenient(b"{}"),
        FAIL,
        "status 200; expected 400 and an error of type ModelNotFound",
    ),
    ("umbridge.error.input-size", errors(500, HTML), FAIL, "status 500 without a JSON object"),
    ("umbridge.error.input-count", errors(400, b'{"error": "no"}'), FAIL, "an object with `type` and `message`"),
    (
        "umbridge.error.malformed-json",
        errors(400, b'{"error": {"type": "X", "message": ""}}'),
        DEVIATES,
        "error of type X",
    ),
    ("umbridge.limit.long-name", errors(500, HTML), FAIL, "a name of 10,000 characters"),
    ("v2-rest.health.live", lambda *reply: (503, b""), FAIL, "status 503; expected 200"),
    ("v2-rest.health.unknown-model", lenient(b""), FAIL, "an unknown model is ready"),
    ("v2-rest.metadata.server", members("/v2", extensions="none"), FAIL, "`extensions` is 'none'"),
    ("v2-rest.metadata.model", members("/double", versions=None), DEVIATES, "`versions` is null"),
    (
        "v2-rest.metadata.tensors",
        mapped("/double", lambda d: {**d, "inputs": [{**d["inputs"][0], "datatype": "float"}]}),
        FAIL,
        "datatype 'float' is not a V2 datatype",
    ),
    (
        "v2-rest.metadata.versions",
        members("/double", versions=["7"]),
        FAIL,
        "status 404; the metadata lists this version",
    ),
    (
        "v2-rest.infer.json",
        mapped("/infer", outputs(lambda each: {"data": [*each["data"], 1]})),
        FAIL,
        "has 3 elements",
    ),
    ("v2-rest.infer.json", mapped("/infer", outputs(lambda each: {"data": ["1", "2"]})), FAIL, "of FP64 contains '1'"),
    (
        "v2-rest.infer.outputs-described",
        mapped("/infer", outputs(lambda each: {"datatype": "FP32"})),
        FAIL,
        "says FP64",
    ),
    ("v2-rest.infer.id", members("/infer", id="other"), FAIL, "`id` is 'other'"),
    ("v2-rest.infer.id-absent", members("/infer", id="made up"), DEVIATES, "but the request had none"),
    ("v2-rest.infer.optional-members", members("/infer", parameters=None), DEVIATES, "null instead"),
    ("v2-rest.infer.version", members("/infer", model_version="9"), FAIL, "`model_version` is '9'"),
    (
        "v2-rest.binary.output",
        lambda path, sent, status, body: (
            status,
            body[:-1] if path.endswith("/infer") and b"binary_data_size" in body else body,
        ),
        FAIL,
        "the body ends within output",
    ),
    ("v2-rest.error.unknown-model", errors(404, HTML), FAIL, "expected an object with the string `error`"),
    ("v2-rest.error.shape", lenient(b"{}"), FAIL, "accepted with status 200"),
    ("v2-rest.error.malformed-json", errors(500, b'{"error": "no"}'), DEVIATES, "expected 4xx for a client error"),
    ("v2-rest.error.unknown-input", lenient(b"{}"), DEVIATES, "accepted with status 200"),
    ("v2-rest.limit.long-name", lenient(b"{}"), FAIL, "expected 4xx"),
    ("v1-rest.model.list", members("/v1/models", models="double"), Verdict.FAIL, "expected an array of strings"),
    ("v1-rest.model.ready", members("/double", ready=False), FAIL, "`ready` is False"),
    ("v1-rest.predict.rows", members(":predict", predictions=[]), FAIL, "0 predictions for 1 instances"),
    (
        "v1-rest.predict.columns",
        lambda *r: (200, b'{"predictions": 1}') if "predict" in r[0] else r[2:],
        DEVIATES,
        "expected `outputs`",
    ),
    ("v1-rest.error.unknown-model", errors(404, b'{"detail": "no"}'), FAIL, "404 with ['detail']"),
    ("v1-rest.error.malformed-json", errors(500, b'{"error": "no"}'), DEVIATES, "status 500; expected 400"),
    ("v1-rest.limit.long-name", lenient(b"{}"), FAIL, "expected 4xx"),
    ("graphpipe.metadata.response", lambda *reply: (200, bytes(16)), FAIL, "`inputs` (required) is absent"),
    ("graphpipe.metadata.get", lambda *reply: (404, b""), DEVIATES, "a GET: status 404"),
    (
        "graphpipe.infer.named",
        lambda *r: (200, b"no") if len(r[1]) > 40 else r[2:],
        FAIL,
        "the reply is not an InferResponse",
    ),
    ("graphpipe.error.shape", errors(400, b"wrong"), DEVIATES, "without an InferResponse with `errors`: b'wrong'"),
    ("graphpipe.error.name-count", lenient(infer_request([])), FAIL, "accepted with status 200"),
    ("graphpipe.limit.long-name", lenient(b""), FAIL, "accepted with status 200"),
    (
        "grps-rest.health.live",
        members("/live", status={"status": "FAILURE", "code": 503, "msg": "x"}),
        FAIL,
        "FAILURE 503",
    ),
    (
        "grps-rest.status.http",
        errors(200, b'{"status": {"status": "FAILURE", "code": 404}}'),
        DEVIATES,
        "HTTP 200 with `status.code` 404",
    ),
    ("grps-rest.metadata.server", members("/server", str_data="a: b"), FAIL, "contains no `models`"),
    (
        "grps-rest.predict.gtensors",
        members("/predict", gtensors={"tensors": [{"dtype": "DT_FLOAT64", "shape": [2], "flat_double": [1, 2]}]}),
        FAIL,
        "has 0 elements; its shape [2] requires 2",
    ),
    (
        "grps-rest.error.unknown-model",
        errors(500, b'{"status": {"status": "FAILURE", "code": 500, "msg": "Traceback (most recent call last)"}}'),
        DEVIATES,
        "is a traceback",
    ),
    (
        "grps-rest.error.shape",
        lenient(b'{"status": {"status": "SUCCESS", "code": 200}}'),
        DEVIATES,
        "accepted with SUCCESS",
    ),
    ("grps-rest.limit.long-name", errors(404, HTML), FAIL, "without a JSON object"),
]


@pytest.mark.parametrize(
    ("check", "change", "verdict", "text"), OVER_HTTP, ids=lambda each: each if isinstance(each, str) else ""
)
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


def of(method: str, kind: str, change: Callable[[Any], object], path: str = V2) -> ChangeMessage:
    """The replies of a method, changed as messages."""

    def changed(called: str, sent: bytes, reply: bytes) -> bytes:
        if not called.endswith(f"/{method}"):
            return reply
        answer = message(path, kind).FromString(reply)
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


INFER = "inference.ModelInferResponse"
GRPS_MESSAGE = "grps.protos.v1.GrpsMessage"
STATUS, DESCRIBED, PREDICTED = (
    f"tensorflow.serving.{name}Response" for name in ("GetModelStatus", "GetModelMetadata", "Predict")
)
OVER_GRPC: list[tuple[str, ChangeMessage, Verdict, str]] = [
    (
        "v2-grpc.health.live",
        of("ServerLive", "inference.ServerLiveResponse", lambda m: m.Clear()),
        FAIL,
        "`live` is false",
    ),
    (
        "v2-grpc.metadata.server",
        of("ServerMetadata", "inference.ServerMetadataResponse", lambda m: m.Clear()),
        FAIL,
        "`name` is empty",
    ),
    (
        "v2-grpc.metadata.tensors",
        of("ModelMetadata", "inference.ModelMetadataResponse", lambda m: setattr(m.inputs[0], "datatype", "TYPE_FP64")),
        FAIL,
        "'TYPE_FP64' is not a V2 datatype",
    ),
    (
        "v2-grpc.infer.raw",
        of("ModelInfer", INFER, lambda m: m.raw_output_contents.append(b"")),
        FAIL,
        "2 raw_output_contents for 1",
    ),
    ("v2-grpc.infer.raw", failing("ModelInfer", "INTERNAL"), FAIL, "ModelInfer: INTERNAL"),
    (
        "v2-grpc.infer.one-form",
        of("ModelInfer", INFER, lambda m: m.outputs[0].contents.fp64_contents.append(1)),
        FAIL,
        "with both raw and typed",
    ),
    (
        "v2-grpc.infer.outputs-described",
        of("ModelInfer", INFER, lambda m: setattr(m.outputs[0], "name", "z")),
        FAIL,
        "the outputs are ['z']",
    ),
    ("v2-grpc.infer.id", of("ModelInfer", INFER, lambda m: setattr(m, "id", "")), FAIL, "`id` is ''"),
    (
        "v2-grpc.infer.version",
        of("ModelInfer", INFER, lambda m: setattr(m, "model_version", "9")),
        FAIL,
        "`model_version` is '9'",
    ),
    ("v2-grpc.health.unknown-model", failing("ModelReady", "UNAVAILABLE"), FAIL, "an unknown model: UNAVAILABLE"),
    ("v2-grpc.stream", lambda method, sent, reply: reply, Verdict.NOT_APPLICABLE, "ModelStreamInfer is UNIMPLEMENTED"),
    (
        "tfs-grpc.status.available",
        of("GetModelStatus", STATUS, lambda m: setattr(m.model_version_status[0], "state", 20), TENSORFLOW),
        FAIL,
        "no version is AVAILABLE: [20]",
    ),
    ("tfs-grpc.status.unknown-model", failing("GetModelStatus", "UNAVAILABLE"), FAIL, "an unknown model: UNAVAILABLE"),
    (
        "tfs-grpc.metadata.signatures",
        of("GetModelMetadata", DESCRIBED, lambda m: m.metadata.clear(), TENSORFLOW),
        FAIL,
        "`metadata` has no `signature_def`",
    ),
    (
        "tfs-grpc.predict.content",
        of("Predict", PREDICTED, lambda m: m.outputs["y"].double_val.append(1), TENSORFLOW),
        FAIL,
        "has 3 elements; its shape requires 2",
    ),
    (
        "tfs-grpc.predict.model-spec",
        of("Predict", PREDICTED, lambda m: setattr(m.model_spec, "name", "other"), TENSORFLOW),
        FAIL,
        "`name` is 'other'",
    ),
    (
        "tfs-grpc.predict.outputs-described",
        of("Predict", PREDICTED, lambda m: m.outputs["z"].CopyFrom(m.outputs["y"]), TENSORFLOW),
        FAIL,
        "the outputs are ['y', 'z']",
    ),
    ("tfs-grpc.predict.lists", failing("Predict", "INTERNAL"), FAIL, "Predict: INTERNAL"),
    ("tfs-grpc.error.no-examples", failing("Regress", "NOT_FOUND"), DEVIATES, "Regress without examples: NOT_FOUND"),
    ("grps-grpc.health.live", failing("CheckLiveness", "INTERNAL"), FAIL, "CheckLiveness: INTERNAL"),
    (
        "grps-grpc.metadata.server-status",
        of("ServerMetadata", GRPS_MESSAGE, lambda m: m.ClearField("status"), GRPS),
        DEVIATES,
        "has no status",
    ),
    (
        "grps-grpc.predict.gtensors",
        of("Predict", GRPS_MESSAGE, lambda m: m.gtensors.tensors[0].ClearField("flat_float64"), GRPS),
        FAIL,
        "has 0 elements",
    ),
    ("grps-grpc.error.unknown-model", of("Predict", GRPS_MESSAGE, lambda m: m.Clear(), GRPS), FAIL, "is not FAILURE"),
    ("grps-grpc.predict.streaming", lambda method, sent, reply: reply, FAIL, "PredictStreaming is UNIMPLEMENTED"),
]


@pytest.mark.parametrize(
    ("check", "change", "verdict", "text"), OVER_GRPC, ids=lambda each: each if isinstance(each, str) else ""
)
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


def frame(**meta: Any) -> ChangeBytes:
    """A frame with this meta and no payload for each request."""
    raw = message(GRPS, "brpc.policy.RpcMeta")(**meta).SerializeToString()
    return lambda sent, reply: struct.pack(">4sII", b"PRPC", len(raw), len(raw)) + raw


def predicted(**fields: Any) -> ChangeBytes:
    """A frame with a GrpsMessage for each request."""
    raw = message(GRPS, "brpc.policy.RpcMeta")(correlation_id=(7 << 32) + 2).SerializeToString()
    body = grps_message(**fields).SerializeToString()
    return lambda sent, reply: struct.pack(">4sII", b"PRPC", len(raw) + len(body), len(raw)) + raw + body


ID = (7 << 32) + 2
OVER_TCP: list[tuple[str, ChangeBytes, Verdict, str]] = [
    ("mip.ping", patched(2, 0), FAIL, "expected (0, 1, 1, b'')"),
    ("mip.ping", lambda sent, reply: b"", FAIL, "closed without a reply to a ping"),
    ("mip.ping.again", lambda sent, reply: reply if len(sent) == 8 else b"", DEVIATES, "after one request"),
    ("mip.inference", lambda sent, reply: reply[:-1], FAIL, NO_REPLY),
    ("mip.inference", lambda sent, reply: packet(2, 1, reply[8:] + b"\0"), FAIL, "ends within the head of an output"),
    ("mip.inference.n-output", patched(9, 7), FAIL, "`n-output` is 7; an example has 1 outputs"),
    ("mip.inference.n-input", patched(8, 9), DEVIATES, "`n-input` of the response is 9"),
    ("mip.inference.batch", patched(11, 1), FAIL, "`batch size` is 1; the request had 2"),
    ("mip.error.version", patched(2, 5), DEVIATES, "ERROR_INTERNAL; expected ERROR_PROTOCOL"),
    ("mip.error.kind", lambda sent, reply: packet(1, 1), FAIL, "accepted; expected ERROR_METHOD"),
    ("mip.error.shape-length", lambda sent, reply: b"", FAIL, "closed without a reply; expected ERROR_SHAPE"),
    ("mip.limit.remaining", lambda sent, reply: b"" if len(sent) > 8 else reply, DEVIATES, "without an error"),
    (
        "grps-brpc.health.live",
        frame(correlation_id=ID, response={"error_code": 1003, "error_text": "x"}),
        FAIL,
        "error_code 1003",
    ),
    ("grps-brpc.frame.correlation-id", frame(correlation_id=1), FAIL, "correlation_id 1; the request had 30064771074"),
    ("grps-brpc.error.unknown-method", frame(correlation_id=ID), FAIL, "accepted with error_code 0"),
    (
        "grps-brpc.error.malformed",
        frame(correlation_id=ID, response={"error_code": 2001, "error_text": "x"}),
        DEVIATES,
        "expected 1003",
    ),
    ("grps-brpc.error.magic", frame(correlation_id=0), FAIL, "not a frame has error_code 0"),
    ("grps-brpc.predict.gtensors", patched(0, 88), FAIL, "a frame begins with b'XRPC'"),
    ("grps-brpc.error.unknown-model", predicted(status={"status": 1, "code": 200}), FAIL, "accepted with SUCCESS"),
    ("grps-brpc.metadata.server", predicted(status={"status": 1, "code": 200}), FAIL, "contains no `models`"),
]


@pytest.mark.parametrize(
    ("check", "change", "verdict", "text"), OVER_TCP, ids=lambda each: each if isinstance(each, str) else ""
)
async def test_over_byte_streams(check: str, change: ChangeBytes, verdict: Verdict, text: str) -> None:
    given, model = ((), "") if check.endswith("server") else (("x=FP64[2]",), "double-1")
    seconds = 0.5 if text == NO_REPLY else 30
    async with reference(check.partition(".")[0], "double") as upstream:
        with over_tcp(upstream, change) as address:
            found = await asyncio.to_thread(lambda: outcome(address, check, *given, model=model, seconds=seconds))
    assert found.verdict == verdict, found
    assert text in found.reason
