"""Where V2 REST's questions are asked of a backend."""

from functools import lru_cache
from urllib.parse import quote

from gateway.core.errors import invalid_input
from gateway.core.protocol import Target
from gateway.core.types import Request
from gateway.protocols.v2.versions import check_version


def backend_path(request: Request, target: Target, suffix: str) -> str:
    """`/v2/models/{model}[/versions/{version}]` and `suffix`, percent-encoded.

    Raises:
        GatewayError: INVALID_ARGUMENT for a name that is no path segment, NOT_FOUND for a version that the server's
            flavor cannot have.
    """
    check_version(request.version, target)
    return model_path(request.model, request.version) + suffix


@lru_cache(4096)
def model_path(model: str, version: str) -> str:
    """`/v2/models/{model}[/versions/{version}]`, percent-encoded. Raises GatewayError, INVALID_ARGUMENT, for a name
    that is no path segment."""
    path = f"/v2/models/{segment(model, 'model')}"
    return f"{path}/versions/{segment(version, 'version')}" if version else path


def segment(name: str, what: str) -> str:
    """`name` percent-encoded as one segment of a path. Raises GatewayError INVALID_ARGUMENT where it cannot be one."""
    # an empty segment or dots would name another path than a model's, in whatever encoding (RFC 3986 section 5.2.4)
    if name in ("", ".", ".."):
        raise invalid_input(f"{what} {name!r} has no URL on a V2 server")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise invalid_input(f"{what} {name!r} is not UTF-8") from error
