"""Checks of servers with TensorFlow Serving's gRPC services. Section names refer to a service and its method, or to a
message."""

import struct
from math import prod
from typing import Any

from gateway.tools.conformance.check import Suite, basis, deviate, fail, not_applicable, not_tested, require
from gateway.tools.conformance.inputs import DATATYPES, InputSpec, Sample, Values, as_bytes, same, unpacked
from gateway.tools.conformance.rpc import RpcReply, RpcServer
from gateway.tools.conformance.transports import TENSORFLOW, message
from gateway.tools.conformance.v2 import UNKNOWN, UNKNOWN_VERSION, samples

PREDICTION = "/tensorflow.serving.PredictionService/"
MODELS = "/tensorflow.serving.ModelService/"
REQUESTS = {
    "Predict": "PredictRequest", "Classify": "ClassificationRequest", "Regress": "RegressionRequest",
    "GetModelMetadata": "GetModelMetadataRequest", "GetModelStatus": "GetModelStatusRequest",
}  # fmt: skip
RESPONSES = {method: name.replace("Request", "Response") for method, name in REQUESTS.items()}
AVAILABLE = 30

TYPES = {
    "BOOL": "DT_BOOL", "INT8": "DT_INT8", "INT16": "DT_INT16", "INT32": "DT_INT32", "INT64": "DT_INT64",
    "UINT8": "DT_UINT8", "UINT16": "DT_UINT16", "UINT32": "DT_UINT32", "UINT64": "DT_UINT64", "FP16": "DT_HALF",
    "FP32": "DT_FLOAT", "FP64": "DT_DOUBLE", "BYTES": "DT_STRING",
}  # fmt: skip
LISTS = {
    "BOOL": "bool_val", "INT8": "int_val", "INT16": "int_val", "INT32": "int_val", "INT64": "int64_val",
    "UINT8": "int_val", "UINT16": "int_val", "UINT32": "uint32_val", "UINT64": "uint64_val", "FP16": "half_val",
    "FP32": "float_val", "FP64": "double_val", "BYTES": "string_val",
}  # fmt: skip


class TensorFlowServer(RpcServer):
    """A server, one of its models, and the inputs to send to it."""

    def ask(self, method: str, **fields: Any) -> RpcReply:
        """Return the reply to a call that can fail."""
        service = MODELS if method == "GetModelStatus" else PREDICTION
        return self.send(service + method, _message(REQUESTS[method])(**fields))

    def decoded(self, method: str, reply: RpcReply) -> Any:
        """Return the message of a reply, whose status must be OK."""
        return self.parsed(method, reply, _message(RESPONSES[method])())

    @basis
    def model(self) -> str:
        if not self.options.model:
            not_tested("the server lists no models; set --model")
        return self.options.model

    @basis
    def metadata(self) -> Any:
        reply = self.ask("GetModelMetadata", model_spec={"name": self.model}, metadata_field=["signature_def"])
        return self.decoded("GetModelMetadata", reply)

    @basis
    def signatures(self) -> Any:
        """The signatures by name."""
        found = _message("SignatureDefMap")()
        require("signature_def" in self.metadata.metadata, "`metadata` has no `signature_def`")
        require(self.metadata.metadata["signature_def"].Unpack(found), "`signature_def` is not a SignatureDefMap")
        return found.signature_def

    @basis
    def signature(self) -> Any:
        """The signature that calls use."""
        if "serving_default" not in self.signatures:
            not_tested(f"the model has no signature serving_default; it has {', '.join(sorted(self.signatures))}")
        return self.signatures["serving_default"]

    @basis
    def tensors(self) -> list[Sample]:
        return samples(self.options, self._described)

    def _described(self) -> list[InputSpec]:
        known = {number: datatype for datatype, number in ((each, _number(each)) for each in TYPES)}
        found = []
        for name, info in sorted(self.signature.inputs.items()):
            if info.dtype not in known or info.tensor_shape.unknown_rank:
                not_tested(f"input {name!r} has no known data type or rank; describe it with --input")
            found.append(InputSpec(name, known[info.dtype], tuple(each.size for each in info.tensor_shape.dim)))
        return found

    def predict(self, tensors: list[Sample] | None = None, *, lists: bool = False, **more: Any) -> RpcReply:
        """Return the reply to a request with the inputs in `tensor_content`, or in lists. `more` contains additional
        fields, and `spec` contains the fields of the ModelSpec."""
        given = self.tensors if tensors is None else tensors
        inputs = {each.name: _proto(each, lists=lists) for each in given}
        spec = {"name": self.model, **more.pop("spec", {})}
        return self.ask("Predict", **{"model_spec": spec, "inputs": inputs, **more})

    @basis
    def answer(self) -> Any:
        return self.decoded("Predict", self.predict())


SUITE = Suite("tfs-grpc", TensorFlowServer)
check = SUITE.check


def _message(name: str) -> Any:
    return message(TENSORFLOW, f"tensorflow.serving.{name}")


def _number(datatype: str) -> int:
    kinds = message(TENSORFLOW, "tensorflow.TensorProto").DESCRIPTOR.fields_by_name["dtype"].enum_type
    found: int = kinds.values_by_name[TYPES[datatype]].number
    return found


def _proto(tensor: Sample, *, lists: bool, values: Values | None = None) -> Any:
    """Return the TensorProto of a tensor. `values` replaces the tensor's own values."""
    made = message(TENSORFLOW, "tensorflow.TensorProto")(dtype=TYPES[tensor.datatype])
    made.tensor_shape.SetInParent()
    for size in tensor.shape:
        made.tensor_shape.dim.add(size=size)
    if lists or tensor.datatype == "BYTES":
        chosen = tensor.values if values is None else values
        getattr(made, LISTS[tensor.datatype]).extend(_listed(tensor.datatype, chosen))
    else:
        made.tensor_content = tensor.raw
    return made


def _listed(datatype: str, values: Values) -> Values:
    if datatype == "BYTES":
        return [as_bytes(each) for each in values]
    return [struct.unpack("<H", struct.pack("<e", each))[0] for each in values] if datatype == "FP16" else values


# --- ModelService ---


@check(
    "status.available",
    "ModelService / GetModelStatus",
    "the reply contains the state of each version; AVAILABLE is 30",
)
def status(server: TensorFlowServer) -> None:
    reply = server.ask("GetModelStatus", model_spec={"name": server.model})
    found = server.decoded("GetModelStatus", reply).model_version_status
    require(found, "`model_version_status` is empty")
    require(any(each.state == AVAILABLE for each in found), f"no version is AVAILABLE: {[e.state for e in found]}")


@check("status.unknown-model", "ModelService / GetModelStatus", "an unknown model gets NOT_FOUND")
def unknown_status(server: TensorFlowServer) -> None:
    server.refused(server.ask("GetModelStatus", model_spec={"name": UNKNOWN}), "an unknown model", "NOT_FOUND")


@check("status.no-model", "ModelService / GetModelStatus", "a request without a ModelSpec gets INVALID_ARGUMENT")
def status_of_nothing(server: TensorFlowServer) -> None:
    server.refused(server.ask("GetModelStatus"), "a status request without a model")


# --- GetModelMetadata ---


@check("metadata.model", "PredictionService / GetModelMetadata", "the name and the version of the model")
def metadata(server: TensorFlowServer) -> None:
    spec = server.metadata.model_spec
    require(spec.name == server.model, f"`name` is {spec.name!r}; expected {server.model!r}")


@check("metadata.signatures", "PredictionService / GetModelMetadata", "signature_def: inputs and outputs by name")
def signatures(server: TensorFlowServer) -> None:
    require(server.signatures, "there are no signatures")
    for name, each in server.signatures.items():
        require(each.inputs and each.outputs, f"signature {name!r} has no inputs or no outputs")


@check("metadata.tensors", "TensorInfo", "each tensor has a data type and a shape; variable sizes are -1")
def tensor_infos(server: TensorFlowServer) -> None:
    for name, each in (*server.signature.inputs.items(), *server.signature.outputs.items()):
        require(each.dtype, f"tensor {name!r} has no data type")
        wrong = [dim.size for dim in each.tensor_shape.dim if dim.size < -1]
        require(not wrong, f"tensor {name!r} has dimensions {wrong}; expected -1 or greater")


@check(
    "metadata.no-field",
    "PredictionService / GetModelMetadata",
    "without a metadata_field, the reply is INVALID_ARGUMENT",
)
def no_field(server: TensorFlowServer) -> None:
    server.refused(server.ask("GetModelMetadata", model_spec={"name": server.model}), "no metadata_field")


@check("metadata.unknown-field", "PredictionService / GetModelMetadata", "signature_def is the only metadata_field")
def unknown_field(server: TensorFlowServer) -> None:
    reply = server.ask("GetModelMetadata", model_spec={"name": server.model}, metadata_field=["no_such_field"])
    server.refused(reply, "an unknown metadata_field")


# --- Predict ---


@check("predict.content", "TensorProto", "tensor_content: the elements in row-major order, little-endian")
def predict_content(server: TensorFlowServer) -> None:
    _outputs(server.answer)


@check("predict.lists", "TensorProto", "float_val and others: the elements in the list for the data type")
def predict_lists(server: TensorFlowServer) -> None:
    found = server.decoded("Predict", server.predict(lists=True))
    _same_outputs(server.answer, found, "the request with lists")


@check("predict.short-list", "TensorProto", "the last element of a list that is shorter than the shape is repeated")
def predict_short_list(server: TensorFlowServer) -> None:
    if all(prod(each.shape) < 2 for each in server.tensors):
        not_applicable("each input has at most one element")
    equal = [Sample(e.name, e.datatype, e.shape, e.values[:1] * len(e.values)) for e in server.tensors]
    whole = server.decoded("Predict", server.predict(equal, lists=True))
    inputs = {each.name: _proto(each, lists=True, values=each.values[:1]) for each in equal}
    found = server.decoded("Predict", server.predict(inputs=inputs))
    _same_outputs(whole, found, "the request with short lists")


@check("predict.model-spec", "ModelSpec", "the reply contains the model's name, and the version that ran")
def predict_spec(server: TensorFlowServer) -> None:
    spec = server.answer.model_spec
    require(spec.name == server.model, f"`name` is {spec.name!r}; expected {server.model!r}")
    if spec.signature_name != "serving_default":
        deviate(f"`signature_name` is {spec.signature_name!r}; expected 'serving_default'")


@check("predict.default-signature", "ModelSpec", "without a signature_name, the server uses serving_default")
def default_signature(server: TensorFlowServer) -> None:
    reply = server.predict(spec={"signature_name": "serving_default"})
    _same_outputs(server.answer, server.decoded("Predict", reply), "the request for serving_default")


@check("predict.version", "ModelSpec", "version: a number, which the reply repeats")
def version(server: TensorFlowServer) -> None:
    spec = server.metadata.model_spec
    if not spec.HasField("version"):
        not_applicable("the metadata contains no version")
    found = server.decoded("Predict", server.predict(spec={"version": {"value": spec.version.value}})).model_spec
    told = found.version.value if found.HasField("version") else None
    require(told == spec.version.value, f"`version` is {told}; version {spec.version.value} was requested")


@check("predict.outputs-described", "SignatureDef", "the outputs of the signature")
def outputs_described(server: TensorFlowServer) -> None:
    described, found = set(server.signature.outputs), set(server.answer.outputs)
    require(found == described, f"the outputs are {sorted(found)}; the signature has {sorted(described)}")
    for name, each in server.answer.outputs.items():
        expected = server.signature.outputs[name].dtype
        require(each.dtype == expected, f"output {name!r} has data type {each.dtype}; expected {expected}")


@check("predict.output-filter", "PredictRequest", "output_filter: the requested outputs")
def output_filter(server: TensorFlowServer) -> None:
    wanted = min(server.answer.outputs)
    found = sorted(server.decoded("Predict", server.predict(output_filter=[wanted])).outputs)
    require(found == [wanted], f"output {wanted!r} was requested; the response contains {found}")


SUITE.check_datatypes(
    "predict.datatype",
    "DataType",
    {each: (each, f"{TYPES[each]} is a tensor data type") for each in DATATYPES},
    lambda server: _outputs(server.answer),
)


# --- errors ---


@check("error.unknown-model", "PredictionService / Predict", "an unknown model gets NOT_FOUND")
def unknown_model(server: TensorFlowServer) -> None:
    tensor = Sample("x", "FP32", (1,), [1.0])
    server.refused(server.predict([tensor], spec={"name": UNKNOWN}), "an unknown model", "NOT_FOUND")


@check("error.unknown-version", "ModelSpec", "an unknown version gets NOT_FOUND")
def unknown_version(server: TensorFlowServer) -> None:
    reply = server.predict(spec={"version": {"value": int(UNKNOWN_VERSION)}})
    server.refused(reply, "a version that does not exist", "NOT_FOUND")


@check("error.unknown-label", "ModelSpec", "an unknown version_label gets INVALID_ARGUMENT")
def unknown_label(server: TensorFlowServer) -> None:
    reply = server.predict(spec={"version_label": "no-such-label"})
    server.refused(reply, "a label that does not exist", "INVALID_ARGUMENT", "NOT_FOUND")


@check("error.unknown-signature", "ModelSpec", "an unknown signature_name gets FAILED_PRECONDITION")
def unknown_signature(server: TensorFlowServer) -> None:
    reply = server.predict(spec={"signature_name": "no_such_signature"})
    server.refused(reply, "a signature that does not exist", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND")


@check("error.no-name", "ModelSpec", "a ModelSpec without a name gets INVALID_ARGUMENT")
def no_name(server: TensorFlowServer) -> None:
    server.refused(server.predict(spec={"name": ""}), "no model name")


@check("error.no-spec", "PredictionService / Predict", "a request without a ModelSpec gets INVALID_ARGUMENT")
def no_spec(server: TensorFlowServer) -> None:
    server.refused(server.ask("Predict"), "no ModelSpec")


@check("error.no-inputs", "SignatureDef", "a request contains all signature inputs without a default")
def no_inputs(server: TensorFlowServer) -> None:
    server.refused(server.predict([]), "no inputs")


@check("error.missing-input", "SignatureDef", "a request contains all signature inputs without a default")
def missing_input(server: TensorFlowServer) -> None:
    if len(server.tensors) < 2:
        not_applicable("the model has one input")
    server.refused(server.predict(server.tensors[1:]), f"no input {server.tensors[0].name!r}")


@check("error.unknown-input", "SignatureDef", "a request contains only inputs of the signature")
def unknown_input(server: TensorFlowServer) -> None:
    renamed = [Sample(f"no_such_{e.name}", e.datatype, e.shape, e.values) for e in server.tensors]
    server.refused(server.predict(renamed), "inputs with unknown names")


@check("error.unknown-output", "PredictRequest", "output_filter contains only outputs of the signature")
def unknown_output(server: TensorFlowServer) -> None:
    server.refused(server.predict(output_filter=["no_such_output"]), "an output with an unknown name")


@check("error.content-size", "TensorProto", "the size of tensor_content matches the shape and the data type")
def content_size(server: TensorFlowServer) -> None:
    numbers = [each for each in server.tensors if each.datatype != "BYTES"]
    if not numbers:
        not_applicable("the model has no numeric input")
    inputs = {each.name: _proto(each, lists=False) for each in server.tensors}
    inputs[numbers[0].name].tensor_content += b"\0"
    server.refused(server.predict(inputs=inputs), "tensor_content one byte too long")


@check("error.negative-size", "TensorShapeProto", "the dimensions of a tensor are at least 0")
def negative_size(server: TensorFlowServer) -> None:
    inputs = {each.name: _proto(each, lists=False) for each in server.tensors}
    inputs[server.tensors[0].name].tensor_shape.dim.add(size=-1)
    server.refused(server.predict(inputs=inputs), "a dimension of -1")


@check("error.no-data-type", "TensorProto", "a tensor has a data type")
def no_data_type(server: TensorFlowServer) -> None:
    inputs = {each.name: _proto(each, lists=False) for each in server.tensors}
    inputs[server.tensors[0].name].dtype = 0
    server.refused(server.predict(inputs=inputs), "the data type DT_INVALID")


@check("error.no-examples", "PredictionService / Classify", "an Input has at least one example")
def no_examples(server: TensorFlowServer) -> None:
    for method in ("Classify", "Regress"):
        server.refused(server.ask(method, model_spec={"name": server.model}), f"{method} without examples")


@check("error.malformed", "PredictionService / Predict", "requests are protobuf messages")
def malformed(server: TensorFlowServer) -> None:
    reply = server.send(f"{PREDICTION}Predict", b"\x0a\xff\xff\xff\xff\x0fx")
    server.refused(reply, "bytes that are not a protobuf message", "INTERNAL", "INVALID_ARGUMENT")


@check("error.unknown-method", "PredictionService", "gRPC: a call of an unknown method gets UNIMPLEMENTED")
def unknown_method(server: TensorFlowServer) -> None:
    server.refused(server.send(f"{PREDICTION}NoSuchMethod", b""), "an unknown method", "UNIMPLEMENTED")


@check("limit.long-name", "ModelSpec", "name is a string; the server stays available after a long name")
def long_name(server: TensorFlowServer) -> None:
    reply = server.ask("GetModelStatus", model_spec={"name": "n" * 4000})
    server.refused(reply, "a name of 4,000 characters", "NOT_FOUND", "INVALID_ARGUMENT")


@check("service.health", "gRPC: grpc.health.v1", "Check reports whether the server is SERVING; off by default")
def health_service(server: TensorFlowServer) -> None:
    server.check_health()


def _outputs(answer: Any) -> dict[str, tuple[str, Values]]:
    """Return the datatype and the elements of each output."""
    require(answer.outputs, "the response has no outputs")
    known = {_number(each): each for each in TYPES}
    found = {}
    for name, each in answer.outputs.items():
        require(each.dtype in known, f"output {name!r} has data type {each.dtype}")
        datatype = known[each.dtype]
        count = prod(dim.size for dim in each.tensor_shape.dim)
        values = _values(datatype, each)
        require(len(values) <= count, f"output {name!r} has {len(values)} elements; its shape requires {count}")
        found[name] = (datatype, [*values, *values[-1:] * (count - len(values))])
    return found


def _values(datatype: str, proto: Any) -> Values:
    if proto.tensor_content and datatype != "BYTES":
        try:
            return unpacked(datatype, proto.tensor_content)
        except ValueError as error:
            fail(f"tensor_content: {error}")
    values = list(getattr(proto, LISTS[datatype]))
    return [struct.unpack("<e", struct.pack("<H", each))[0] for each in values] if datatype == "FP16" else values


def _same_outputs(expected: Any, found: Any, what: str) -> None:
    ours, theirs = _outputs(expected), _outputs(found)
    require(ours.keys() == theirs.keys(), f"{what} gets outputs {sorted(theirs)}; the plain one gets {sorted(ours)}")
    for name, (datatype, values) in ours.items():
        require(same(datatype, values, theirs[name][1]), f"{what}: output {name!r} differs from the plain request's")
