"""Which versions a V2 backend can have."""

from gateway.core.errors import not_found
from gateway.core.protocol import Target
from gateway.core.types import Request
from gateway.protocols.v2.flavors import TRITON


def check_version(request: Request, target: Target) -> None:
    """The specification's versions are any text, Triton's are integers.

    Raises:
        GatewayError: NOT_FOUND for a version that `target` cannot have.
    """
    version = request.version
    if target.flavor == TRITON and version and not (version.isascii() and version.isdigit()):
        raise not_found(
            f"backend {target.backend!r} is a Triton, whose versions are integers, not {version!r}; "
            'the route may set rewrite.version, "" to drop it'
        )
