"""What a GraphPipe backend is asked."""

from functools import lru_cache
from urllib.parse import quote

from gateway.core.errors import invalid_input, unsupported
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.types import Message, Request
from gateway.protocols.graphpipe import layouts, schema
from gateway.protocols.graphpipe.flatbuffer_writer import Structures, Writer
from gateway.protocols.graphpipe.strings import write_config
from gateway.protocols.graphpipe.tensors import OCTETS, Form, interleaved, payloads, write_tensors
from gateway.protocols.graphpipe.texts import encode, encode_names


def encode_request(request: Request, target: Target) -> Message:
    """The message that asks `target`.

    Raises:
        GatewayError: UNIMPLEMENTED, no such operation or datatype in GraphPipe; INVALID_ARGUMENT, a parameter or a name
            that has no form in it; RESOURCE_EXHAUSTED, too large.
    """
    path = _path(request.model, target.address)
    if request.operation is Operation.INFER:
        config = write_config(request, target)
        forms, data = payloads(request.inputs, "input")
        names = encode_names([tensor.name for tensor in request.inputs], "input")
        outputs = encode_names([output.name for output in request.outputs], "output")
        parts = interleaved(_STRUCTURES.get(config, names, forms, outputs), data)
    elif request.operation in (Operation.METADATA, Operation.MODEL_READY):
        parts = (METADATA,)
    else:
        raise unsupported(f"GraphPipe has no words for {request.operation.value!r}")
    return Message("POST", path, OCTETS, parts, deadline=request.deadline)


def has_one_model(address: str) -> bool:
    """Whether the server at an endpoint is asked at one URL for every model: the endpoint has a path."""
    return "/" in address.partition("://")[2]


@lru_cache(4096)
def _path(model: str, address: str) -> str:
    """An endpoint's URL is used as it is given: real servers have one model, at any path. Where it has no path, the
    model's name goes where another gateway looks for it."""
    if has_one_model(address):
        return "/" if address.endswith("/") else ""
    if not model:
        return "/"
    if model in (".", ".."):
        raise invalid_input(f"model {model!r} has no URL on a GraphPipe server")
    return f"/graphpipe/{quote(encode(model, 'model'), safe='')}"


def _structure(
    config: bytes, names: tuple[bytes, ...], forms: tuple[Form, ...], outputs: tuple[bytes, ...]
) -> tuple[bytes, ...]:
    writer = Writer()
    root = writer.table(layouts.REQUEST)
    writer.byte(root + layouts.REQUEST.place[schema.Request.REQ_TYPE], schema.INFER_REQUEST)
    place = layouts.INFER_REQUEST.place
    table = writer.table(layouts.INFER_REQUEST, root + layouts.REQUEST.place[schema.Request.REQ])
    writer.string(table + place[schema.InferRequest.CONFIG], config)
    writer.strings(table + place[schema.InferRequest.INPUT_NAMES], names)
    write_tensors(writer, table + place[schema.InferRequest.INPUT_TENSORS], forms)
    writer.strings(table + place[schema.InferRequest.OUTPUT_NAMES], outputs)
    return writer.gaps()


_STRUCTURES = Structures(_structure)


def _metadata_request() -> bytes:
    writer = Writer()
    root = writer.table(layouts.REQUEST)
    writer.byte(root + layouts.REQUEST.place[schema.Request.REQ_TYPE], schema.METADATA_REQUEST)
    writer.table(layouts.METADATA_REQUEST, root + layouts.REQUEST.place[schema.Request.REQ])
    return writer.gaps()[0]


METADATA = _metadata_request()
"""The request for metadata, which has no fields."""
