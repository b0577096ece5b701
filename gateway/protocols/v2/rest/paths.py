"""Returns the paths of V2 REST requests to a backend."""

from functools import lru_cache

from gateway.core.path_segments import path_segment
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.protocols.v2.flavors import check_version


def backend_path(request: Request, target: Target, suffix: str) -> str:
    """Return `/v2/models/{model}[/versions/{version}]` and `suffix`, percent-encoded.

    Raises:
        GatewayError: INVALID_ARGUMENT if a name cannot be a path segment; NOT_FOUND if this server type cannot have the
            version.
    """
    if request.version:
        check_version(request.version, target)
    return model_path(request.model, request.version, suffix)


@lru_cache(4096)
def model_path(model: str, version: str, suffix: str = "") -> str:
    """Return `/v2/models/{model}[/versions/{version}]` and `suffix`, percent-encoded.

    Raises:
        GatewayError: INVALID_ARGUMENT if a name cannot be a path segment.
    """
    path = f"/v2/models/{path_segment(model, 'model', 'V2')}"
    return f"{path}/versions/{path_segment(version, 'version', 'V2')}{suffix}" if version else path + suffix
