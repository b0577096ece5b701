"""Converts canonical Requests to GraphPipe requests, and GraphPipe responses to Answers (upstream side)."""

from functools import lru_cache

from gateway.core.errors import DecodeError, unsupported
from gateway.core.messages import Buffer, Message
from gateway.core.operations import Operation
from gateway.core.path_segments import path_segment
from gateway.core.protocol import Target
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import Tensor
from gateway.protocols.graphpipe import errors, schema
from gateway.protocols.graphpipe.flatbuffers import SMALL_TENSORS, SMALL_TEXTS, Flatbuffer, Writer
from gateway.protocols.graphpipe.metadata import decode_metadata
from gateway.protocols.graphpipe.strings import encode_config, encode_names
from gateway.protocols.graphpipe.tensors import TensorHeader, decode_tensor, encode_tensors, interleave, write_tensors


def encode_request(request: Request, target: Target) -> Message:
    """Return the message for `target`.

    Raises:
        GatewayError: UNIMPLEMENTED if GraphPipe does not support the operation or the datatype; INVALID_ARGUMENT if
            GraphPipe does not support a parameter, or a name is not UTF-8 or cannot be in a URL; RESOURCE_EXHAUSTED if
            the message is too large.
    """
    path = _path(request.model, target.address)
    if request.operation is Operation.INFER:
        config = encode_config(request, target)
        headers, data = encode_tensors(request.inputs, "input")
        input_names = encode_names([tensor.name for tensor in request.inputs], "input")
        output_names = encode_names([output.name for output in request.outputs], "output")
        texts = (config, *input_names, *output_names)
        is_small = len(headers) <= SMALL_TENSORS and sum(map(len, texts)) <= SMALL_TEXTS
        write = _small_infer_request if is_small else _infer_request
        parts = interleave(write(config, input_names, headers, output_names), data)
    elif request.operation in (Operation.METADATA, Operation.MODEL_READY):
        parts = (METADATA_REQUEST,)
    else:
        raise unsupported(f"operation {request.operation.value!r} is not supported by GraphPipe")
    return Message("POST", path, schema.OCTETS_HEADERS, parts, deadline=request.deadline)


def has_one_model(address: str) -> bool:
    """Return whether an endpoint's address has a path, which makes it the URL of a single model."""
    return "/" in address.partition("://")[2]


@lru_cache(4096)
def _path(model: str, address: str) -> str:
    """Return the path of requests to an endpoint.

    The gateway uses the path in the endpoint's URL unchanged, because real servers serve one model, at any path. If the
    URL has no path, the path is the model's name, which other gateways expect."""
    if has_one_model(address):
        return "/" if address.endswith("/") else ""
    if not model:
        return "/"
    return f"/graphpipe/{path_segment(model, 'model', 'GraphPipe')}"


def _infer_request(
    config: bytes, input_names: tuple[bytes, ...], inputs: tuple[TensorHeader, ...], output_names: tuple[bytes, ...]
) -> tuple[bytes, ...]:
    writer = Writer()
    root = writer.table(schema.REQUEST_LAYOUT)
    writer.byte(root + schema.REQUEST_LAYOUT.offsets[schema.Request.REQ_TYPE], schema.INFER_REQUEST)
    infer = writer.table(schema.INFER_REQUEST_LAYOUT, root + schema.REQUEST_LAYOUT.offsets[schema.Request.REQ])
    offsets = schema.INFER_REQUEST_LAYOUT.offsets
    writer.string(infer + offsets[schema.InferRequest.CONFIG], config)
    writer.strings(infer + offsets[schema.InferRequest.INPUT_NAMES], input_names)
    write_tensors(writer, infer + offsets[schema.InferRequest.INPUT_TENSORS], inputs)
    writer.strings(infer + offsets[schema.InferRequest.OUTPUT_NAMES], output_names)
    return writer.finish()


_small_infer_request = lru_cache(256)(_infer_request)
"""The cache saves 10 us per request."""


def _metadata_request() -> bytes:
    writer = Writer()
    root = writer.table(schema.REQUEST_LAYOUT)
    writer.byte(root + schema.REQUEST_LAYOUT.offsets[schema.Request.REQ_TYPE], schema.METADATA_REQUEST)
    writer.table(schema.METADATA_REQUEST_LAYOUT, root + schema.REQUEST_LAYOUT.offsets[schema.Request.REQ])
    return writer.finish()[0]


METADATA_REQUEST = _metadata_request()
"""The metadata request, which has no fields."""


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """Return the backend's Answer to `request`.

    A GraphPipe response does not state its type, so the request determines how to decode it. Outputs have no names, and
    are in the order of the request.

    Raises:
        DecodeError: the response is malformed, or does not belong to the request.
        GatewayError: the error that the backend reported.
    """
    # any response except a failure shows that the server is running, because some servers offer no metadata
    if request.operation is Operation.MODEL_READY and reply.status < 500:
        return reply.status == 200
    if reply.status >= 400:
        raise errors.decode_error(reply)
    if reply.status != 200:
        raise DecodeError(f"status {reply.status}, expected 200")
    if request.operation is Operation.METADATA:
        return decode_metadata(reply.body)
    return _infer_response(reply, request)


def _infer_response(reply: Message, request: Request) -> Response:
    outputs = _outputs(reply.body, reply)
    # The Go package's `Serve` returns all outputs, whichever the client requests, so names assigned by position would
    # be wrong.
    if request.outputs and len(outputs) != len(request.outputs):
        raise DecodeError(f"{len(outputs)} outputs for the {len(request.outputs)} that were requested")
    return Response(outputs, origin=reply)


def _outputs(body: Buffer, reply: Message) -> tuple[Tensor, ...]:
    """Return the tensors in the body of a response. Raise GatewayError if the body contains errors instead."""
    table = Flatbuffer(body).root()
    reported = errors.decode_errors(table)
    if reported:
        raise errors.error_of_success(reported, reply)
    return tuple(
        [
            decode_tensor(each, "", f"output {at}")
            for at, each in enumerate(table.tables(schema.InferResponse.OUTPUT_TENSORS))
        ]
    )
