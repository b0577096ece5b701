"""V2, the Open Inference Protocol of KServe, Triton and MLServer."""

from gateway.protocols.v2.grpc.server import V2_GRPC
from gateway.protocols.v2.rest.server import V2_REST

PROTOCOLS = (V2_REST, V2_GRPC)
