"""Wraps the codec of a backend to record one span for encoding a request and one for decoding the replies."""

from gateway.core.frozen import replace
from gateway.core.messages import Message, bytes_of
from gateway.core.protocol import Protocol, Target
from gateway.core.record import Record
from gateway.core.requests import Answer, Request
from gateway.core.spans import Repeated, Span, begin


def with_spans(protocol: Protocol, record: Record, parent: Span, *, is_stream: bool = False) -> Protocol:
    """Return a copy of `protocol` whose `encode_request` and `decode_response` record spans in `record`, as children of
    `parent`. All responses in a stream share one span. Messages that are relayed without decoding have no spans of
    their own; `parent` contains their data."""
    decoding = Repeated(record, "decode reply", parent) if is_stream else None
    received = 0

    def encode_request(request: Request, target: Target) -> Message:
        with begin(record, "encode request", parent) as span:
            message = protocol.encode_request(request, target)
            span.facts["bytes"] = bytes_of(message)
        parent.facts["request_bytes"] = span.facts["bytes"]
        parent.facts["method"], parent.facts["path"] = message.method, message.path
        return message

    def decode_response(reply: Message, request: Request, target: Target) -> Answer:
        nonlocal received
        received += bytes_of(reply)
        parent.facts["status"] = reply.status
        with begin(record, "decode reply", parent) if decoding is None else decoding as span:
            span.facts["bytes"] = parent.facts["reply_bytes"] = received
            return protocol.decode_response(reply, request, target)

    def relay_request(message: Message, request: Request, target: Target) -> Message | None:
        assert protocol.relay is not None
        sent = protocol.relay.request(message, request, target)
        if sent is not None:
            parent.facts["request_bytes"] = bytes_of(sent)
            parent.facts["method"], parent.facts["path"] = sent.method, sent.path
        return sent

    def relay_reply(reply: Message, request: Request, target: Target) -> Message | None:
        nonlocal received
        assert protocol.relay is not None
        parent.facts["status"] = reply.status
        passing = protocol.relay.reply(reply, request, target)
        if passing is not None:  # otherwise the codec decodes the message and counts it
            received += bytes_of(reply)
            parent.facts["reply_bytes"] = received
        return passing

    relay = protocol.relay
    relay = None if relay is None else replace(relay, request=relay_request, reply=relay_reply)
    return replace(protocol, encode_request=encode_request, decode_response=decode_response, relay=relay)
