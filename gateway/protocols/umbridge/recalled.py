"""Bodies of evaluations like one that came before: equal to it in all but the numbers of its only vector.

    {"name": "m", "input": [[1.5, 2.5]], "config": {}}        {"output": [[0.25]]}

A sampler sends the same text around its numbers in every call, and the model's server in every reply. The first such
body is read and checked, and its layout remembered: the text before and behind the numbers, and what it says. Of the
next body with the same text the numbers alone are read.

Bodies with several vectors have no layout, and a vector of integers alone is read as ever: it is INT64.
"""

from dataclasses import field
from struct import error as StructError  # noqa: N812
from typing import Any, TypeAlias

import orjson

from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen
from gateway.core.layouts import LONGEST, LayoutStore
from gateway.core.operations import INFER
from gateway.core.original import Original
from gateway.core.protocol import Limits
from gateway.core.types import Buffer, Message, Parameters, Request, Response, Tensor, inference
from gateway.protocols.umbridge.config import CONFIG, NO_PARAMETERS
from gateway.protocols.umbridge.vectors import doubles
from gateway.protocols.umbridge.verbatim import (
    REQUESTS,
    RESPONSES,
    are_finite,
    request_says_no_more,
    response_says_no_more,
)

_LARGEST = 2**15
"""Bytes of a body up to which Python's numbers cost less than reading its text in bulk."""
_LARGE = 2.0**63
"""orjson turns integers beyond 64 bits into floats; a float of this size may be one."""

_INPUT, _OUTPUT = b'"input"', b'"output"'
_FLOAT, _BOTH = {float}, {int, float}


@frozen
class BodyLayout:
    """What bodies with the same text around their numbers say.

    - `model`, `parameters`: those of a request; `config_size`: the bytes of the config in them.
    - `says_no_more`: the body says nothing else than its value, so it can go on as it came.
    """

    says_no_more: bool
    model: str = ""
    parameters: Parameters = field(default_factory=dict)
    config_size: int = 0


_Layouts: TypeAlias = LayoutStore[tuple[bytes, bytes], BodyLayout]

_requests: _Layouts = LayoutStore()
_responses: _Layouts = LayoutStore()


def request_like_before(message: Message, limits: Limits) -> Request | None:
    """The evaluation in `message`, if its body is of a known layout."""
    found = _recall(message.parts, _INPUT, _requests, limits)
    if found is None:
        return None
    layout, inputs = found
    if layout.config_size > limits.config:
        return None
    parameters, original = layout.parameters, None
    if layout.says_no_more:
        original = Original(REQUESTS[INFER], message.parts, inputs, (), parameters, None, layout.model)
    return inference(layout.model, "", None, inputs, (), parameters, None, None, original)


def response_like_before(reply: Message, limits: Limits) -> Response | None:
    """The reply to an evaluation, if its body is of a known layout."""
    found = _recall(reply.parts, _OUTPUT, _responses, limits)
    if found is None:
        return None
    layout, outputs = found
    original = Original(RESPONSES[INFER], reply.parts, outputs, (), NO_PARAMETERS) if layout.says_no_more else None
    return Response(outputs, "", "", None, {}, None, False, original)


def _recall(
    parts: tuple[Buffer, ...], key: bytes, layouts: _Layouts, limits: Limits
) -> tuple[BodyLayout, tuple[Tensor, ...]] | None:
    if len(parts) != 1:
        return None
    body = parts[0]
    if type(body) is not bytes or (size := len(body)) > _LARGEST:
        return None
    begin = body.find(b"[", body.find(b"[", body.find(key)) + 1)
    end = body.find(b"]", begin)
    layout = layouts.get((body[:begin], body[end:]))
    # Another listener or backend may have smaller limits than the one that a layout was remembered for. A value outside
    # the vector, which alone are counted, has a byte at least.
    if layout is None or begin + size - end > limits.json_values:
        return None
    text = body[begin : end + 1]
    try:
        numbers = orjson.loads(text)
        count = len(numbers)
        # A number has one point at most: with as many points as numbers all are floats, and none is an integer of more
        # than 64 bits. `pack` refuses what is no number.
        if not count or (text.count(b".") != count and not _are_doubles(numbers)):
            return None
        data = doubles(count).pack(*numbers)
    except (orjson.JSONDecodeError, StructError):
        return None
    return layout, (Tensor("", _FP64, (count,), data, "", {}, True),)


_FP64 = Datatype.FP64


def _are_doubles(numbers: list[Any]) -> bool:
    """Whether these are numbers, a float among them, and none is an integer of more than 64 bits."""
    kinds = set(map(type, numbers))
    return kinds in (_FLOAT, _BOTH) and min(numbers) > -_LARGE and max(numbers) < _LARGE


def remember_request(message: Message, request: Request) -> None:
    """Remember the layout of the body that `request`, an evaluation, was read from."""
    if (around := _around(message, _INPUT, request.inputs)) is not None:
        assert request.original is not None
        size = len(str(request.parameters.get(CONFIG, "")).encode())
        says_no_more = request_says_no_more(request.original)
        _requests.remember(around, BodyLayout(says_no_more, request.model, request.parameters, size))


def remember_response(reply: Message, response: Response) -> None:
    """As `remember_request`, of the reply to an evaluation."""
    if (around := _around(reply, _OUTPUT, response.outputs)) is not None:
        assert response.original is not None
        _responses.remember(around, BodyLayout(response_says_no_more(response.original)))


def _around(message: Message, key: bytes, tensors: tuple[Tensor, ...]) -> tuple[bytes, bytes] | None:
    """The text around the numbers of a body's only vector; None if it has no layout. A body with NaN or an infinity has
    none: it cannot go on as it came, and others with the same text around their numbers can."""
    if len(tensors) != 1 or tensors[0].datatype is not Datatype.FP64 or len(message.parts) != 1:
        return None
    if not are_finite(tensors[0].array):
        return None
    [body] = message.parts
    # Without escapes, and with one such text that two brackets follow, these are the vectors'.
    if type(body) is not bytes or len(body) > _LARGEST or b"\\" in body or body.count(key) != 1:
        return None
    at = body.find(key) + len(key)
    begin = body.find(b"[", body.find(b"[", at) + 1)
    end = body.find(b"]", begin)
    if b"".join(body[at:begin].split()) != b":[" or begin + len(body) - end > LONGEST:
        return None
    return body[:begin], body[end:]
