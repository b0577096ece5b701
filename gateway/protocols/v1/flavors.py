"""V1 server types, and how they are detected.

KServe and TensorFlow Serving use the same inference paths. They differ in metadata, versions, errors and NaN.
"""

from gateway.core.models import ServerInfo
from gateway.core.protocol import ServerTypes

KSERVE, TENSORFLOW = "kserve", "tensorflow"
GATEWAY = "gateway"
"""Another gateway. It serves the paths of both server types, whatever its listener's server type is."""

MARK = b"gateway-flavor"
"""The header that distinguishes a gateway's response to `GET /` from KServe's."""


def _detect(info: ServerInfo | None) -> str:
    return info.name if info is not None and info.name in FLAVORS.names else TENSORFLOW


FLAVORS = ServerTypes((KSERVE, TENSORFLOW, GATEWAY), _detect)
