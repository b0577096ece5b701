"""V2, the Open Inference Protocol, which KServe, Triton, MLServer and other servers use.

Two transports have the same operations: `rest/` (JSON over HTTP/1.1) and `grpc/`. In each folder, `server.py` is the
client side and `client.py` the upstream side. This folder contains the code that both transports share.

The specification is KServe's "Predict Protocol - Version 2", `docs/predict-api/v2/required_api.md` of
https://github.com/kserve/kserve. Quotations in this package come from this document. Its successor is the Open
Inference Protocol in https://github.com/kserve/open-inference-protocol. The extensions are Triton's, described in
`docs/protocol` of https://github.com/triton-inference-server/server.
"""

from functools import partial

from gateway.core.examples import curl, grpcurl
from gateway.core.frozen import replace
from gateway.core.protocol import (
    GrpcBinding,
    HttpBinding,
    Models,
    Protocol,
    Servers,
    ServerTypes,
    StreamFraming,
    Traits,
    Wire,
)
from gateway.core.server_sent_events import EventCutter, write_event
from gateway.protocols.v2.extensions import EXTENSIONS, FURTHER_EXTENSIONS
from gateway.protocols.v2.flavors import GRPC_FLAVORS, MLSERVER, REST_FLAVORS, TRITON
from gateway.protocols.v2.grpc import client as grpc_client
from gateway.protocols.v2.grpc import errors as grpc_errors
from gateway.protocols.v2.grpc import metadata as grpc_metadata
from gateway.protocols.v2.grpc import relay as grpc_relay
from gateway.protocols.v2.grpc import schema
from gateway.protocols.v2.grpc import server as grpc_server
from gateway.protocols.v2.grpc import streams as grpc_streams
from gateway.protocols.v2.grpc import tensors as grpc_tensors
from gateway.protocols.v2.rest import binary
from gateway.protocols.v2.rest import client as rest_client
from gateway.protocols.v2.rest import errors as rest_errors
from gateway.protocols.v2.rest import metadata as rest_metadata
from gateway.protocols.v2.rest import relay as rest_relay
from gateway.protocols.v2.rest import server as rest_server
from gateway.protocols.v2.rest.paths import model_path


def _traits(flavors: ServerTypes, own_extensions: tuple[str, ...]) -> Traits:
    return Traits(
        wire=Wire(streams=True),
        models=Models(
            versions=bool,  # versions can be any string; the server type Triton allows only integers
            platform="v2",
        ),
        servers=Servers(
            flavors=flavors,
            extensions=EXTENSIONS,
            further_extensions=FURTHER_EXTENSIONS,
            own_extensions=own_extensions,
            states_when_loaded=frozenset({TRITON, MLSERVER}),
        ),
    )


def _with_nested_parameters(traits: Traits) -> Traits:
    return replace(traits, wire=replace(traits.wire, nested_parameters=True))


def _grpc_example(address: str, model: str, version: str) -> str:
    message = {"name": model, "version": version} if version else {"name": model}
    return grpcurl(address, f"{schema.SERVICE}/ModelMetadata", message)


V2_REST = Protocol(
    name="v2-rest",
    binding=HttpBinding(wants_stream=rest_server.wants_stream, stream_framing=StreamFraming(write_event, EventCutter)),
    patterns=rest_server.PATTERNS,
    decode_request=rest_server.decode_request,
    encode_response=rest_server.encode_response,
    encode_error=rest_errors.encode_error,
    encode_request=rest_client.encode_request,
    decode_response=rest_client.decode_response,
    traits=_with_nested_parameters(_traits(REST_FLAVORS, rest_metadata.OWN_EXTENSIONS)),
    example=lambda address, model, version: curl(f"http://{address}{model_path(model, version)}"),
    encode_end=rest_server.encode_end,
    parsed_size=binary.json_size,
    relay=rest_relay.RELAY,
)

_GRPC = Protocol(
    name="v2-grpc",
    binding=GrpcBinding(frozenset({schema.MODEL_STREAM_INFER}), schema.DESCRIPTORS),
    patterns=grpc_server.PATTERNS,
    decode_request=grpc_server.decode_request,
    encode_response=grpc_server.encode_response,
    encode_error=grpc_errors.encode_error,
    encode_request=grpc_client.encode_request,
    decode_response=grpc_client.decode_response,
    traits=_traits(GRPC_FLAVORS, grpc_metadata.OWN_EXTENSIONS),
    example=_grpc_example,
    encode_end=grpc_streams.encode_end,
    parsed_size=grpc_tensors.size_beside_raw,
    relay=grpc_relay.RELAY,
)

V2_GRPC = replace(
    _GRPC,
    emulated_servers={
        TRITON: _GRPC,
        # typed requests receive typed responses, whatever the backend sends, so the gateway must decode the response
        MLSERVER: replace(_GRPC, encode_response=partial(grpc_server.encode_response, typed=True), relay=None),
    },
)

PROTOCOLS = (V2_REST, V2_GRPC)
