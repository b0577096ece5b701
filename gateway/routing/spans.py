"""The codec of a backend, with a span in the request's record for each message that it encodes or decodes."""

from gateway.core.frozen import replace
from gateway.core.protocol import Protocol, Target
from gateway.core.record import Record
from gateway.core.spans import Span, begin
from gateway.core.types import Answer, Message, Request, bytes_of


def with_spans(protocol: Protocol, record: Record, parent: Span) -> Protocol:
    """`protocol`, whose `encode_request` and `decode_response` note their spans in `record`, as parts of `parent`."""

    def encode_request(request: Request, target: Target) -> Message:
        with begin(record, "encode request", parent) as span:
            message = protocol.encode_request(request, target)
            span.facts["bytes"] = bytes_of(message)
        parent.facts["request_bytes"] = span.facts["bytes"]
        parent.facts["method"], parent.facts["path"] = message.method, message.path
        return message

    def decode_response(reply: Message, request: Request, target: Target) -> Answer:
        parent.facts["status"] = reply.status
        with begin(record, "decode reply", parent) as span:
            span.facts["bytes"] = parent.facts["reply_bytes"] = bytes_of(reply)
            return protocol.decode_response(reply, request, target)

    return replace(protocol, encode_request=encode_request, decode_response=decode_response)
