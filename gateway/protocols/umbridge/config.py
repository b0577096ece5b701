"""Converts `config`, which can be any JSON value in UM-Bridge, to a parameter and back.

In a canonical Request, the parameter `config` contains the JSON text.
"""

import re
from collections.abc import Iterable

from gateway.core.datatypes import GATEWAY_DATATYPE
from gateway.core.errors import DecodeError, Reason, invalid_input, refusal
from gateway.core.json import Json, read, write
from gateway.core.protocol import Limits, Target
from gateway.core.requests import Request
from gateway.core.tensors import Parameters, ParameterValue
from gateway.protocols.umbridge.errors import excerpt

CONFIG = "config"
EMPTY = b"{}"
_PLACE = re.compile(r" at byte [0-9]+$")
"""The position in a JSON error message. The position counts from the start of a text around the config that the client
does not see."""
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
    _check_size(len(raw), limits, where)
    return {CONFIG: raw.decode()}


def encode_config(request: Request, target: Target) -> bytes:
    """Return the JSON text of `config` from the request's parameter, or `{}`, which every client sends by default.

    Raises:
        GatewayError: INVALID_ARGUMENT if the parameter is not JSON text, or the request has other parameters, which
            UM-Bridge cannot represent; RESOURCE_EXHAUSTED if the text is longer than `limits.config`.
    """
    _refuse_other_parameters(request.parameters, "")
    for tensor in request.inputs:
        if tensor.parameters:
            _refuse_other_parameters(tensor.parameters, f" of input {tensor.name!r}", allowed=(GATEWAY_DATATYPE,))
    if not request.parameters:
        return EMPTY
    where = f"backend {target.backend!r}"
    raw = _checked_json(request.parameters.get(CONFIG, EMPTY.decode()), target.limits, where)
    return EMPTY if raw in _EQUAL_TO_EMPTY else raw


def _refuse_other_parameters(parameters: Parameters, owner: str, allowed: Iterable[str] = (CONFIG,)) -> None:
    for name in parameters:
        if name not in allowed:
            known = "which takes 'config' only, JSON as text; remove the parameter"
            raise invalid_input(f"parameter {name!r}{owner} is not supported by UM-Bridge, {known}")


def _checked_json(text: ParameterValue, limits: Limits, where: str) -> bytes:
    """Return `text` for insertion into the message. The text must be exactly one JSON value, so it cannot add members
    to the message."""
    if not isinstance(text, str):
        raise invalid_input(f"parameter 'config' is {excerpt(text)}, expected JSON text")
    try:
        raw = text.strip().encode()
        _check_size(len(raw), limits, where)
        members = read(b'{"config":%b}' % raw, {}, values=limits.json_values, literals=False)
        if len(members) != 1:
            raise DecodeError(f"it holds more than one value: {excerpt(text)}")
    except (DecodeError, UnicodeEncodeError) as error:
        why = _PLACE.sub("", str(error).removeprefix("not JSON: "))
        text = f"parameter 'config' is {excerpt(text)}, expected a text that is a JSON object"
        raise invalid_input(f"{text}, such as '{{\"level\": 1}}': {why}") from error
    return raw


def _check_size(size: int, limits: Limits, where: str) -> None:
    if size > limits.config:
        text = f"config of {size} bytes; `limits: {{config: {limits.config}}}` of {where} allows no more"
        raise refusal(Reason.TOO_LARGE, text)
