"""grps, of NetEase: JSON over HTTP, and protobuf over gRPC and Apache brpc's baidu_std."""

from gateway.protocols.grps.brpc.server import GRPS_BRPC
from gateway.protocols.grps.grpc.server import GRPS_GRPC
from gateway.protocols.grps.rest.server import GRPS_REST

PROTOCOLS = (GRPS_REST, GRPS_GRPC, GRPS_BRPC)
