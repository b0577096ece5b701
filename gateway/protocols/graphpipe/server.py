"""Converts GraphPipe requests to canonical Requests, and Answers to GraphPipe responses (client side)."""

from functools import lru_cache

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.messages import JSON_HEADERS, Buffer, Message, reply
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import Answer, Request, RequestedOutput, Response, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.graphpipe import metadata, schema
from gateway.protocols.graphpipe.flatbuffers import SMALL_TENSORS, Flatbuffer, Table, Writer
from gateway.protocols.graphpipe.strings import decode_config, decode_text
from gateway.protocols.graphpipe.tensors import TensorHeader, decode_tensor, encode_tensors, interleave, write_tensors

_CONTROL = "control"


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """Return the canonical Request of one HTTP request.

    A GET request is a request for metadata. The gateway ignores the path after the model name. It also ignores
    Content-Type, because the Python client omits this header and libcurl sends the type of a form.

    Raises:
        DecodeError: the body is not a Request of the schema, or is malformed.
        GatewayError: NOT_FOUND if the path is `/control/`; RESOURCE_EXHAUSTED if `config` exceeds the limit.
    """
    if message.path.lstrip("/").partition("/")[0] == _CONTROL:
        # real servers execute these paths, such as /control/shutdown, without credentials
        raise refusal(Reason.PATH_NOT_FOUND, "the gateway does not forward /control/; send it to the model server")
    model = message.captures.get("model") or listener.model
    if message.method != "POST":
        return Request(Operation.METADATA, model, origin=message)
    infer = _infer_request(message.body)
    if infer is None:
        return Request(Operation.METADATA, model, origin=message)
    inputs, outputs = _inputs(infer), _requested_outputs(infer)
    config = infer.string(schema.InferRequest.CONFIG)
    parameters = decode_config(config, listener.limits, f"listener {listener.name!r}") if config else {}
    return Request(Operation.INFER, model, inputs=inputs, outputs=outputs, parameters=parameters, origin=message)


def _infer_request(body: Buffer) -> Table | None:
    """Return the InferRequest in a body, or None if the body requests metadata."""
    root = Flatbuffer(body).root()
    type_ = root.byte(schema.Request.REQ_TYPE)
    if type_ == schema.METADATA_REQUEST:
        return None
    table = root.table(schema.Request.REQ)
    if type_ != schema.INFER_REQUEST or table is None:
        shown = f"{type_}{' without a table' * (type_ == schema.INFER_REQUEST)}"
        raise DecodeError(f"the request's type is {shown}; expected InferRequest (1) or MetadataRequest (2)")
    return table


def _inputs(infer: Table) -> tuple[Tensor, ...]:
    names = [decode_text(raw, "an input's name") for raw in infer.strings(schema.InferRequest.INPUT_NAMES)]
    inputs = []
    for at, table in enumerate(infer.tables(schema.InferRequest.INPUT_TENSORS)):
        name = names[at] if at < len(names) else ""
        inputs.append(decode_tensor(table, name, f"input {name!r}" if name else f"input {at}"))
    if names and len(names) != len(inputs):
        raise DecodeError(f"{len(names)} input names for {len(inputs)} tensors; expected one for each, or none")
    return tuple(inputs)


def _requested_outputs(infer: Table) -> tuple[RequestedOutput, ...]:
    names: dict[str, None] = {}
    empty = 0
    for raw in infer.strings(schema.InferRequest.OUTPUT_NAMES):
        name = decode_text(raw, "an output's name")
        if name in names:
            raise DecodeError(f"output {name!r} is requested twice; request it once")
        if name:
            names[name] = None
        else:
            empty += 1
    if names and empty:
        raise DecodeError(f"{empty} of {empty + len(names)} output names are empty; name each output, or none")
    return tuple([RequestedOutput(name) for name in names])


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the HTTP response to a Request that `decode_request` returned.

    Raises:
        GatewayError: UNIMPLEMENTED if GraphPipe does not support the datatype of an output; RESOURCE_EXHAUSTED if the
            message is too large.
    """
    if request.operation is Operation.METADATA:
        return _encode_metadata(answer, request)
    assert isinstance(answer, Response)
    headers, data = encode_tensors(answer.outputs, "output")
    write = _small_infer_response if len(headers) <= SMALL_TENSORS else _infer_response
    return reply(schema.OCTETS_HEADERS, interleave(write(headers), data), 200)


def _encode_metadata(answer: Answer, request: Request) -> Message:
    assert isinstance(answer, Signature)
    assert request.origin is not None
    if request.origin.method == "POST":
        return Message(headers=schema.OCTETS_HEADERS, parts=(metadata.encode_metadata(answer),), status=200)
    return Message(headers=JSON_HEADERS, parts=(metadata.encode_json(answer),), status=200)


def _infer_response(outputs: tuple[TensorHeader, ...]) -> tuple[bytes, ...]:
    writer = Writer()
    root = writer.table(schema.OUTPUTS_LAYOUT)
    write_tensors(writer, root + schema.OUTPUTS_LAYOUT.offsets[schema.InferResponse.OUTPUT_TENSORS], outputs)
    return writer.finish()


_small_infer_response = lru_cache(256)(_infer_response)
"""The cache saves 5 us per request."""
