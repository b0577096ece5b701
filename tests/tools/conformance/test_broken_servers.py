"""Each group of checks finds a server that breaks its rule, and says how."""

import asyncio
import gzip
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

import flatbuffers
import pytest

from gateway.protocols.graphpipe.errors import encode_errors
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
    Last,
    RpcFailure,
    as_text,
    errors,
    in_turn,
    lenient,
    mapped,
    members,
    over_grpc,
    over_http,
    over_tcp,
    replaced,
    replies,
    unchanged,
)

T = TypeVar("T")

FAIL, DEVIATES, PASS = Verdict.FAIL, Verdict.DEVIATES, Verdict.PASS
NOT_APPLICABLE, NOT_TESTED = Verdict.NOT_APPLICABLE, Verdict.NOT_TESTED
NO_REPLY = "no reply within the timeout"


def outcome(address: str, check: str, *inputs: str, model: str = "", seconds: float = 30) -> Outcome:
    """Of one check, which waits so long for each reply."""
    protocol, options = check.partition(".")[0], Options(model, tuple(map(parse_input, inputs)), timeout=seconds)
    chosen = [each for each in suite(protocol).checks if each.id == check]
    [found] = run(suite(protocol), address, options, chosen, Transcript())
    return found


Row: TypeAlias = tuple[str, T, Verdict, str] | tuple[str, T, Verdict, str, str]
"""A check, a change, a verdict and a part of its reason; a model (can be empty) or an input that the user gives."""


def cases(table: Mapping[str, Iterable[Row[Any]]]) -> pytest.MarkDecorator:
    """The checks of each protocol as they are called."""
    rows = [
        pytest.param(
            f"{protocol}.{check}", change, verdict, text, given[0] if given else None, id=f"{protocol}.{check}"
        )
        for protocol, checks in table.items()
        for check, change, verdict, text, *given in checks
    ]
    return pytest.mark.parametrize(("check", "change", "verdict", "text", "given"), rows)


def asked(address: str, check: str, given: str | None, model: str, *inputs: str, seconds: float = 30) -> Outcome:
    """The outcome with what the user gives, or else with this model and these inputs."""
    if given is not None:
        model, inputs = (model, (given,)) if "=" in given else (given, ())
    return outcome(address, check, *inputs, model=model, seconds=seconds)


def scaled(document: Any) -> Any:
    return {"output": [2 * each for each in document["output"]]}


def outputs(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A V2 response with other outputs."""
    return lambda document: {**document, "outputs": [{**each, **change(each)} for each in document["outputs"]]}


def cut_off(path: str, sent: bytes, status: int, body: bytes) -> tuple[int, bytes]:
    """Binary tensors that lack their last byte."""
    return status, body[:-1] if path.endswith("/infer") and b"binary_data_size" in body else body


def of_binary(path: str, sent: bytes, status: int, body: bytes) -> tuple[int, bytes]:
    """Only the outputs of binary inputs have another name."""
    return status, body.replace(b'"y"', b'"z"') if b"binary_data_size" in sent else body


def inferences(status: int, body: bytes) -> Change:
    """One reply to all inferences of GraphPipe, whose requests for metadata are shorter."""
    return lambda path, sent, was, received: (status, body) if len(sent) > 40 else (was, received)


def one_output(kind: int, data: bytes) -> bytes:
    """An InferResponse of GraphPipe with a tensor that has no shape."""
    builder = flatbuffers.Builder(64)
    elements = builder.CreateByteVector(data)
    builder.StartObject(4)
    builder.PrependUint8Slot(0, kind, 0)
    builder.PrependUOffsetTRelativeSlot(2, elements, 0)
    tensor = builder.EndObject()
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(tensor)
    outputs = builder.EndVector()
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(0, outputs, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


SHAPE = struct.pack("<Iqq", 2, -1, -1)
"""The shape [-1, -1] in GraphPipe's metadata."""
HTML = b"<h1>Error</h1>"
FAILURE = b'{"status": {"status": "FAILURE", "code": 503, "msg": "no"}}'
ONE_TENSOR = b"""{"status": {"status": "SUCCESS", "code": 200},
    "gtensors": {"tensors": [{"dtype": "DT_FLOAT32", "shape": [1], "flat_float32": [1]}]}}"""
ONLY_EVALUATE = members("/ModelInfo", support={"Evaluate": True})
V2_ZEROS = b'{"model_name": "double", "outputs": [{"name": "y", "datatype": "FP64", "shape": [2], "data": [0, 0]}]}'
OVER_HTTP: dict[str, list[Row[Change]]] = {
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
        ("evaluate", replies("/Evaluate", 200, b'{"output": [[NaN]]}'), FAIL, "NaN is not JSON"),
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
        ("info.version", replies("/Info", 200, b"[]"), FAIL, "status 200: the body is not a JSON object"),
        ("info.models", unchanged, FAIL, "`models` does not contain 'other'", "other"),
        ("input-sizes", members("/Info", models=[]), NOT_TESTED, "/Info lists no models; set --model"),
        ("input-sizes", replies("/InputSizes", 500, b"{}"), FAIL, "/InputSizes: status 500 for a valid request"),
        ("model-info.support", members("/ModelInfo", support=None), FAIL, "`support` is not an object"),
        ("model-info.support", ONLY_EVALUATE, DEVIATES, "as false: Gradient, ApplyJacobian, ApplyHessian"),
        ("evaluate", members("/Evaluate", output=[1.0]), FAIL, "/Evaluate: `output` is not an array of arrays"),
        ("evaluate", members("/Evaluate", output=[[True]]), FAIL, "`output` contains True, which is not a number"),
        ("evaluate", members("/InputSizes", inputSizes=[1.5]), FAIL, "`inputSizes` is not an array of whole numbers"),
        ("evaluate.integers", unchanged, NOT_TESTED, "the input is given with --input", "theta=FP64[2]"),
        ("gradient.finite-differences", members("/Gradient", output=["1"]), FAIL, "is not an array of numbers"),
        ("hessian", ONLY_EVALUATE, NOT_APPLICABLE, "/ModelInfo does not claim ApplyHessian"),
        (
            "hessian",  # without gradients, nothing is there to compare it with
            in_turn(members("/ModelInfo", support={"ApplyHessian": True}), members("/ApplyHessian", output=[0.0, 0.0])),
            PASS,
            "",
        ),
        ("hessian", members("/Gradient", output=[1.0]), PASS, ""),  # the checks of the gradient report this
        ("error.input-size", members("/InputSizes", inputSizes=[]), NOT_APPLICABLE, "the model has no inputs"),
        (
            "error.input-size",
            errors(422, b'{"error": {"type": "InvalidInput", "message": "no"}}'),
            DEVIATES,
            "an input one number too long: status 422; expected 400",
        ),
        ("error.unsupported", ONLY_EVALUATE, FAIL, "/Gradient, which /ModelInfo does not claim: status 200"),
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
        ("limit.long-name", errors(404, HTML), DEVIATES, "status 404 without a JSON object with `error`"),
        ("health.live", lambda *reply: (200, b"ok"), DEVIATES, "the body is neither empty nor a JSON object"),
        ("health.ready", lambda *reply: (200, b""), PASS, ""),
        ("health.model-ready", unchanged, FAIL, "status 404; expected 200", "other"),
        (
            "metadata.model",  # of the first model that is ready, as far as the server tells
            in_turn(
                replies("/repository/index", 200, b'[1, {"name": "other", "state": "UNAVAILABLE"}]'),
                replies("/v2/models", 200, b'{"models": ["double"]}'),
            ),
            PASS,
            "",
        ),
        (
            "metadata.model",
            in_turn(replies("/repository/index", 404, HTML), replies("/v2/models", 200, b'{"models": []}')),
            NOT_TESTED,
            "the server lists no models; set --model",
        ),
        (
            "metadata.model",
            replies("/repository/index", 200, b'[{"name": "double", "state": null}]'),
            FAIL,
            "a reply has an unexpected format: 'NoneType' object has no attribute 'endswith'",
        ),
        (
            "metadata.tensors",
            mapped("/double", lambda d: {**d, "inputs": [{**d["inputs"][0], "shape": "2"}]}),
            FAIL,
            "tensor 'x': shape '2'; expected an array of whole numbers, -1 or greater",
        ),
        ("infer.json", members("/double", inputs=[]), NOT_TESTED, "the model's metadata lists no inputs"),
        (
            "infer.json",
            replaced("/double", b"FP64", b"double"),
            NOT_TESTED,
            "input 'x' has the datatype 'double'; expected BOOL, UINT8",
        ),
        ("infer.json", replies("/infer", 400, b'{"error": "no"}'), FAIL, "for inputs from the metadata: 'no'; set"),
        ("infer.json", replies("/infer", 503, HTML), FAIL, "for inputs from the metadata: 'no JSON object'; set"),
        ("infer.json", members("/infer", outputs=[]), FAIL, "`outputs` is []; expected an array of tensors"),
        (
            "infer.requested-output",
            mapped("/infer", lambda d: {**d, "outputs": [{**d["outputs"][0], "name": "w"}, *d["outputs"]]}),
            DEVIATES,
            "output 'y' was requested; the response contains ['w', 'y']",
        ),
        ("infer.parameters", lenient(V2_ZEROS), FAIL, "with parameters: output 'y' differs from the plain request's"),
        ("infer.content-type", as_text, DEVIATES, "a JSON response has the Content-Type 'text/plain'"),
        ("binary.input", members("/v2", extensions=[]), NOT_APPLICABLE, "does not list the extension binary_tensor"),
        ("binary.input", of_binary, PASS, ""),  # a check of the outputs reports other names
        ("error.shape", unchanged, NOT_APPLICABLE, "the inputs are empty", "x=FP64[0]"),
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
        ("model.list", replies("/v1/models", 404, b""), NOT_APPLICABLE, "status 404, like TensorFlow Serving"),
        ("model.ready", replies("/v1/models", 404, b""), NOT_TESTED, "the server lists no models; set --model"),
        ("model.ready", unchanged, FAIL, "status 404; expected 200", "other"),
        ("model.ready", replies("/double", 200, b'{"model_version_status": [{"state": "AVAILABLE"}]}'), PASS, ""),
        (
            "model.ready",
            replies("/double", 200, b'{"model_version_status": [{"state": "LOADING"}]}'),
            FAIL,
            "no version is AVAILABLE: ['LOADING']",
        ),
        ("metadata", replies("/metadata", 404, b""), NOT_APPLICABLE, "/double/metadata: status 404, like KServe"),
        ("metadata", members("/metadata", model_spec=None), FAIL, "a reply has an unexpected format: 'NoneType'"),
        ("predict.rows", replies("/metadata", 404, b""), NOT_TESTED, "the server reports no signature"),
        (
            "predict.rows",
            replaced("/metadata", b"DT_DOUBLE", b"DT_COMPLEX64"),
            NOT_TESTED,
            "input 'x' has the datatype 'DT_COMPLEX64'",
        ),
        ("predict.rows", unchanged, NOT_TESTED, "an input has no dimension for rows", "x=FP64[]"),
        ("predict.rows", replies(":predict", 500, b"no"), FAIL, "status 500 for rows from the signature: b'no'; set"),
        ("predict.rows", replies(":predict", 200, b'{"outputs": [1]}'), FAIL, "['outputs']; expected `predictions`"),
        ("predict.columns", replies(":predict", 400, b""), NOT_APPLICABLE, "`inputs`: status 400; KServe leaves"),
        ("predict.content-type", as_text, DEVIATES, "is 'text/plain'; expected 'application/json'"),
        ("predict.content-type-charset", replies(":predict", 415, b""), DEVIATES, "charset=utf-8': status 415"),
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
        ("metadata.response", lambda *reply: (200, b"no"), FAIL, "not a MetadataResponse: 2 bytes are no flatbuffer"),
        (
            "metadata.response",
            replaced("/", SHAPE, struct.pack("<Iqq", 1 << 30, -1, -1)),
            FAIL,
            "not a MetadataResponse: a shape of 1073741824 dimensions ends beyond the message",
        ),
        (
            "metadata.response",
            replaced("/", b"\1\0\0\0x", b"\0\1\0\0x"),
            FAIL,
            "not a MetadataResponse: a string of 256 bytes ends beyond the message",
        ),
        ("metadata.get", lambda *reply: (200, b""), DEVIATES, "a GET has an empty reply"),
        ("infer.named", lambda *reply: (200, bytes(16)), NOT_TESTED, "the metadata describes no inputs"),
        ("infer.named", unchanged, NOT_TESTED, "GraphPipe has no BOOL", "x=BOOL[1]"),
        (
            "infer.named",
            replaced("/", SHAPE, struct.pack("<Iqq", 2, 2_000, 1_000)),
            NOT_TESTED,
            "has 2000000 elements; expected at most 1000000",
        ),
        ("infer.named", inferences(500, b"no"), FAIL, "status 500 for inputs from the metadata: b'no'; set other"),
        (
            "infer.named",
            inferences(200, encode_errors(((5, "no"),))),
            FAIL,
            "status 200 with the error (5, b'no')",
        ),
        ("infer.named", inferences(200, one_output(11, bytes(8))), PASS, ""),
        ("infer.named", inferences(200, one_output(99, bytes(8))), FAIL, "the reply is not an InferResponse"),
        ("infer.default-inputs", inferences(400, b"no"), NOT_APPLICABLE, "the server has no default input names"),
        ("error.request-type", lenient(b""), DEVIATES, "type 9: status 200 without an error"),
        ("error.code", errors(400, encode_errors(((0, "no"),))), DEVIATES, "the error's code is 0"),
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
        ("health.live", replies("/live", 200, b"{}"), FAIL, "HTTP 200: `status` is missing in []"),
        ("health.live", members("/live", status={"status": "SUCCESS", "code": 1}), DEVIATES, "is 1; expected 200"),
        ("health.ready", replies("/ready", 503, FAILURE), DEVIATES, "the server is not ready: code 503; grps' own"),
        ("metadata.server", members("/server", str_data="a: b: c"), FAIL, "format: mapping values are not allowed"),
        ("predict.gtensors", members("/server", str_data="a: b"), NOT_TESTED, "the server's metadata lists no models"),
        ("predict.gtensors", members("/model", str_data="a: b"), NOT_TESTED, "grps has no signatures; describe"),
        ("predict.gtensors", unchanged, NOT_TESTED, "grps has no BOOL", "x=BOOL[1]"),
        (
            "predict.ndarray",
            replies("?return-ndarray=true", 200, b'{"status": {"status": 1, "code": 200}}'),
            FAIL,
            "with return-ndarray=true the reply has ['status']; expected `ndarray`",
            "x=FP32[1]",
        ),
        ("predict.content-type", as_text, DEVIATES, "Content-Type 'text/plain'; expected 'application/json'"),
        ("predict.content-type-charset", replies("/predict", 503, FAILURE), DEVIATES, "charset=utf-8' is refused"),
        ("predict.streaming", replies("?streaming=true", 200, b""), NOT_APPLICABLE, "the model streams no messages"),
        ("predict.streaming", replies("?streaming=true", 503, FAILURE), NOT_APPLICABLE, "the model does not stream: {"),
        ("predict.streaming", unchanged, DEVIATES, "the reply is not chunked"),
        ("error.unknown-model", errors(503, FAILURE), DEVIATES, "`status.code` is 503; expected 404 or 500"),
        ("error.content-type", replies("/predict", 415, FAILURE.replace(b"503", b"415")), PASS, ""),
    ],
}


@cases(OVER_HTTP)
async def test_over_http(check: str, change: Change, verdict: Verdict, text: str, given: str | None) -> None:
    protocol = check.partition(".")[0]
    async with reference(protocol, "posterior" if protocol == "umbridge" else "double") as upstream:
        with over_http(upstream, change) as address:
            found = await asyncio.to_thread(asked, address, check, given, "")
    assert found.verdict == verdict, found
    assert found.sent or verdict in (NOT_APPLICABLE, NOT_TESTED)
    assert text in found.reason


@pytest.mark.parametrize(
    ("protocol", "check", "after"),
    [
        *((each, "keep-alive", "each reply") for each in ("umbridge", "v2-rest", "v1-rest", "graphpipe", "grps-rest")),
        ("v2-rest", "keep-alive-after-error", "an error"),
    ],
)
async def test_a_server_without_keep_alive(protocol: str, check: str, after: str) -> None:
    async with reference(protocol, "double" if protocol != "umbridge" else "posterior") as upstream:
        with over_http(upstream, unchanged, keep_alive=False) as address:
            found = await asyncio.to_thread(outcome, address, f"{protocol}.http.{check}")
    assert (found.verdict, found.reason) == (DEVIATES, f"the server closes the connection after {after}")


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


def same_message(method: str, sent: bytes, reply: bytes) -> bytes:
    return reply


def no_message(method: str, sent: bytes, reply: bytes) -> bytes:
    """Bytes that are no message."""
    return b"\xff"


def typed(datatype: str) -> ChangeMessage:
    """The output in the field for FP64, said to be of this datatype."""

    def change(answer: Any) -> None:
        del answer.raw_output_contents[:]
        answer.outputs[0].datatype = datatype
        answer.outputs[0].contents.fp64_contents.extend([1, 2])

    return of("ModelInfer", change)


def signatures(change: Callable[[Any], object]) -> ChangeMessage:
    """The metadata of a TensorFlow model with other signatures."""

    def changed(answer: Any) -> None:
        found = message(TENSORFLOW, "tensorflow.serving.SignatureDefMap")()
        answer.metadata["signature_def"].Unpack(found)
        change(found.signature_def)
        answer.metadata["signature_def"].Pack(found)

    return of("GetModelMetadata", changed, TENSORFLOW)


def renamed(found: Any) -> None:
    found["other"].CopyFrom(found.pop("serving_default"))


def short_content(answer: Any) -> None:
    answer.outputs["y"].ClearField("double_val")
    answer.outputs["y"].tensor_content = b"abc"


OVER_GRPC: dict[str, list[Row[ChangeMessage]]] = {
    "v2-grpc": [
        ("health.live", no_message, FAIL, "ServerLive: the response is not a ServerLiveResponse: "),
        ("metadata.server", of("ServerMetadata", lambda m: setattr(m, "version", "")), DEVIATES, "`version` is empty"),
        ("metadata.model", of("ModelMetadata", lambda m: setattr(m, "platform", "")), DEVIATES, "`platform` is empty"),
        ("metadata.model", of("RepositoryIndex", lambda m: m.Clear()), NOT_TESTED, "the server lists no models; set"),
        ("infer.raw", typed("FP64"), PASS, ""),
        ("infer.raw", typed("FP16"), FAIL, "output 'y': FP16 must be raw"),
        (
            "infer.one-form",
            of("ModelInfer", lambda m: m.outputs[0].contents.SetInParent()),
            DEVIATES,
            "an empty `contents` next to raw contents: y",
        ),
        ("error.typed-size", same_message, NOT_APPLICABLE, "the first input is empty", "x=FP64[0]"),
        ("service.health", failing("Check", "UNIMPLEMENTED"), NOT_APPLICABLE, "does not have grpc.health.v1"),
        ("service.reflection", same_message, NOT_APPLICABLE, "the server does not have grpc.reflection.v1"),
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
        ("stream", same_message, NOT_APPLICABLE, "ModelStreamInfer is UNIMPLEMENTED"),
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
        ("status.available", same_message, NOT_TESTED, "the server lists no models; set --model", ""),
        (
            "metadata.signatures",
            of("GetModelMetadata", lambda m: setattr(m.metadata["signature_def"], "value", b"\xff"), TENSORFLOW),
            FAIL,
            "a reply has an unexpected format: Error parsing message",
        ),
        ("predict.content", signatures(renamed), NOT_TESTED, "no signature serving_default; it has other"),
        (
            "predict.content",
            signatures(lambda m: setattr(m["serving_default"].inputs["x"].tensor_shape, "unknown_rank", True)),
            NOT_TESTED,
            "input 'x' has no known data type or rank; describe it with --input",
        ),
        (
            "predict.content",
            of("Predict", short_content, TENSORFLOW),
            FAIL,
            "tensor_content: 3 bytes are not a whole number of FP64",
        ),
        ("predict.short-list", same_message, NOT_APPLICABLE, "each input has at most one element", "x=FP64[1]"),
        (
            "predict.model-spec",
            of("Predict", lambda m: setattr(m.model_spec, "signature_name", "other"), TENSORFLOW),
            DEVIATES,
            "`signature_name` is 'other'; expected 'serving_default'",
        ),
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
        ("predict.streaming", same_message, FAIL, "PredictStreaming is UNIMPLEMENTED"),
        ("health.live", no_message, FAIL, "CheckLiveness: the reply is not a GrpsMessage: "),
        (
            "health.ready",
            of("CheckReadiness", lambda m: m.status.MergeFrom(type(m.status)(status=2, code=503)), GRPS),
            DEVIATES,
            "the server is not ready: code 503; grps' own servers",
        ),
        ("error.malformed", failing("Predict", "UNKNOWN"), FAIL, "bytes that are not a GrpsMessage: UNKNOWN"),
    ],
}


@cases(OVER_GRPC)
async def test_over_grpc(check: str, change: ChangeMessage, verdict: Verdict, text: str, given: str | None) -> None:
    async with reference(check.partition(".")[0], "double") as upstream:
        with over_grpc(upstream, change) as address:
            model = "double" if check.startswith("tfs-grpc") else ""  # its servers do not list their models
            found = await asyncio.to_thread(asked, address, check, given, model)
    assert found.verdict == verdict, found
    assert text in found.reason


def written(schema: str, name: str, **fields: Any) -> bytes:
    raw: bytes = message(schema, name)(**fields).SerializeToString()
    return raw


def streamed(*ids: str) -> list[bytes]:
    """The replies of a V2 server to requests with these ids."""
    return [written(V2, "inference.ModelStreamInferResponse", infer_response={"id": each}) for each in ids]


@pytest.mark.parametrize(
    ("check", "stream", "verdict", "text"),
    [
        ("v2-grpc.stream", streamed("1", "2"), PASS, ""),
        ("v2-grpc.stream", streamed("2", "1"), FAIL, "the replies have the ids ['2', '1']"),
        (
            "v2-grpc.stream",
            [written(V2, "inference.ModelStreamInferResponse", error_message="no")],
            FAIL,
            "error_message ['no']",
        ),
        (
            "v2-grpc.stream",
            [written(V2, "inference.ModelInferResponse", model_name="double")],
            DEVIATES,
            "a reply is a plain ModelInferResponse, not a ModelStreamInferResponse",
        ),
        (
            "v2-grpc.stream",
            [written(V2, "inference.ModelInferResponse", model_name="double", model_version="1")],
            DEVIATES,
            "a reply is a plain ModelInferResponse (of 'double'), not a ModelStreamInferResponse",
        ),
        ("v2-grpc.stream", [b"\xff"], FAIL, "a reply has an unexpected format: Error parsing message"),
        ("v2-grpc.service.reflection", [b""], FAIL, "the services are []"),
        ("grps-grpc.predict.streaming", [], NOT_APPLICABLE, "the model streams no messages"),
        (
            "grps-grpc.predict.streaming",
            [written(GRPS, SERVICES[GRPS], status={"status": 2, "msg": "no"})],
            NOT_APPLICABLE,
            "the model does not stream: 'no'",
        ),
    ],
)
async def test_streams(check: str, stream: list[bytes], verdict: Verdict, text: str) -> None:
    async with reference(check.partition(".")[0], "double") as upstream:
        with over_grpc(upstream, same_message, stream) as address:
            found = await asyncio.to_thread(outcome, address, check)
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


def tlv(kind: int, data: bytes) -> ChangeBytes:
    """An inference response of MIP with one output."""
    return lambda sent, reply: packet(2, 1, struct.pack(">BBHII", 1, 1, 1, kind, len(data)) + data)


def only_first(sent: bytes, reply: bytes) -> bytes:
    """No reply to the second request of a connection, whose input has one bracket."""
    return reply if sent.count(b"[") == 1 else b""


def pong(sent: bytes, reply: bytes) -> bytes:
    """The reply to a ping alone, and to a ping with others, after which the connection is closed."""
    if len(sent) > 8 and sent[1] == 1:
        raise Last(reply[:8])
    return reply


ID = (7 << 32) + 2


def frame(body: bytes = b"", correlation_id: int = ID, **meta: Any) -> ChangeBytes:
    """A frame for each request."""
    raw = message(GRPS, "brpc.policy.RpcMeta")(correlation_id=correlation_id, **meta).SerializeToString()
    return lambda sent, reply: struct.pack(">4sII", b"PRPC", len(raw) + len(body), len(raw)) + raw + body


FINE = grps_message(status={"status": 1, "code": 200}).SerializeToString()
SUCCESS = frame(FINE)
OVER_TCP: dict[str, list[Row[ChangeBytes]]] = {
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
        ("ping", patched(3, 7), DEVIATES, "`reserved` of the reply is 7; expected 0"),
        ("ping.again", lambda sent, reply: reply if len(sent) == 8 else reply[:4], FAIL, NO_REPLY),
        ("inference", patched(0, 0), NOT_TESTED, "describe the inputs of one example with --input", ""),
        ("inference", lambda sent, reply: b"", FAIL, "the connection was closed without a reply"),
        ("inference", lambda sent, reply: packet(0, 4), FAIL, "ERROR_SHAPE for a valid request; set other inputs"),
        ("inference", tlv(2, b"["), FAIL, "an output of type JSON is not JSON: "),
        ("inference", tlv(9, b"1"), DEVIATES, "an output has the type 0x9; the known types are TEXT, JSON and IMAGE"),
        ("inference.several", only_first, DEVIATES, "after one request, like KubeMo's server"),
        ("inference.pipelined", pong, DEVIATES, "after one request, like KubeMo's server"),
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
        ("health.live", frame(gzip.compress(FINE), compress_type=2), PASS, ""),
        ("health.live", frame(zlib.compress(FINE), compress_type=3), PASS, ""),
        (
            "health.live",
            frame(FINE, compress_type=2),
            FAIL,
            "the payload of compress_type 2 is malformed: Not a",
        ),
        ("health.live", frame(FINE, compress_type=3), FAIL, "the payload of compress_type 3 is malformed: Error -3"),
        ("health.live", patched(12, 255), FAIL, "a reply has an unexpected format: Error parsing message"),
        (
            "frame.attachment",
            lambda sent, reply: SUCCESS(sent, reply) if b"attached" in sent else reply,
            FAIL,
            "the reply differs from the plain request's",
        ),
        (
            "frame.service-name",
            frame(response={"error_code": 1001, "error_text": "x"}),
            DEVIATES,
            "error_code 1001; brpc's own servers accept it",
        ),
        ("error.magic", lambda sent, reply: b"" if sent[:4] == b"XXXX" else reply, PASS, ""),
    ],
}


@cases(OVER_TCP)
async def test_over_byte_streams(
    check: str, change: ChangeBytes, verdict: Verdict, text: str, given: str | None
) -> None:
    usual = ("",) if check.endswith("server") else ("double-1", "x=FP64[2]")
    seconds = 0.5 if text == NO_REPLY else 30
    async with reference(check.partition(".")[0], "double") as upstream:
        with over_tcp(upstream, change) as address:
            found = await asyncio.to_thread(lambda: asked(address, check, given, *usual, seconds=seconds))
    assert found.verdict == verdict, found
    assert text in found.reason
