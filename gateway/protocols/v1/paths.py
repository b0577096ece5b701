"""The URL paths of V1: models, versions and labels."""

from functools import lru_cache

from gateway.core.errors import not_found
from gateway.core.messages import Message
from gateway.core.path_segments import path_segment
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.protocols.v1.flavors import KSERVE

MODELS = "/v1/models"
MODEL = f"{MODELS}/{{model}}"
MODEL_PATHS = (MODEL, f"{MODEL}/versions/{{version}}", f"{MODEL}/labels/{{version}}")
"""The paths of a model, of one of its versions, and of the version with a label. KServe has only the first."""


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

    The result is empty if the path contains neither, and for version 0: OpenVINO's client requests it by default, and
    OpenVINO's server treats it as the latest version."""
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
