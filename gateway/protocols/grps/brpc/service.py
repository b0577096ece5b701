"""GrpsBrpcService: the names of the service, its methods, and the method that a frame calls."""

from gateway.core.errors import DecodeError, unsupported
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import Protobuf
from gateway.protocols.grps import schema

SERVICE = "grps.protos.v1.GrpsBrpcService"
SERVICES = frozenset({SERVICE, "GrpsBrpcService"})
"""The names of the service. Real servers also accept the name without its package."""

METHODS = {name: operation for name, operation in schema.METHODS.items() if operation is not Operation.STREAM}
"""The methods.

PredictStreaming is missing because grps offers it only over gRPC. PredictByHttp is missing because real servers never
respond to it over baidu_std."""


def read_operation(meta: Protobuf) -> Operation:
    """Return the operation of the method in a request's meta.

    Raises:
        DecodeError: the service or the method is missing.
        GatewayError: UNIMPLEMENTED if the method is unknown, or the meta has no request part.
    """
    if not meta.HasField("request"):
        raise unsupported(f"the frame's meta has no request part, expected one that names {SERVICE}")
    call = meta.request
    if not (call.HasField("service_name") and call.HasField("method_name")):
        raise DecodeError("the request part of the frame's meta lacks service_name or method_name; send both")
    service, method = decode_text(call.service_name), decode_text(call.method_name)
    operation = METHODS.get(method)
    if service not in SERVICES or operation is None:
        expected = f"expected {', '.join(METHODS)} of {SERVICE}"
        raise unsupported(f"Fail to find method={service[:200]}/{method[:200]}; {expected}")
    return operation


def decode_text(text: str | bytes) -> str:
    """Return a string field of the meta as text.

    A proto2 string can be invalid UTF-8. In that case, the protobuf library returns bytes."""
    return text if isinstance(text, str) else text.decode(errors="replace")
