"""The servers that speak V1, each in its own way."""

from gateway.core.protocol import Flavors
from gateway.core.types import ServerInfo

KSERVE, TENSORFLOW = "kserve", "tensorflow"
GATEWAY = "gateway"
"""Another gateway: it has what both have, whatever flavor its listener shows."""

MARK = b"gateway-flavor"
"""The header by which a gateway's answer to `GET /` is told from KServe's."""


def _detect(info: ServerInfo | None) -> str:
    return info.name if info is not None and info.name in FLAVORS.names else TENSORFLOW


FLAVORS = Flavors((KSERVE, TENSORFLOW, GATEWAY), _detect)
