"""A test server with the habits of TensorFlow Serving over gRPC, run in the peer's own environment: `FILE PORT`.

The model server itself is in no package index. Its services and messages are those of the real package
`tensorflow-serving-api`; how it behaves is written from its documentation and from what TensorFlow does with tensors,
independent of the gateway. Its habits:

- short lists of a tensor go on with their last element, long ones are cut; `tensor_content` of a wrong size is an error
- replies have lists and no `tensor_content`, and the version and the signature that answered
- the inputs must be those of the signature; `output_filter` chooses outputs
- Classify, Regress and MultiInference take the feature `x`, two floats in each example, of the model `flowers`

It prints the method and the size of each request, one a line.
"""

import sys
from concurrent import futures

import grpc
import numpy as np
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

PREDICT, CLASSIFY, REGRESS = (f"tensorflow/serving/{name}" for name in ("predict", "classify", "regress"))

LISTS = {
    types_pb2.DT_FLOAT: ("float_val", "<f4"),
    types_pb2.DT_DOUBLE: ("double_val", "<f8"),
    types_pb2.DT_INT32: ("int_val", "<i4"),
    types_pb2.DT_INT16: ("int_val", "<i2"),
    types_pb2.DT_INT8: ("int_val", "i1"),
    types_pb2.DT_UINT8: ("int_val", "u1"),
    types_pb2.DT_UINT16: ("int_val", "<u2"),
    types_pb2.DT_INT64: ("int64_val", "<i8"),
    types_pb2.DT_UINT32: ("uint32_val", "<u4"),
    types_pb2.DT_UINT64: ("uint64_val", "<u8"),
    types_pb2.DT_BOOL: ("bool_val", "?"),
    types_pb2.DT_HALF: ("half_val", "<u2"),
    types_pb2.DT_BFLOAT16: ("half_val", "<u2"),
    types_pb2.DT_STRING: ("string_val", object),
}
"""The list of each data type, and numpy's type of its elements; of halves their bits."""


class RefusedError(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text


def invalid(text):
    return RefusedError(grpc.StatusCode.INVALID_ARGUMENT, text)


def array_of(name, proto):
    """The array of a TensorProto, as TensorFlow reads one."""
    if proto.dtype not in LISTS or any(dim.size < 0 for dim in proto.tensor_shape.dim):
        raise invalid(f"tensor parsing error: {name}")
    member, dtype = LISTS[proto.dtype]
    shape = [dim.size for dim in proto.tensor_shape.dim]
    size = int(np.prod(shape, dtype=np.int64))
    if proto.tensor_content and dtype is not object:
        if len(proto.tensor_content) != size * np.dtype(dtype).itemsize:
            raise invalid(f"tensor parsing error: {name}")
        return np.frombuffer(proto.tensor_content, dtype).reshape(shape)
    given = list(getattr(proto, member))[:size]
    zero = b"" if dtype is object else 0
    given += [given[-1] if given else zero] * (size - len(given))
    flat = np.empty(size, dtype)
    flat[:] = given
    return flat.reshape(shape)


def proto_of(array, dtype):
    """The TensorProto of an array, in a list."""
    proto = tensor_pb2.TensorProto(dtype=dtype)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, LISTS[dtype][0]).extend(array.reshape(-1).tolist())
    return proto


FLOAT, INT32, STRING = types_pb2.DT_FLOAT, types_pb2.DT_INT32, types_pb2.DT_STRING


def upper(text):
    return {"upper": np.array([each.decode().upper().encode() for each in text.reshape(-1)] + [None], object)[:-1]}


def signature(method, inputs, outputs, compute):
    return {"method": method, "inputs": inputs, "outputs": outputs, "compute": compute}


def scores(x):
    return {
        "classes": np.array([[b"setosa", b"virginica"]] * len(x), object),
        "scores": np.stack([x.sum(axis=1), -x.sum(axis=1)], axis=1).astype(np.float32),
    }


def one(method, inputs, outputs, compute):
    return {"serving_default": signature(method, inputs, outputs, compute)}


EXAMPLES = {"inputs": (STRING, [-1])}
MODELS = {
    "double": one(PREDICT, {"x": (FLOAT, [-1, -1])}, {"y": (FLOAT, [-1, -1])}, lambda x: {"y": 2 * x})
    | {"triple": signature(PREDICT, {"x": (FLOAT, [-1, -1])}, {"y": (FLOAT, [-1, -1])}, lambda x: {"y": 3 * x})},
    "add_sub": one(
        PREDICT,
        {"a": (INT32, [-1]), "b": (INT32, [-1])},
        {"sum": (INT32, [-1]), "difference": (INT32, [-1])},
        lambda a, b: {"sum": a + b, "difference": a - b},
    ),
    "upper": one(PREDICT, {"text": (STRING, [-1])}, {"upper": (STRING, [-1])}, upper),
    "flowers": {
        "serving_default": signature(
            CLASSIFY, EXAMPLES, {"classes": (STRING, [-1, 2]), "scores": (FLOAT, [-1, 2])}, scores
        ),
        "size": signature(REGRESS, EXAMPLES, {"outputs": (FLOAT, [-1])}, lambda x: {"outputs": x.sum(axis=1)}),
    },
} | {
    # one for each data type, which gives back what it gets
    f"echo_{types_pb2.DataType.Name(dtype)}": one(
        PREDICT, {"x": (dtype, None)}, {"x": (dtype, None)}, lambda x: {"x": x}
    )
    for dtype in LISTS
}
VERSIONS, LABELS = (1, 2), {"stable": 1}


def found(spec):
    """The model's signatures, the version that answers, and the signature that is asked for."""
    if not spec.name:
        raise invalid("ModelSpec has no name specified.")
    asked = spec.WhichOneof("version_choice")
    if spec.name not in MODELS:
        shown = f"Specific({spec.name}, {spec.version.value})" if asked == "version" else f"Latest({spec.name})"
        raise RefusedError(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {shown}")
    version = VERSIONS[-1]
    if asked == "version":
        version = spec.version.value
        if version not in VERSIONS:
            text = f"Servable not found for request: Specific({spec.name}, {version})"
            raise RefusedError(grpc.StatusCode.NOT_FOUND, text)
    elif asked == "version_label":
        if spec.version_label not in LABELS:
            raise invalid(f"Unrecognized servable version label: {spec.version_label}")
        version = LABELS[spec.version_label]
    return MODELS[spec.name], version, spec.signature_name or "serving_default"


def answered(spec, version, name):
    """The ModelSpec of a reply."""
    spec.version.value = version
    spec.signature_name = name


def names(given):
    return "{" + ",".join(sorted(given)) + "}"


def predict(request):
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    signatures, version, name = found(request.model_spec)
    if name not in signatures:
        raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
    chosen = signatures[name]
    given, wanted = set(request.inputs), set(chosen["inputs"])
    if given != wanted:
        raise invalid(
            f"input size does not match signature: {len(given)}!={len(wanted)} len({names(given)}) != "
            f"len({names(wanted)}). Sent extra: {names(given - wanted)}. Missing but required: {names(wanted - given)}."
        )
    for alias in request.output_filter:
        if alias not in chosen["outputs"]:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in the set "
                f"{names(chosen['outputs'])}."
            )
    arrays = {alias: array_of(alias, proto) for alias, proto in request.inputs.items()}
    for alias, proto in request.inputs.items():
        if proto.dtype != chosen["inputs"][alias][0]:
            raise invalid(f"{alias} is of type {types_pb2.DataType.Name(proto.dtype)}")
    response = predict_pb2.PredictResponse()
    response.model_spec.name = request.model_spec.name
    answered(response.model_spec, version, name)
    for alias, array in chosen["compute"](**arrays).items():
        if not request.output_filter or alias in request.output_filter:
            response.outputs[alias].CopyFrom(proto_of(array, chosen["outputs"][alias][0]))
    return response


def rows(given):
    """The feature `x` of the examples of an Input."""
    kind = given.WhichOneof("kind")
    if kind is None:
        raise invalid("Input is empty.")
    examples = getattr(given, kind).examples
    if not examples:
        raise invalid("Input is empty.")
    shared = given.example_list_with_context.context.features.feature if kind != "example_list" else {}
    found = []
    for each in examples:
        features = {**shared, **each.features.feature}
        if "x" not in features or len(features["x"].float_list.value) != 2:
            raise invalid("Name: <unknown>, Feature: x (data type: float) is required but could not be found.")
        found.append(list(features["x"].float_list.value))
    return np.array(found, np.float32)


def task(request_spec, method, x):
    """The result of one method, and the ModelSpec of the reply."""
    signatures, version, name = found(request_spec)
    chosen = signatures.get(name)
    if chosen is None:
        raise invalid(f"No signature was found with the name: {name}")
    if chosen["method"] != method:
        raise invalid(
            f"Expected {method.rpartition('/')[2]} signature method_name to be {method}. Was: {chosen['method']}"
        )
    outputs = chosen["compute"](x)
    if method == REGRESS:
        result = regression_pb2.RegressionResult()
        for value in outputs["outputs"]:
            result.regressions.add(value=value)
        return result, version, name
    result = classification_pb2.ClassificationResult()
    for labels, numbers in zip(outputs["classes"], outputs["scores"], strict=True):
        row = result.classifications.add()
        for label, score in zip(labels, numbers, strict=True):
            row.classes.add(label=label.decode(), score=score)
    return result, version, name


def run(method, request, response):
    result, version, name = task(request.model_spec, method, rows(request.input))
    response.result.CopyFrom(result)
    response.model_spec.name = request.model_spec.name
    answered(response.model_spec, version, name)
    return response


def multi(request):
    x = rows(request.input)
    response = inference_pb2.MultiInferenceResponse()
    for each in request.tasks:
        result, version, name = task(each.model_spec, each.method_name, x)
        told = response.results.add()
        member = told.regression_result if each.method_name == REGRESS else told.classification_result
        member.CopyFrom(result)
        told.model_spec.name = each.model_spec.name
        answered(told.model_spec, version, name)
    return response


def metadata(request):
    if not request.metadata_field:
        raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
    for field in request.metadata_field:
        if field != "signature_def":
            raise invalid(f"Metadata field {field} is not supported")
    signatures, version, _ = found(request.model_spec)
    definitions = get_model_metadata_pb2.SignatureDefMap()
    for name, chosen in signatures.items():
        definition = definitions.signature_def[name]
        definition.method_name = chosen["method"]
        for side in ("inputs", "outputs"):
            for alias, (dtype, shape) in chosen[side].items():
                info = getattr(definition, side)[alias]
                info.name, info.dtype = f"{alias}:0", dtype
                info.tensor_shape.unknown_rank = shape is None
                for size in shape or ():
                    info.tensor_shape.dim.add(size=size)
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name, response.model_spec.version.value = request.model_spec.name, version
    response.metadata["signature_def"].Pack(definitions)
    return response


def status(request):
    spec = request.model_spec
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    if spec.name not in MODELS:
        raise RefusedError(grpc.StatusCode.NOT_FOUND, f"Could not find any versions of model {spec.name}")
    versions = VERSIONS
    if spec.WhichOneof("version_choice") == "version":
        versions = (spec.version.value,)
        if spec.version.value not in VERSIONS:
            text = f"Could not find version {spec.version.value} of model {spec.name}"
            raise RefusedError(grpc.StatusCode.NOT_FOUND, text)
    response = get_model_status_pb2.GetModelStatusResponse()
    for version in reversed(versions):
        each = response.model_version_status.add(version=version, state=30)
        each.status.SetInParent()
    return response


class Service:
    def _answer(self, method, request, context):
        print(method, request.ByteSize(), flush=True)
        try:
            return ANSWERS[method](request)
        except RefusedError as refused:
            context.abort(refused.code, refused.text)

    def __getattribute__(self, name):
        if name in ANSWERS:
            return lambda request, context: self._answer(name, request, context)
        return super().__getattribute__(name)


ANSWERS = {
    "Predict": predict,
    "Classify": lambda request: run(CLASSIFY, request, classification_pb2.ClassificationResponse()),
    "Regress": lambda request: run(REGRESS, request, regression_pb2.RegressionResponse()),
    "MultiInference": multi,
    "GetModelMetadata": metadata,
    "GetModelStatus": status,
}


class Prediction(Service, prediction_service_pb2_grpc.PredictionServiceServicer):
    pass


class Models(Service, model_service_pb2_grpc.ModelServiceServicer):
    pass


def main(port):
    server = grpc.server(futures.ThreadPoolExecutor(4))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Prediction(), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Models(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(int(sys.argv[1]))
