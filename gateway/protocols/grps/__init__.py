"""grps: NetEase's model servers, over HTTP, gRPC and Apache brpc."""

from gateway.protocols.grps.brpc import GRPS_BRPC
from gateway.protocols.grps.rest import GRPS_REST

PROTOCOLS = (GRPS_REST, GRPS_BRPC)
