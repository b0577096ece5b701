"""Checks of grps servers over gRPC: the checks for both RPC transports, and checks of gRPC itself."""

from typing import Any

from gateway.tools.conformance.check import Suite, fail, not_applicable, require
from gateway.tools.conformance.grps_rpc import (
    GrpsRpcServer,
    add_checks,
    decode,
    failed,
    grps_message,
    outputs,
    succeeded,
)
from gateway.tools.conformance.rpc import RpcServer

SERVICE = "/grps.protos.v1.GrpsService/"


class GrpsGrpcServer(RpcServer, GrpsRpcServer):
    """A server under test."""

    def call(self, method: str, **fields: Any) -> Any:
        reply = self.send(SERVICE + method, grps_message(**fields))
        if reply.code != "OK":
            fail(f"{method}: {reply.code}, {reply.details[:120]!r}; grps reports errors in `status`")
        answer = decode(reply.messages[0], method)
        self.note(answer)
        return answer


SUITE = Suite("grps-grpc", GrpsGrpcServer)
add_checks(SUITE)
check = SUITE.check


@check("predict.streaming", "GRPC Streaming", "rpc PredictStreaming(GrpsMessage) returns (stream GrpsMessage)")
def streaming(server: GrpsGrpcServer) -> None:
    reply = server.stream(f"{SERVICE}PredictStreaming", [grps_message(**server.fields())])
    if reply.code == "UNIMPLEMENTED":
        fail("PredictStreaming is UNIMPLEMENTED")
    require(reply.code == "OK", f"{reply.code}, {reply.details[:120]!r}; expected OK")
    if not reply.messages:
        not_applicable("the model streams no messages")
    for each in reply.messages:
        answer = decode(each, "PredictStreaming")
        server.note(answer)
        if answer.status.status == 2:
            not_applicable(f"the model does not stream: {answer.status.msg[:120]!r}")
        outputs(succeeded(answer, "PredictStreaming"))


@check("error.malformed", "RPC", "requests are GrpsMessages; others get INTERNAL, or FAILURE like any other grps error")
def malformed(server: GrpsGrpcServer) -> None:
    reply = server.send(f"{SERVICE}Predict", b"\x12\xff\xff\xff\xff\x0fx")
    if reply.code == "OK":
        failed(decode(reply.messages[0], "Predict"), "bytes that are not a GrpsMessage", 400)
        return
    require(reply.code in ("INTERNAL", "INVALID_ARGUMENT"), f"bytes that are not a GrpsMessage: {reply.code}")


@check("error.unknown-method", "RPC", "gRPC: a call of an unknown method gets UNIMPLEMENTED")
def unknown_method(server: GrpsGrpcServer) -> None:
    reply = server.send(f"{SERVICE}NoSuchMethod", b"")
    require(reply.code == "UNIMPLEMENTED", f"an unknown method: {reply.code}; expected UNIMPLEMENTED")
