"""grps, the protocol of NetEase's model servers: one message type, GrpsMessage, over three transports.

| transport | folder  | the message is                       | carried by                     |
|-----------|---------|--------------------------------------|--------------------------------|
| REST      | `rest/` | JSON (`json/`), or bytes of bin_data | HTTP                           |
| gRPC      | `grpc/` | protobuf (`protobuf/`)               | gRPC                           |
| brpc      | `brpc/` | protobuf, in requests also JSON      | Apache brpc's baidu_std frames |

In each transport's folder, `server.py` is the client side and `client.py` the upstream side. They convert bytes to a
GrpsMessage (`schema.py`) and back. In this folder, `server.py` and `client.py` convert the GrpsMessage to a Request or
an Answer and back.

The specification is `docs/2_Interface.md` of https://github.com/NetEase-Media/grps, together with
`11_CustomizedHttp.md` and `12_Streaming.md` in the same folder. Quotations are from these files unless a comment names
another source; "the Python server" and "the C++ server" are the servers in `server/` of the same repository. The schema
is `protos/grps/grps.proto`.
"""

from functools import lru_cache, partial

from gateway.core.datatypes import Datatype
from gateway.core.examples import curl, grpcurl
from gateway.core.frozen import replace
from gateway.core.messages import Buffer
from gateway.core.operations import Operation
from gateway.core.protocol import (
    Framing,
    GrpcBinding,
    HttpBinding,
    Models,
    Protocol,
    ProtocolSettings,
    Servers,
    StreamBinding,
    StreamFraming,
    Traits,
    Wire,
)
from gateway.core.requests import ATTACHMENT
from gateway.protocols.grps.brpc import client as brpc_client
from gateway.protocols.grps.brpc import errors as brpc_errors
from gateway.protocols.grps.brpc import frames
from gateway.protocols.grps.brpc import meta as brpc_meta
from gateway.protocols.grps.brpc import payload as brpc_payload
from gateway.protocols.grps.brpc import relay as brpc_relay
from gateway.protocols.grps.brpc import server as brpc_server
from gateway.protocols.grps.grpc import client as grpc_client
from gateway.protocols.grps.grpc import relay as grpc_relay
from gateway.protocols.grps.grpc import server as grpc_server
from gateway.protocols.grps.protobuf import message as protobuf_message
from gateway.protocols.grps.rest import client as rest_client
from gateway.protocols.grps.rest import errors as rest_errors
from gateway.protocols.grps.rest import passthrough, streams, urls
from gateway.protocols.grps.rest import relay as rest_relay
from gateway.protocols.grps.rest import server as rest_server
from gateway.protocols.grps.schema import (
    DTYPES,
    GRPC_DESCRIPTORS,
    GRPC_METHODS,
    GRPC_SERVICE,
    JSON_PAYLOADS,
    PROTOBUF_PAYLOADS,
)

_TRAITS = Traits(
    wire=Wire(
        datatypes=frozenset(DTYPES),
        unnamed=True,
        selects=False,
        parameters=False,
        # "ndarray [..] to represent gtensors, only used when http json request and one DT_FLOAT32 tensor"
        numbers=Datatype.FP32,
        nan="string",
    ),
    models=Models(
        named=False,
        may_be_named=True,
        versions=bool,
        joined_versions=True,
        ready_as_a_whole=True,
        # Real servers return a model's configuration, which does not list inputs and outputs.
        trusted_metadata=False,
        platform="grps",
    ),
    # Clients set readiness as a flag, so a server that a client took offline still runs models.
    servers=Servers(probe=Operation.LIVE),
)
_STREAMING_TRAITS = replace(_TRAITS, wire=replace(_TRAITS.wire, streams=True))


def _unframed(parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """Return a stream message unchanged, without a separator."""
    return parts


PASSTHROUGH = Protocol(
    name="grps-rest",
    binding=HttpBinding(
        any_path=passthrough.HTTP_METHODS,
        wants_stream=passthrough.wants_stream,
        stream_framing=StreamFraming(_unframed, lambda limit: passthrough.PieceCutter(), keeps_coding=True),
    ),
    patterns=(),
    decode_request=passthrough.decode_request,
    encode_response=passthrough.encode_response,
    encode_error=rest_errors.encode_error,
    encode_request=passthrough.encode_request,
    decode_response=passthrough.decode_response,
    traits=_TRAITS,
)


@lru_cache(64)
def _controlled(control: streams.StreamControl) -> Protocol:
    """Return grps-rest with the stream settings `control`. Equal settings return the same object, so protocols can be
    compared."""
    own = replace(
        GRPS_REST.http,
        wants_stream=partial(rest_server.wants_stream, control=control),
        body_wants_stream=partial(rest_server.body_wants_stream, control=control)
        if control.mode == streams.BODY
        else None,
    )
    return replace(
        GRPS_REST,
        binding=own,
        decode_request=partial(rest_server.decode_request, control=control),
        encode_response=partial(rest_server.encode_response, control=control),
        encode_request=partial(rest_client.encode_request, control=control),
        encode_end=partial(rest_server.encode_end, control=control),
        relay=rest_relay.relay(control),
    )


GRPS_REST = Protocol(
    name="grps-rest",
    binding=HttpBinding(
        # "customized_predict_http": the same body at another path
        any_path=("POST",),
        wants_stream=rest_server.wants_stream,
        stream_framing=StreamFraming(_unframed, streams.JsonCutter),
        passthrough=PASSTHROUGH,
        pages=urls.METRICS_PATTERNS,
    ),
    patterns=urls.PATTERNS,
    decode_request=rest_server.decode_request,
    encode_response=rest_server.encode_response,
    encode_error=rest_errors.encode_error,
    encode_request=rest_client.encode_request,
    decode_response=rest_client.decode_response,
    traits=_STREAMING_TRAITS,
    payloads=JSON_PAYLOADS,
    example=lambda address, model, version: curl(f"http://{address}/grps/v1/metadata/model", {"str_data": model}),
    encode_end=rest_server.encode_end,
    settings=ProtocolSettings(streams.SETTINGS, lambda values: _controlled(streams.read_settings(values))),
    relay=rest_relay.relay(rest_server.DEFAULT_CONTROL),
)

GRPS_GRPC = Protocol(
    name="grps-grpc",
    binding=GrpcBinding(frozenset({f"/{GRPC_SERVICE}/PredictStreaming"}), GRPC_DESCRIPTORS),
    patterns=GRPC_METHODS,
    decode_request=grpc_server.decode_request,
    encode_response=grpc_server.encode_response,
    encode_error=grpc_server.encode_error,
    encode_request=grpc_client.encode_request,
    decode_response=grpc_client.decode_response,
    traits=_STREAMING_TRAITS,
    payloads=PROTOBUF_PAYLOADS,
    parsed_size=lambda message: protobuf_message.parsed_size(message.body),
    example=lambda address, model, version: grpcurl(address, f"{GRPC_SERVICE}/ModelMetadata", {"str_data": model}),
    relay=grpc_relay.RELAY,
)

GRPS_BRPC = Protocol(
    name="grps-brpc",
    binding=StreamBinding(
        Framing(
            frames.HEADER.size,
            frames.body_size,
            tag=frames.read_correlation_id,
            retag=frames.with_correlation_id,
            head=frames.meta_size,
            stopping=brpc_errors.stopping_error,
            is_compressed=brpc_payload.is_compressed,
            inflate=brpc_payload.inflate,
            magic=frames.MAGIC,
        ),
        credential=frames.credential,
        context=brpc_meta.read_headers,
        with_credential=frames.with_credential,
    ),
    patterns=(),
    decode_request=brpc_server.decode_request,
    encode_response=brpc_server.encode_response,
    encode_error=brpc_errors.encode_error,
    encode_request=brpc_client.encode_request,
    decode_response=brpc_client.decode_response,
    traits=replace(_TRAITS, wire=replace(_TRAITS.wire, own_parameters=frozenset({ATTACHMENT}))),
    payloads=PROTOBUF_PAYLOADS,
    parsed_size=brpc_payload.parsed_size,
    relay=brpc_relay.RELAY,
)

PROTOCOLS = (GRPS_REST, GRPS_GRPC, GRPS_BRPC)
