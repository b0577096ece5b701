"""grps: NetEase's model servers, over HTTP, gRPC and Apache brpc."""

from gateway.protocols.grps.brpc import GRPS_BRPC

PROTOCOLS = (GRPS_BRPC,)
