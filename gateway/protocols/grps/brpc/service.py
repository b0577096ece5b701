"""GrpsBrpcService: its names, its methods, and which of them a frame calls."""

from gateway.core.errors import DecodeError, unsupported
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import Protobuf
from gateway.protocols.grps import schema

SERVICE = "grps.protos.v1.GrpsBrpcService"
SERVICES = frozenset({SERVICE, "GrpsBrpcService"})
"""A real server also knows its services by their bare names."""

METHODS = {name: operation for name, operation in schema.METHODS.items() if operation is not Operation.STREAM}
"""Without PredictStreaming, which grps has over gRPC only. PredictByHttp belongs to the service, but real servers never
answer it over baidu_std."""


def read_operation(meta: Protobuf) -> Operation:
    """The operation of the method that a request's meta names.

    Raises:
        DecodeError: the service or the method is missing.
        GatewayError: UNIMPLEMENTED, there is no such method, or no request part.
    """
    if not meta.HasField("request"):
        raise unsupported(f"the frame's meta has no request part, expected one that names {SERVICE}")
    call = meta.request
    if not (call.HasField("service_name") and call.HasField("method_name")):
        raise DecodeError("the request part of the frame's meta lacks service_name or method_name; both are required")
    service, method = decode_text(call.service_name), decode_text(call.method_name)
    operation = METHODS.get(method)
    if service not in SERVICES or operation is None:
        expected = f"expected {', '.join(METHODS)} of {SERVICE}"
        raise unsupported(f"Fail to find method={service[:200]}/{method[:200]}; {expected}")
    return operation


def decode_text(text: str | bytes) -> str:
    """A string of the meta. In proto2 it need not be UTF-8; protobuf's library gives such a one as bytes."""
    return text if isinstance(text, str) else text.decode(errors="replace")
