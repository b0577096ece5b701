"""Defines the V2 server types, how the gateway detects each type, and which model versions each type can have."""

from gateway.core.errors import not_found
from gateway.core.models import ServerInfo
from gateway.core.protocol import ServerTypes, Target

TRITON, MLSERVER, KSERVE = "triton", "mlserver", "kserve"
"""The names that these servers report in their metadata."""
OPENVINO = "openvino"
"""OpenVINO Model Server, which supports the binary tensor data extension without listing it, and decodes image files
itself."""
BINARY = "binary"
"""Any other server whose metadata lists the binary tensor data extension, such as another gateway."""
PLAIN = "plain"
"""A server that implements the specification without extensions. Over REST, its tensors are JSON."""
TYPED = "typed"
"""A plain server that reads only typed `contents` over gRPC.

The server ignores raw contents, and runs the model without data. The gateway detects AMD's server by its name.
TorchServe is also of this type, but has no server metadata, so set `flavor` for it."""

BINARY_EXTENSION = "binary_tensor_data"


_OPENVINO_NAME = "OpenVINO Model Server"
_READ_TYPED_ALONE = frozenset({"amdinfer", "proteus"})
"""The current and the former name of AMD's Inference Server."""


def _detect(info: ServerInfo | None) -> str:
    if info is None:
        return PLAIN
    if info.name in (TRITON, MLSERVER, KSERVE):
        return info.name
    if info.name == _OPENVINO_NAME:
        return OPENVINO
    return BINARY if BINARY_EXTENSION in info.extensions else PLAIN


def _detect_over_grpc(info: ServerInfo | None) -> str:
    return TYPED if info is not None and info.name in _READ_TYPED_ALONE else _detect(info)


REST_FLAVORS = ServerTypes((TRITON, MLSERVER, KSERVE, OPENVINO, BINARY, PLAIN), _detect)
GRPC_FLAVORS = ServerTypes((*REST_FLAVORS.names, TYPED), _detect_over_grpc)

_VERSIONS = {
    TRITON: "a Triton, whose versions are integers",
    # over REST, KServe responds with 501 to every version; over gRPC, it ignores the version
    KSERVE: "a KServe, which has no versions",
}


def check_version(version: str, target: Target) -> None:
    """Check that a server of the target's type can have this `version`.

    The specification allows any string. An empty string means that the request contains no version.

    Raises:
        GatewayError: NOT_FOUND if this server type cannot have the version.
    """
    impossible = target.flavor == KSERVE or (target.flavor == TRITON and not _is_number(version))
    if version and impossible:
        raise not_found(
            f"backend {target.backend!r} is {_VERSIONS[target.flavor]}, not {version!r}; "
            'set rewrite.version on the route to "" to drop it'
        )


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdigit()
