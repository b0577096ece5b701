"""The flavors of V2 servers: how each is recognised, and which versions of a model it can have."""

from gateway.core.errors import not_found
from gateway.core.protocol import ServerTypes, Target
from gateway.core.types import ServerInfo

TRITON, MLSERVER, KSERVE = "triton", "mlserver", "kserve"
"""Named as these servers name themselves in their server metadata."""
OPENVINO = "openvino"
"""OpenVINO Model Server: it has the binary tensor data extension without listing it, and decodes image files itself."""
BINARY = "binary"
"""Any other server whose metadata lists the binary tensor data extension, such as another gateway."""
PLAIN = "plain"
"""A server that has the specification without extensions: over REST its tensors are JSON."""
TYPED = "typed"
"""A plain server that over gRPC reads typed `contents` alone: raw ones it takes for none, and computes with nothing.
AMD's does so, which is known by its name, and TorchServe's, which has no server metadata: for it the flavor is set."""

BINARY_EXTENSION = "binary_tensor_data"


_OPENVINO_NAME = "OpenVINO Model Server"
_READ_TYPED_ALONE = frozenset({"amdinfer", "proteus"})
"""The names of AMD's Inference Server, today's and its former one."""


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
    # over REST it answers 501 to every version; over gRPC it ignores the version and answers
    KSERVE: "a KServe, which has no versions",
}


def check_version(version: str, target: Target) -> None:
    """Check that a server of `target`'s flavor can have `version`. The specification allows any string; empty is none.

    Raises:
        GatewayError: NOT_FOUND, the flavor cannot have such a version.
    """
    impossible = target.flavor == KSERVE or (target.flavor == TRITON and not _is_number(version))
    if version and impossible:
        raise not_found(
            f"backend {target.backend!r} is {_VERSIONS[target.flavor]}, not {version!r}; "
            'the route may set rewrite.version, "" to drop it'
        )


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdigit()
