"""Drive the stubs of `tensorflow-serving-api`, in the peer's own environment.

Takes `address, steps`, and gives a list with one result per step, `{"error": {"code", "text"}}` where the call failed.
A step is `{"op": METHOD, "spec": {...}, ...}`, its spec a ModelSpec in protobuf's JSON:

    {"op": "Predict", "inputs": {name: ARRAY}, "filter": [name]}     {"outputs": {name: ARRAY}, "spec": {..}}
    {"op": "Classify", "examples": [EXAMPLE], "context": EXAMPLE}    {"result": [[[label, score], ..], ..], "spec"}
    {"op": "Regress", "examples": [EXAMPLE]}                         {"result": [value, ..], "spec": {..}}
    {"op": "MultiInference", "tasks": [[method, spec]], "examples": [EXAMPLE]}   [{"result", "spec"}, ..]
    {"op": "GetModelMetadata", "fields": [name]}                     the message in protobuf's JSON, signatures unpacked
    {"op": "GetModelStatus"}                                         [[version, state], ..]
    {"op": "HandleReloadConfigRequest"}
    {"op": "health", "service": name}                                a status of grpc.health.v1
    {"op": "write", "spec": {..}, "inputs": {name: ARRAY}}           a PredictRequest in hexadecimal, not sent
    {"op": "read", "message": hexadecimal}                           {name: ARRAY}, of a PredictResponse

An ARRAY is `{"dtype", "shape", "values"}`, of strings in Latin-1; `"as": "list"` sends a short list as it is, with
`tensor_shape` beside it. An EXAMPLE is `{name: [numbers or texts]}`. Tensors are made and read as TensorFlow's own
`make_tensor_proto` and `make_ndarray` do.
"""

import grpc
import numpy as np
from google.protobuf.json_format import MessageToDict, ParseDict
from tensorflow.core.example import example_pb2
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

LISTS = {
    "DT_FLOAT": ("float_val", "<f4"), "DT_DOUBLE": ("double_val", "<f8"), "DT_INT32": ("int_val", "<i4"),
    "DT_INT16": ("int_val", "<i2"), "DT_INT8": ("int_val", "i1"), "DT_UINT8": ("int_val", "u1"),
    "DT_UINT16": ("int_val", "<u2"), "DT_INT64": ("int64_val", "<i8"), "DT_UINT32": ("uint32_val", "<u4"),
    "DT_UINT64": ("uint64_val", "<u8"), "DT_BOOL": ("bool_val", "?"), "DT_HALF": ("half_val", "<f2"),
    "DT_STRING": ("string_val", object),
}  # fmt: skip
IN_LISTS = {"DT_BOOL", "DT_STRING", "DT_UINT16"}
"""The data types that never go as `tensor_content`."""


def proto_of(told):
    dtype = told["dtype"]
    member, kind = LISTS[dtype]
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DataType.Value(dtype))
    for size in told["shape"]:
        proto.tensor_shape.dim.add(size=size)
    values = [each.encode("latin-1") for each in told["values"]] if kind is object else told["values"]
    if dtype not in IN_LISTS and len(values) > 1 and told.get("as") != "list":
        proto.tensor_content = np.array(values, kind).tobytes()
    elif dtype == "DT_HALF":
        proto.half_val.extend(np.array(values, kind).view("<u2").tolist())
    else:
        getattr(proto, member).extend(values)
    return proto


def array_of(proto):
    dtype = types_pb2.DataType.Name(proto.dtype)
    member, kind = LISTS[dtype]
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_content:
        values = np.frombuffer(proto.tensor_content, kind).tolist()
    elif dtype == "DT_HALF":
        values = np.array(list(proto.half_val), "<u2").view("<f2").tolist()
    else:
        values = list(getattr(proto, member))
    size = int(np.prod(shape, dtype=np.int64))
    if len(values) > size:
        raise ValueError(f"{len(values)} values for the shape {shape}")
    if values:
        values += [values[-1]] * (size - len(values))
    if kind is object:
        values = [each.decode("latin-1") for each in values]
    return {
        "dtype": dtype,
        "shape": shape,
        "values": values,
        "member": "tensor_content" if proto.tensor_content else member,
    }


def example_of(told):
    example = example_pb2.Example()
    for name, values in told.items():
        feature = example.features.feature[name]
        if all(isinstance(each, str) for each in values):
            feature.bytes_list.value.extend(each.encode() for each in values)
        elif any(isinstance(each, float) for each in values):
            feature.float_list.value.extend(values)
        else:
            feature.int64_list.value.extend(values)
    return example


def fill(given, step):
    examples = [example_of(each) for each in step["examples"]]
    if "context" in step:
        given.example_list_with_context.context.CopyFrom(example_of(step["context"]))
        given.example_list_with_context.examples.extend(examples)
    else:
        given.example_list.examples.extend(examples)


def spec_of(step):
    return ParseDict(step.get("spec", {}), model_pb2.ModelSpec())


def as_json(message):
    return MessageToDict(message, preserving_proto_field_name=True)


def result_of(message):
    if isinstance(message, regression_pb2.RegressionResult):
        return [each.value for each in message.regressions]
    return [[[each.label, each.score] for each in row.classes] for row in message.classifications]


METHODS = {
    "Predict": "predict",
    "Classify": "classify",
    "Regress": "regress",
    "MultiInference": "multi_inference",
    "GetModelMetadata": "get_model_metadata",
    "GetModelStatus": "get_model_status",
    "HandleReloadConfigRequest": "handle_reload_config_request",
    "health": "health",
    "write": "write",
    "read": "read",
}


def predict_of(step):
    request = predict_pb2.PredictRequest(model_spec=spec_of(step), output_filter=step.get("filter", ()))
    for name, array in step["inputs"].items():
        request.inputs[name].CopyFrom(proto_of(array))
    return request


class Calls:
    def __init__(self, channel):
        self._channel = channel
        self._prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(channel)

    def run(self, step):
        try:
            return getattr(self, METHODS[step["op"]])(step)
        except grpc.RpcError as error:
            return {"error": {"code": error.code().name, "text": error.details()}}

    def write(self, step):
        return predict_of(step).SerializeToString().hex()

    def read(self, step):
        message = predict_pb2.PredictResponse.FromString(bytes.fromhex(step["message"]))
        return {name: array_of(each) for name, each in message.outputs.items()}

    def predict(self, step):
        reply = self._prediction.Predict(predict_of(step))
        outputs = {name: array_of(each) for name, each in reply.outputs.items()}
        return {"outputs": outputs, "spec": as_json(reply.model_spec)}

    def classify(self, step):
        return self._on_examples(step, classification_pb2.ClassificationRequest(model_spec=spec_of(step)))

    def regress(self, step):
        return self._on_examples(step, regression_pb2.RegressionRequest(model_spec=spec_of(step)))

    def _on_examples(self, step, request):
        fill(request.input, step)
        reply = getattr(self._prediction, step["op"])(request)
        return {"result": result_of(reply.result), "spec": as_json(reply.model_spec)}

    def multi_inference(self, step):
        request = inference_pb2.MultiInferenceRequest()
        for method, spec in step["tasks"]:
            request.tasks.add(method_name=method, model_spec=spec_of({"spec": spec}))
        fill(request.input, step)
        return [
            {"result": result_of(getattr(each, each.WhichOneof("result"))), "spec": as_json(each.model_spec)}
            for each in self._prediction.MultiInference(request).results
        ]

    def get_model_metadata(self, step):
        fields = step.get("fields", ["signature_def"])
        request = get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec_of(step), metadata_field=fields)
        reply = self._prediction.GetModelMetadata(request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        assert reply.metadata["signature_def"].Unpack(signatures)
        return {"spec": as_json(reply.model_spec), "signatures": as_json(signatures)["signature_def"]}

    def get_model_status(self, step):
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=spec_of(step) if "spec" in step else None)
        found = self._models.GetModelStatus(request).model_version_status
        return [[each.version, get_model_status_pb2.ModelVersionStatus.State.Name(each.state)] for each in found]

    def handle_reload_config_request(self, step):
        return as_json(self._models.HandleReloadConfigRequest(model_management_pb2.ReloadConfigRequest()))

    def health(self, step):
        # HealthCheckRequest and HealthCheckResponse have one field each, the name and the status
        name = step["service"].encode()
        check = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        return list(check(bytes((0x0A, len(name))) + name if name else b""))


def main(address, steps):
    with grpc.insecure_channel(address) as channel:
        calls = Calls(channel)
        return [calls.run(step) for step in steps]
