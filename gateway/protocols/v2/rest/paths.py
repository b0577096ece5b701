"""The paths of V2 REST on a backend."""

from functools import lru_cache
from urllib.parse import quote

from gateway.core.errors import invalid_input
from gateway.core.protocol import Target
from gateway.core.types import Request
from gateway.protocols.v2.flavors import check_version


def backend_path(request: Request, target: Target, suffix: str) -> str:
    """`/v2/models/{model}[/versions/{version}]` and `suffix`, percent-encoded.

    Raises:
        GatewayError: INVALID_ARGUMENT, a name that cannot be a path segment; NOT_FOUND, a version that the server's
            flavor cannot have.
    """
    if request.version:
        check_version(request.version, target)
    return model_path(request.model, request.version, suffix)


@lru_cache(4096)
def model_path(model: str, version: str, suffix: str = "") -> str:
    """`/v2/models/{model}[/versions/{version}]` and `suffix`, percent-encoded.

    Raises:
        GatewayError: INVALID_ARGUMENT, a name that cannot be a path segment.
    """
    path = f"/v2/models/{path_segment(model, 'model')}"
    return f"{path}/versions/{path_segment(version, 'version')}{suffix}" if version else path + suffix


def path_segment(name: str, what: str) -> str:
    """`name` percent-encoded as one path segment. Raises GatewayError INVALID_ARGUMENT if it cannot be one."""
    # an empty segment or dots would change the path, however they are encoded (RFC 3986 section 5.2.4)
    if name in ("", ".", ".."):
        raise invalid_input(f"{what} {name!r} has no URL on a V2 server")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise invalid_input(f"{what} {name!r} is not UTF-8") from error
