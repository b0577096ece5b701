"""Defines the names, messages and methods of TensorFlow Serving's gRPC services (`protos/tensorflow_serving`)."""

from pathlib import Path

from gateway.core.datatypes import TENSORFLOW_NAMES, Datatype
from gateway.core.protobuf.schema import Schema

NAME = "tfs-grpc"

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb").read_bytes()

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
HEALTH_NAMES = frozenset({"PredictionService", "ModelService"})
"""The service names in grpc.health.v1, without the package."""

PREDICT, CLASSIFY, REGRESS, MULTI_INFERENCE, GET_MODEL_METADATA = (
    f"/{PREDICTION_SERVICE}/{method}"
    for method in ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata")
)
GET_MODEL_STATUS, RELOAD_CONFIG = (
    f"/{MODEL_SERVICE}/{method}" for method in ("GetModelStatus", "HandleReloadConfigRequest")
)

_SCHEMA = Schema(DESCRIPTORS)

ModelSpec = _SCHEMA.message("tensorflow.serving.ModelSpec")
InferenceTask = _SCHEMA.message("tensorflow.serving.InferenceTask")
GetModelMetadataRequest = _SCHEMA.message("tensorflow.serving.GetModelMetadataRequest")
GetModelMetadataResponse = _SCHEMA.message("tensorflow.serving.GetModelMetadataResponse")
GetModelStatusRequest = _SCHEMA.message("tensorflow.serving.GetModelStatusRequest")
GetModelStatusResponse = _SCHEMA.message("tensorflow.serving.GetModelStatusResponse")
ModelVersionStatus = _SCHEMA.message("tensorflow.serving.ModelVersionStatus")
SignatureDefMap = _SCHEMA.message("tensorflow.serving.SignatureDefMap")

AVAILABLE = ModelVersionStatus.AVAILABLE
LOADING = ModelVersionStatus.LOADING

SIGNATURE_NAME = "signature_name"
"""The request parameter that selects one of a model's signatures."""
SERVING_DEFAULT = "serving_default"
"""The default signature of a request."""
SIGNATURE_DEF = "signature_def"
"""The only metadata field that TensorFlow Serving supports."""

STATUS = "status"
"""The `part` of a metadata request for the available versions (GetModelStatus)."""

CLASSES, SCORES = "classes", "scores"
"""The outputs of a Classify signature, which are a label and a score for each class.

The shape of both outputs is `[examples, classes]`."""
OUTPUTS = "outputs"
"""The output of a Regress signature, which is a number for each example."""


class Payload:
    """The values of a route's `translate.payload`. They select the method that runs the model at the backend."""

    PREDICT = "predict"
    CLASSIFY = "classify"
    REGRESS = "regress"


PAYLOADS = (Payload.PREDICT, Payload.CLASSIFY, Payload.REGRESS)

METHOD_NAMES = {Payload.CLASSIFY: "tensorflow/serving/classify", Payload.REGRESS: "tensorflow/serving/regress"}
"""The `method_name` of each method, in an InferenceTask and in a signature."""
PREDICT_NAME = "tensorflow/serving/predict"

_DATA_TYPES = _SCHEMA.message("tensorflow.TensorProto").DESCRIPTOR.fields_by_name["dtype"].enum_type.values

DATA_TYPE_NAMES: dict[int, str] = {each.number: each.name for each in _DATA_TYPES}
"""TensorFlow's data type names, by number."""

_NUMBERS = {name: number for number, name in DATA_TYPE_NAMES.items()}

DATA_TYPES: dict[Datatype, int] = {datatype: _NUMBERS[name] for datatype, name in TENSORFLOW_NAMES.items()}
"""The number of TensorFlow's data type for each datatype."""

DATATYPES: dict[int, Datatype] = {number: datatype for datatype, number in DATA_TYPES.items()}
