"""Converts `config`, which can be any JSON value in UM-Bridge, to a parameter and back.

In a canonical Request, the parameter `config` contains the JSON text.
"""

import re

from gateway.core.datatypes import GATEWAY_DATATYPE
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.json import Json, read, write
from gateway.core.protocol import Limits, Target
from gateway.core.requests import Request, refuse_parameters
from gateway.core.tensors import Parameters, ParameterValue
from gateway.protocols.umbridge.errors import excerpt

CONFIG = "config"
EMPTY = b"{}"
_UNSUPPORTED = " by UM-Bridge, which takes 'config' only, JSON as text"
_PLACE = re.compile(r" at byte [0-9]+$")
"""Matches the position in a JSON error message. This position is useless to clients, because it counts from the start
of a text around the config that they do not see."""
_EQUAL_TO_EMPTY = (b"null", b"[]")


def decode_config(config: Json, limits: Limits, where: str) -> Parameters:
    """Return the parameter for a message's `config`: equivalent compact JSON with the keys in the same order.

    Return no parameter for `{}`, `[]` (an empty list in R), null, or a message without `config`.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED if the text is longer than `limits.config`.
    """
    if config is None or config == {} or config == []:
        return {}
    raw = write(config)
    limits.check_config(len(raw), where)
    return {CONFIG: raw.decode()}


def encode_config(request: Request, target: Target) -> bytes:
    """Return the JSON text of `config` from the request's parameter, or `{}`, which every client sends by default.

    Raises:
        GatewayError: INVALID_ARGUMENT if the parameter is not JSON text, or the request has other parameters, which
            UM-Bridge cannot represent; RESOURCE_EXHAUSTED if the text is longer than `limits.config`.
    """
    refuse_parameters(request.parameters, "", _UNSUPPORTED, CONFIG)
    for tensor in request.inputs:
        if tensor.parameters:
            refuse_parameters(tensor.parameters, f" of input {tensor.name!r}", _UNSUPPORTED, GATEWAY_DATATYPE)
    if not request.parameters:
        return EMPTY
    where = f"backend {target.backend!r}"
    raw = _checked_json(request.parameters.get(CONFIG, EMPTY.decode()), target.limits, where)
    return EMPTY if raw in _EQUAL_TO_EMPTY else raw


def _checked_json(text: ParameterValue, limits: Limits, where: str) -> bytes:
    """Return `text` for insertion into the message. The text must be exactly one JSON value, so it cannot add members
    to the message."""
    if not isinstance(text, str):
        raise invalid_input(f"parameter 'config' is {excerpt(text)}, expected JSON text")
    try:
        raw = text.strip().encode()
        limits.check_config(len(raw), where)
        members = read(b'{"config":%b}' % raw, {}, values=limits.json_values, literals=False)
        if len(members) != 1:
            raise DecodeError(f"it holds more than one value: {excerpt(text)}")
    except (DecodeError, UnicodeEncodeError) as error:
        why = _PLACE.sub("", str(error).removeprefix("not JSON: "))
        text = f"parameter 'config' is {excerpt(text)}, expected a text that is a JSON object"
        raise invalid_input(f"{text}, such as '{{\"level\": 1}}': {why}") from error
    return raw
