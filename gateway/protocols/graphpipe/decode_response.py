"""What a GraphPipe backend answers. The reply does not say what it is: that follows from what was asked."""

from gateway.core.errors import DecodeError
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.types import Answer, Message, Request, Response
from gateway.protocols.graphpipe import errors, schema
from gateway.protocols.graphpipe.flatbuffer_reader import Flatbuffer
from gateway.protocols.graphpipe.metadata import read_metadata
from gateway.protocols.graphpipe.tensors import read_tensor


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """The backend's answer to `request`. Outputs have no names; they are in the order of those that were requested.

    Raises:
        DecodeError: a reply that is not GraphPipe's.
        GatewayError: the error that the reply tells.
    """
    # a server without a word for metadata is there as well
    if request.operation is Operation.MODEL_READY and reply.status < 500:
        return reply.status == 200
    if reply.status >= 400:
        raise errors.decode_error(reply)
    if reply.status != 200:
        raise DecodeError(f"status {reply.status}, expected 200")
    if request.operation is Operation.METADATA:
        return read_metadata(reply.body)
    return _infer(reply, request)


def _infer(reply: Message, request: Request) -> Response:
    table = Flatbuffer(reply.body).root()
    told = errors.read_errors(table)
    if told:
        raise errors.of_success(told, reply)
    outputs = tuple(
        [
            read_tensor(each, "", f"output {at}")
            for at, each in enumerate(table.tables(schema.InferResponse.OUTPUT_TENSORS))
        ]
    )
    # Go's `Serve` gives all its outputs, whatever is asked for: by position they would get wrong names
    if request.outputs and len(outputs) != len(request.outputs):
        raise DecodeError(f"{len(outputs)} outputs for the {len(request.outputs)} that were requested")
    return Response(outputs, origin=reply)
