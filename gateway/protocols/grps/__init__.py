"""grps: NetEase's model servers, over HTTP, gRPC and Apache brpc."""

from gateway.protocols.grps.grpc import GRPS_GRPC

PROTOCOLS = (GRPS_GRPC,)
