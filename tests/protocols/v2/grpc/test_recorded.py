"""V2 gRPC against recorded conversations of real clients and servers."""

import pytest

from gateway.core.exchange import decoded
from gateway.core.requests import Response
from gateway.protocols.v2 import V2_GRPC
from tests.protocols.v2.grpc.wire import AS_IS, LISTENER, RECORDED, TARGETS, TRITON, decode, exchanged, infer, message

CONVERSATIONS = [(server, name) for server, recorded in RECORDED.items() for name in recorded]
DATATYPES = ["fp64", "fp64_nan", "fp32", "fp16", "bool", "int64", "bytes", "empty", "parameters"]


@pytest.mark.parametrize(("server", "name"), CONVERSATIONS)
def test_forwards_recorded_requests_unchanged(server: str, name: str) -> None:
    """Byte for byte, unless the request has parameters or typed contents that the gateway rewrites."""
    method, requests, _ = exchanged(server, name)
    for request_body in requests:
        request = decoded(message(request_body, method), V2_GRPC, LISTENER)
        written = V2_GRPC.encode_request(request, TRITON)
        assert written.path == method
        if "parameters" not in name and "typed" not in name and "empty_final" not in name and "failing" not in name:
            assert written.body == request_body
        again = decoded(message(bytes(written.body), method), V2_GRPC, LISTENER)
        assert (again.inputs, again.parameters, again.id) == (request.inputs, request.parameters, request.id)


def test_the_clients_options_arrive() -> None:
    _, (request_body,), _ = exchanged("triton", "parameters")
    request = infer(request_body, received=100.0)
    assert (request.id, request.deadline, [each.name for each in request.outputs]) == ("42", 105.0, ["OUTPUT0"])
    own = {"text": "größe", "integer": -5, "flag": True, "number": 0.5}
    assert request.parameters == {**own, "sequence_id": 7, "sequence_start": True, "sequence_end": False, "priority": 3}


@pytest.mark.parametrize("server", RECORDED)
@pytest.mark.parametrize("name", [*DATATYPES, "typed"])
def test_identity_model_of_each_server_keeps_every_bit(server: str, name: str) -> None:
    _, (request_body,), (answer,) = exchanged(server, name)
    request = infer(request_body)
    response = V2_GRPC.decode_response(answer, request, TARGETS[server])
    assert isinstance(response, Response)
    sent, got = request.inputs[0], response.outputs[0]
    assert (got.datatype, got.shape, bytes(got.data)) == (sent.datatype, sent.shape, bytes(sent.data))
    assert got.parameters == {}
    # a client without an id gets none, even if the server makes one up
    written = bytes(V2_GRPC.encode_response(response, request, AS_IS).body)
    assert decode(written, request).id == request.id
