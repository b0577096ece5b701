"""What a GraphPipe client is answered."""

from gateway.core.operations import Operation
from gateway.core.types import Answer, Headers, Message, Request, Response, Signature, Translate
from gateway.protocols.graphpipe import layouts, metadata, schema
from gateway.protocols.graphpipe.flatbuffer_writer import Structures, Writer
from gateway.protocols.graphpipe.tensors import OCTETS, Form, interleaved, payloads, write_tensors

_JSON = Headers(((b"content-type", b"application/json"),))


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """The HTTP reply to a Request of decode_request.

    Raises:
        GatewayError: a datatype that GraphPipe has not; too large.
    """
    if request.operation is Operation.METADATA:
        return _describe(answer, request)
    assert isinstance(answer, Response)
    forms, data = payloads(answer.outputs, "output")
    return Message(headers=OCTETS, parts=interleaved(_STRUCTURES.get(forms), data), status=200)


def _describe(answer: Answer, request: Request) -> Message:
    assert isinstance(answer, Signature)
    assert request.origin is not None
    if request.origin.method == "POST":
        return Message(headers=OCTETS, parts=(metadata.write_metadata(answer),), status=200)
    return Message(headers=_JSON, parts=(metadata.as_json(answer),), status=200)


def _structure(forms: tuple[Form, ...]) -> tuple[bytes, ...]:
    writer = Writer()
    root = writer.table(layouts.RESULTS)
    write_tensors(writer, root + layouts.RESULTS.place[schema.InferResponse.OUTPUT_TENSORS], forms)
    return writer.gaps()


_STRUCTURES = Structures(_structure)
