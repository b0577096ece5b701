"""Defines the keys, constants and paths of V1, its two tensor formats, and its server types.

Specifications: the KServe V1 protocol, and TensorFlow Serving's REST API, which defines the row format and the columnar
format. KServe and TensorFlow Serving use the same inference paths. They differ in metadata, versions, errors and NaN.
"""

from enum import Enum
from functools import lru_cache

from gateway.core.errors import not_found
from gateway.core.frozen import frozen
from gateway.core.messages import Message
from gateway.core.models import ServerInfo
from gateway.core.path_segments import path_segment
from gateway.core.protocol import ServerTypes, Target
from gateway.core.requests import Request

NAME = "v1-rest"

SIGNATURE_NAME = "signature_name"
PARAMETERS = "parameters"
SERVING_DEFAULT = "serving_default"
"""The default signature of a TensorFlow model."""

STATUS = "status"
"""The `part` of a metadata request for the available versions (`GET /v1/models/{model}`)."""


class TensorFormat(Enum):
    """The format of a body's tensors."""

    ROWS = "a list with one entry for each row of the batch"
    COLUMNS = "each tensor whole"


@frozen
class BodyKeys:
    """The keys of the tensors in a body, one for each format.

    A body contains one of the two keys. Error messages call the tensors `role`."""

    rows: str
    columns: str
    role: str

    def of(self, tensor_format: TensorFormat) -> str:
        """Return the key of the tensors in this format."""
        return self.rows if tensor_format is TensorFormat.ROWS else self.columns


REQUEST = BodyKeys("instances", "inputs", "input")
REPLY = BodyKeys("predictions", "outputs", "output")
EXPLANATION = BodyKeys("explanations", "outputs", "explanation")


class Payload:
    """The values of a route's `translate.payload`, which is the format of requests to the backend."""

    ROWS = "rows"
    NAMED_ROWS = "named_rows"
    COLUMNS = "columns"
    NAMED_COLUMNS = "named_columns"


PAYLOADS = (Payload.ROWS, Payload.NAMED_ROWS, Payload.COLUMNS, Payload.NAMED_COLUMNS)


# --- Server types, and how they are detected ---

KSERVE, TENSORFLOW = "kserve", "tensorflow"
GATEWAY = "gateway"
"""The server type of another gateway. A gateway serves the paths of both server types, whatever its listener's server
type is."""

MARK = b"gateway-flavor"
"""The header that distinguishes a gateway's response to `GET /` from KServe's response."""


def _detect(info: ServerInfo | None) -> str:
    return info.name if info is not None and info.name in FLAVORS.names else TENSORFLOW


FLAVORS = ServerTypes((KSERVE, TENSORFLOW, GATEWAY), _detect)


# --- The paths of models, versions and labels ---

MODELS = "/v1/models"
MODEL = f"{MODELS}/{{model}}"
MODEL_PATHS = (MODEL, f"{MODEL}/versions/{{version}}", f"{MODEL}/labels/{{version}}")
"""The paths of a model, of a version of the model, and of the version with a label. KServe has only the first path."""


def backend_path(request: Request, target: Target, suffix: str = "") -> str:
    """Return the path of the request's model and version with `suffix` (`:predict`, `/metadata`), percent-encoded.

    Raises:
        GatewayError: INVALID_ARGUMENT if a name cannot be a path segment; NOT_FOUND if a request to a KServe backend
            contains a version.
    """
    if request.version and target.flavor == KSERVE:
        raise not_found(
            f"backend {target.backend!r} is a KServe, which has no versions over V1, not {request.version!r}; "
            'set rewrite.version on the route to "" to drop it'
        )
    return model_path(request.model, request.version) + suffix


def asked_version(message: Message) -> str:
    """Return the version or label in a request's path.

    The result is empty if the path contains no version and no label, and also for version 0. OpenVINO's client requests
    version 0 by default, and OpenVINO's server treats it as the latest version."""
    version = message.captures.get("version", "")
    return "" if version == "0" else version


@lru_cache(4096)
def model_path(model: str, version: str) -> str:
    """Return `/v1/models/{model}`, with `/versions/{version}` for digits and `/labels/{version}` for any other text.

    Raise GatewayError (INVALID_ARGUMENT) if a name cannot be a path segment."""
    path = f"{MODELS}/{path_segment(model, 'model', 'V1')}"
    if not version:
        return path
    kind = "versions" if version.isascii() and version.isdigit() else "labels"
    return f"{path}/{kind}/{path_segment(version, 'version', 'V1')}"
