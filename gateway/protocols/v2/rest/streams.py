"""V2 REST's streams: Triton's `generate` and `generate_stream`, and MLServer's paths of the same names and of
`infer_stream`, whose requests and events are those of `infer`.

What a client writes tells which of the two it speaks: tensors stand in a list `inputs` of objects, or by their names.
"""

import re

from gateway.core.errors import DecodeError, GatewayError, unsupported
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.types import Answer, Message, Request, Response, Translate
from gateway.protocols.v2.flavors import KSERVE, PLAIN, TRITON
from gateway.protocols.v2.rest import events
from gateway.protocols.v2.rest import generate as rest_generate
from gateway.protocols.v2.rest import requests as rest_requests
from gateway.protocols.v2.rest import responses as rest_responses
from gateway.protocols.v2.rest.binary import HEADER
from gateway.protocols.v2.rest.errors import decode_event_error

# Within a string the quotes would have backslashes.
_TENSORS = re.compile(rb'"inputs"[ \t\r\n]*+:[ \t\r\n]*+\[[ \t\r\n]*+\{')

_SUFFIXES = ("/generate_stream", "/infer_stream")


def wants_stream(message: Message) -> bool:
    """Whether its path is one that answers with any number of responses."""
    return message.pattern.endswith(_SUFFIXES)


def decode_generate(message: Message, listener: ListenerSettings) -> Request:
    """`POST v2/models/{model}[/versions/{version}]/generate`, or `/generate_stream`.

    Raises:
        DecodeError: neither Triton's request nor MLServer's, or one that a real server must not see.
        GatewayError: RESOURCE_EXHAUSTED, a tensor beyond the limit.
    """
    if message.headers.get(HEADER) or _TENSORS.search(message.body):
        request = rest_requests.decode_infer(message, listener)
    else:
        request = rest_generate.decode_members(message, listener)
    return replace(request, operation=Operation.STREAM) if wants_stream(message) else request


def decode_infer_stream(message: Message, listener: ListenerSettings) -> Request:
    """`POST v2/models/{model}[/versions/{version}]/infer_stream`. Raises as `decode_generate`."""
    return replace(rest_requests.decode_infer(message, listener), operation=Operation.STREAM)


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """One response of a stream, in the form of its request; JSON always, as events are text.

    Raises:
        GatewayError: INVALID_ARGUMENT naming an output that has no JSON form.
    """
    if request.schemaless:
        message = rest_generate.encode_members(answer, request, translate)
    else:
        message = rest_responses.encode_infer(answer, replace(request, origin=None), translate)
    return replace(message, headers=events.HEADERS)


def encode_end(request: Request) -> Message:
    """Nothing more; of a stream without a response the head."""
    return Message(headers=events.HEADERS, status=200)


def encode_request(request: Request, target: Target) -> Message:
    """The request that asks `target` for a stream.

    Raises:
        GatewayError: UNIMPLEMENTED, the server has no streams or no form for the request in them; INVALID_ARGUMENT or
            NOT_FOUND as for `infer`.
    """
    if target.flavor in (KSERVE, PLAIN):
        raise unsupported(f"backend {target.backend!r} ({target.flavor}) has no streams over REST")
    if target.flavor == TRITON:
        return rest_generate.encode_request(request, target)
    return rest_requests.encode_infer_stream(request, target)


def decode_response(reply: Message, target: Target) -> Response:
    """One response of a stream.

    Raises:
        DecodeError: neither a response nor an error.
        GatewayError: the error that it tells.
    """
    try:
        if target.flavor == TRITON:
            return rest_generate.decode_response(reply, target.limits)
        return rest_responses.decode_infer(reply, target.limits)
    except DecodeError as fault:
        error: GatewayError | None = decode_event_error(reply)
        if error is None:
            raise
        raise error from fault
