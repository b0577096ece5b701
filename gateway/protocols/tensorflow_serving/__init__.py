"""TensorFlow Serving over gRPC: `tensorflow.serving.PredictionService` and `tensorflow.serving.ModelService`.

`server.py` is the client side and `client.py` the upstream side. `predict.py` handles the messages with tensors, and
`inference.py` the messages with examples; `tensor_proto.py` and `examples.py` handle the tensors in them. TensorFlow
Serving's REST API is a server type of the protocol V1.

The `path` and the `pattern` of a Message are the full method name, such as
`/tensorflow.serving.PredictionService/Predict`. `status` is the status code of a response; if it is not 0, the body is
the status message.

Specifications: `tensorflow_serving/apis` of https://github.com/tensorflow/serving for the services, and
`tensorflow/core` of https://github.com/tensorflow/tensorflow for tensors and examples.
"""

from gateway.core.examples import grpcurl
from gateway.core.protocol import GrpcBinding, Models, Protocol, Servers, Traits, Wire
from gateway.protocols.tensorflow_serving import schema
from gateway.protocols.tensorflow_serving.client import decode_response, encode_request
from gateway.protocols.tensorflow_serving.errors import encode_error, is_unknown_servable
from gateway.protocols.tensorflow_serving.inference import TASKS
from gateway.protocols.tensorflow_serving.model_spec import is_version
from gateway.protocols.tensorflow_serving.predict import parsed_size
from gateway.protocols.tensorflow_serving.relay import RELAY
from gateway.protocols.tensorflow_serving.schema import NAME, PAYLOADS, PREDICTION_SERVICE, SIGNATURE_DEF, STATUS
from gateway.protocols.tensorflow_serving.server import PATTERNS, decode_request, encode_response


def _example(address: str, model: str, version: str) -> str:
    choice = {"version" if version.isdecimal() else "version_label": version} if version else {}
    asked = {"model_spec": {"name": model, **choice}, "metadata_field": [SIGNATURE_DEF]}
    return grpcurl(address, f"{PREDICTION_SERVICE}/GetModelMetadata", asked)


TENSORFLOW_SERVING_GRPC = Protocol(
    NAME,
    binding=GrpcBinding(descriptors=schema.DESCRIPTORS, health_names=schema.HEALTH_NAMES),
    patterns=PATTERNS,
    decode_request=decode_request,
    encode_response=encode_response,
    encode_error=encode_error,
    encode_request=encode_request,
    decode_response=decode_response,
    traits=Traits(
        wire=Wire(parameters=False, own_parameters=frozenset({TASKS})),
        models=Models(
            # digits are a version, and any other text is a label
            versions=is_version,
            unknown_are_not_found=True,
            metadata_parts=("", STATUS),
            ordered=False,
            platform="tensorflow",
        ),
        servers=Servers(
            # TensorFlow Serving neither lists its models nor reports its name
            lacks_model=is_unknown_servable,
        ),
    ),
    payloads=PAYLOADS,
    parsed_size=parsed_size,
    example=_example,
    relay=RELAY,
)

PROTOCOLS = (TENSORFLOW_SERVING_GRPC,)
