"""The servers that speak V2, each in its own way."""

from gateway.core.protocol import Flavors
from gateway.core.types import ServerInfo

TRITON, MLSERVER, KSERVE = "triton", "mlserver", "kserve"
"""As each calls itself in its server metadata."""
BINARY = "binary"
"""Any other server whose metadata lists the binary tensor extension: another gateway, say."""
PLAIN = "plain"
"""The specification and nothing else, so tensors are JSON on REST."""

BINARY_EXTENSION = "binary_tensor_data"


def _detect(info: ServerInfo | None) -> str:
    if info is None:
        return PLAIN
    if info.name in (TRITON, MLSERVER, KSERVE):
        return info.name
    return BINARY if BINARY_EXTENSION in info.extensions else PLAIN


FLAVORS = Flavors((TRITON, MLSERVER, KSERVE, BINARY, PLAIN), _detect)
