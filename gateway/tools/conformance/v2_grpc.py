"""Checks of V2 servers over gRPC. Section names are headings of the Predict Protocol, Version 2."""

from collections.abc import Sequence
from math import prod
from typing import Any

from gateway.tools.conformance.check import Suite, basis, deviate, not_applicable, not_tested, require
from gateway.tools.conformance.inputs import DATATYPES, InputSpec, Sample, as_bytes, unpacked
from gateway.tools.conformance.rpc import RpcReply, RpcServer
from gateway.tools.conformance.transports import GRPC, V2, message
from gateway.tools.conformance.v2 import UNKNOWN, V2Answer, V2Inference, V2Output, add_checks, same_outputs, samples

SERVICE = "/inference.GRPCInferenceService/"
CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
"""The typed field of each datatype. FP16 has no typed field."""


class V2GrpcServer(RpcServer):
    """A server, one of its models, and the inputs to send to it."""

    def call(self, method: str, **fields: Any) -> Any:
        """Return the response to a call that must succeed."""
        return self.decoded(method, self.reply(method, **fields))

    def reply(self, method: str, **fields: Any) -> RpcReply:
        """Return the reply to a call that can fail."""
        return self.send(SERVICE + method, message(V2, f"inference.{method}Request")(**fields))

    def decoded(self, method: str, reply: RpcReply) -> Any:
        """Return the message of a reply, whose status must be OK."""
        return self.parsed(method, reply, message(V2, f"inference.{method}Response")())

    @basis
    def model(self) -> str:
        if self.options.model:
            return self.options.model
        reply = self.reply("RepositoryIndex", ready=True)
        index = self.decoded("RepositoryIndex", reply).models if reply.code == "OK" else ()
        names = [each.name for each in index if each.state.endswith("READY") or not each.state]
        if not names:
            not_tested("the server lists no models; set --model")
        found: str = names[0]
        return found

    @basis
    def metadata(self) -> Any:
        return self.call("ModelMetadata", name=self.model)

    @property
    def versions(self) -> Sequence[str]:
        found: Sequence[str] = self.metadata.versions
        return found

    @property
    def described(self) -> tuple[list[Any], list[Any]]:
        inputs, outputs = self.metadata.inputs, self.metadata.outputs
        return [*map(_described, inputs)], [*map(_described, outputs)]

    @basis
    def tensors(self) -> list[Sample]:
        return samples(
            self.options, lambda: [InputSpec(name, kind, tuple(shape)) for name, kind, shape in self.described[0]]
        )

    def request(self, tensors: Sequence[Sample] | None = None, **more: Any) -> Any:
        """Return a ModelInferRequest with raw contents."""
        tensors = self.tensors if tensors is None else tensors
        fields = {"model_name": self.model, "id": "1", "inputs": [_head(each) for each in tensors], **more}
        return message(V2, "inference.ModelInferRequest")(**{"raw_input_contents": [e.raw for e in tensors], **fields})

    def send_inference(self, request: Any) -> RpcReply:
        """Return the reply to a ModelInferRequest, which can be an error."""
        return self.send(f"{SERVICE}ModelInfer", request)

    @basis
    def plain(self) -> V2Answer:
        return self.infer(V2Inference())

    def infer(self, inference: V2Inference) -> V2Answer:
        return self.answered(self.ask(inference))

    def ask(self, inference: V2Inference) -> RpcReply:
        kind = message(V2, "inference.InferParameter")
        more = {
            "id": inference.id,
            "model_name": inference.model or self.model,
            "model_version": inference.version,
            "outputs": [{"name": each} for each in inference.outputs],
            "parameters": {key: kind(**{_CHOICES[type(each)]: each}) for key, each in inference.parameters},
        }
        return self.send_inference(self.request(inference.tensors, **more))

    def ask_metadata(self, model: str, version: str = "") -> RpcReply:
        return self.reply("ModelMetadata", name=model, version=version)

    def error(self, reply: RpcReply) -> str:
        return "" if reply.code == "OK" else reply.code

    def answered(self, reply: RpcReply) -> V2Answer:
        return _answer(self.decoded("ModelInfer", reply))

    def check_outputs(self) -> None:
        _outputs(self.plain.raw)


_CHOICES = {str: "string_param", int: "int64_param", bool: "bool_param"}
"""The InferParameter field for each type of value."""

SUITE = Suite("v2-grpc", V2GrpcServer)
check = SUITE.check


@check("health.live", "GRPC / Health / Server Live", "live: true if the inference server is live")
def live(server: V2GrpcServer) -> None:
    require(server.call("ServerLive").live, "`live` is false")


@check("health.ready", "GRPC / Health / Server Ready", "ready: true if the inference server is ready")
def ready(server: V2GrpcServer) -> None:
    require(server.call("ServerReady").ready, "`ready` is false")


@check("health.model-ready", "GRPC / Health / Model Ready", "ready: true if the model is ready")
def model_ready(server: V2GrpcServer) -> None:
    require(server.call("ModelReady", name=server.model).ready, "`ready` is false")


@check("health.unknown-model", "GRPC / Health / Model Ready", "ready: false if not ready, or a code other than OK")
def unknown_is_not_ready(server: V2GrpcServer) -> None:
    reply = server.reply("ModelReady", name=UNKNOWN)
    if reply.code == "OK":
        require(not server.decoded("ModelReady", reply).ready, "an unknown model is ready")
    else:
        server.refused(reply, "an unknown model", "NOT_FOUND")


@check("metadata.server", "GRPC / Server Metadata", "the server's name, version and extensions")
def server_metadata(server: V2GrpcServer) -> None:
    metadata = server.call("ServerMetadata")
    require(metadata.name, "`name` is empty")
    if not metadata.version:
        deviate("`version` is empty")


@check("metadata.model", "GRPC / Model Metadata", "the model's name, versions, platform, inputs and outputs")
def model_metadata(server: V2GrpcServer) -> None:
    found = server.metadata.name
    require(found == server.model, f"`name` is {found!r}; expected {server.model!r}")
    if not server.metadata.platform:
        deviate("`platform` is empty")


@check("infer.raw", "GRPC / Inference", "raw_input_contents: data for each tensor in the same order as inputs")
def infer_raw(server: V2GrpcServer) -> None:
    found = server.plain.raw.model_name
    require(found == server.model, f"`model_name` is {found!r}; expected {server.model!r}")
    _outputs(server.plain.raw)


RULES = {
    "metadata.tensors": ("GRPC / Model Metadata", "each tensor has name, datatype and shape; variable sizes are -1"),
    "metadata.versions": ("GRPC / Model Metadata", "versions of the model available on the server"),
    "infer.outputs-described": ("GRPC / Model Metadata", "the model's outputs"),
    "infer.id": ("GRPC / Inference", "id: if specified, it will be returned in the response"),
    "infer.id-text": ("GRPC / Inference", "id is a string with any characters"),
    "infer.id-absent": ("GRPC / Inference", "id: the id of the inference request if one was specified"),
    "infer.requested-output": ("GRPC / Inference", "outputs: the requested output tensors"),
    "infer.parameters": ("GRPC / Parameters", "a boolean, an int64 or a string; servers can support some of them"),
    "infer.version": ("GRPC / Inference", "model_version: the version of the model to use"),
    "error.unknown-model": ("GRPC / Inference", "errors are indicated by the google.rpc.Status"),
    "error.unknown-version": ("GRPC / Inference", "model_version: the version of the model to use"),
    "error.missing-input": ("GRPC / Model Metadata", "the model's inputs"),
    "error.unknown-input": ("GRPC / Model Metadata", "the model's inputs"),
    "error.unknown-output": ("GRPC / Inference", "outputs: the requested output tensors"),
    "error.other-datatype": ("GRPC / Model Metadata", "datatype: the tensor data type"),
}
"""The section and the rule of each check in `v2`."""
add_checks(SUITE, RULES)


@check("infer.typed", "GRPC / Tensor Data", "InferTensorContents: data in a format that matches the tensor's data type")
def infer_typed(server: V2GrpcServer) -> None:
    found = server.answered(server.send_inference(_typed(server)))
    same_outputs(server.plain, found, "the request with typed contents")


@check("infer.one-form", "GRPC / Inference", "contents must not be specified where raw_output_contents is used")
def one_form(server: V2GrpcServer) -> None:
    both = [each.name for each in server.plain.raw.outputs if each.HasField("contents")]
    if server.plain.raw.raw_output_contents and both:
        filled = [e.name for e in server.plain.raw.outputs if e.HasField("contents") and e.contents.ByteSize()]
        require(not filled, f"outputs with both raw and typed contents: {', '.join(filled)}")
        deviate(f"an empty `contents` next to raw contents: {', '.join(both)}")


@check("stream", "Extension: ModelStreamInfer", "a stream returns the responses in the order of the requests")
def stream(server: V2GrpcServer) -> None:
    reply = server.stream(f"{SERVICE}ModelStreamInfer", [server.request(id=each) for each in ("1", "2")])
    if reply.code == "UNIMPLEMENTED":
        not_applicable("ModelStreamInfer is UNIMPLEMENTED")
    require(reply.code == "OK", f"{reply.code}, {reply.details[:120]!r}; expected OK")
    kind = message(V2, "inference.ModelStreamInferResponse")
    found = []
    for each in reply.messages:
        try:
            found.append(kind.FromString(each))
        except Exception:
            plain = message(V2, "inference.ModelInferResponse").FromString(each)
            deviate(f"a reply is a plain ModelInferResponse (of {plain.model_name!r}), not a ModelStreamInferResponse")
    if found and found[0].error_message == server.model and not found[0].infer_response.outputs:
        deviate("a reply is a plain ModelInferResponse, not a ModelStreamInferResponse")
    errors = [each.error_message for each in found if each.error_message]
    require(not errors, f"error_message {errors[:1]}")
    ids = [each.infer_response.id for each in found]
    require(ids == ["1", "2"], f"the replies have the ids {ids}; the requests had '1' and '2'")


@check("error.no-inputs", "GRPC / Model Metadata", "the model's inputs")
def no_inputs(server: V2GrpcServer) -> None:
    server.refused(server.send_inference(server.request([])), "no inputs")


@check("error.unknown-datatype", "Tensor Data Types", "a datatype is one of the datatypes in the table")
def unknown_datatype(server: V2GrpcServer) -> None:
    request = server.request()
    request.inputs[0].datatype = "FP33"
    server.refused(server.send_inference(request), "the datatype FP33")


@check("error.raw-size", "GRPC / Inference", "the size of raw contents must match what shape and data type expect")
def raw_size(server: V2GrpcServer) -> None:
    request = server.request()
    request.raw_input_contents[0] += b"\0"
    server.refused(server.send_inference(request), "raw contents one byte too long")


@check("error.raw-count", "GRPC / Inference", "raw_input_contents must be initialized with data for each tensor")
def raw_count(server: V2GrpcServer) -> None:
    request = server.request()
    request.raw_input_contents.append(b"")
    server.refused(server.send_inference(request), "more raw contents than inputs", lenient=True)


@check("error.raw-and-typed", "GRPC / Inference", "with raw contents, contents must not be specified for any input")
def raw_and_typed(server: V2GrpcServer) -> None:
    request = _typed(server)
    request.raw_input_contents.extend(each.raw for each in server.tensors)
    server.refused(server.send_inference(request), "raw and typed contents")


@check("error.typed-size", "GRPC / Tensor Data", "the size must match what is expected by the tensor's shape")
def typed_size(server: V2GrpcServer) -> None:
    request = _typed(server)
    field = CONTENTS[server.tensors[0].datatype]
    contents = getattr(request.inputs[0].contents, field)
    if not contents:
        not_applicable("the first input is empty")
    contents.append(contents[0])
    server.refused(server.send_inference(request), "one element more than the shape requires")


@check("error.malformed", "GRPC", "requests are protobuf messages")
def malformed(server: V2GrpcServer) -> None:
    reply = server.send(f"{SERVICE}ModelInfer", b"\x0a\xff\xff\xff\xff\x0fx")
    server.refused(reply, "bytes that are not a protobuf message", "INTERNAL", "INVALID_ARGUMENT")


@check("error.unknown-method", "GRPC", "gRPC: a call of an unknown method gets UNIMPLEMENTED")
def unknown_method(server: V2GrpcServer) -> None:
    server.refused(server.send(f"{SERVICE}NoSuchMethod", b""), "an unknown method", "UNIMPLEMENTED")


@check("limit.long-name", "GRPC / Model Metadata", "name is a string; the server stays available after a long name")
def long_name(server: V2GrpcServer) -> None:
    reply = server.reply("ModelMetadata", name="n" * 4000)
    server.refused(reply, "a name of 4,000 characters", "NOT_FOUND", "INVALID_ARGUMENT")


@check("service.health", "gRPC: grpc.health.v1", "Check reports whether the server is SERVING")
def health_service(server: V2GrpcServer) -> None:
    server.check_health()


@check("service.reflection", "gRPC: grpc.reflection", "list_services returns the server's services")
def reflection(server: V2GrpcServer) -> None:
    request = message(GRPC, "grpc.reflection.v1.ServerReflectionRequest")(list_services="")
    reply = server.stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", [request])
    if reply.code == "UNIMPLEMENTED":
        not_applicable("the server does not have grpc.reflection.v1")
    require(reply.code == "OK", f"{reply.code}; expected OK")
    found = message(GRPC, "grpc.reflection.v1.ServerReflectionResponse").FromString(reply.messages[0])
    names = [each.name for each in found.list_services_response.service]
    require("inference.GRPCInferenceService" in names, f"the services are {names}")


def _outputs(answer: Any) -> dict[str, V2Output]:
    raw, outputs = answer.raw_output_contents, answer.outputs
    require(outputs, "the response has no outputs")
    require(len(raw) in (0, len(outputs)), f"{len(raw)} raw_output_contents for {len(outputs)} outputs")
    found = {}
    for at, each in enumerate(outputs):
        require(each.datatype in DATATYPES, f"output {each.name!r} has the datatype {each.datatype!r}")
        if raw:
            values = unpacked(each.datatype, raw[at])
        else:
            require(each.datatype in CONTENTS, f"output {each.name!r}: FP16 must be raw")
            values = list(getattr(each.contents, CONTENTS[each.datatype]))
        count = prod(each.shape)
        require(
            len(values) == count,
            f"output {each.name!r} has {len(values)} elements; its shape {list(each.shape)} requires {count}",
        )
        found[each.name] = V2Output(each.datatype, list(each.shape), values)
    return found


def _answer(response: Any) -> V2Answer:
    return V2Answer(response, response.id, bool(response.id), response.model_version, lambda: _outputs(response))


def _described(tensor: Any) -> tuple[str, str, list[int]]:
    return tensor.name, tensor.datatype, list(tensor.shape)


def _typed(server: V2GrpcServer) -> Any:
    if any(each.datatype not in CONTENTS for each in server.tensors):
        not_applicable("FP16 must be raw")
    request = server.request(raw_input_contents=[])
    for head, each in zip(request.inputs, server.tensors, strict=True):
        values = [as_bytes(value) for value in each.values] if each.datatype == "BYTES" else each.values
        getattr(head.contents, CONTENTS[each.datatype]).extend(values)
    return request


def _head(tensor: Sample) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
