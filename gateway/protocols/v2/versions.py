"""Which versions a V2 backend can have. The specification's are any text."""

from gateway.core.errors import not_found
from gateway.core.protocol import Target
from gateway.protocols.v2.flavors import KSERVE, TRITON


def check_version(version: str, target: Target) -> None:
    """Whether a server of `target`'s flavor can have `version`; empty is none.

    Raises:
        GatewayError: NOT_FOUND where it cannot.
    """
    impossible = target.flavor == KSERVE or (target.flavor == TRITON and not _is_number(version))
    if version and impossible:
        raise not_found(
            f"backend {target.backend!r} is {_VERSIONS[target.flavor]}, not {version!r}; "
            'the route may set rewrite.version, "" to drop it'
        )


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdigit()


_VERSIONS = {
    TRITON: "a Triton, whose versions are integers",
    KSERVE: "a KServe, which has no versions",  # 501 to all of them over REST; over gRPC it answers whichever is asked
}
