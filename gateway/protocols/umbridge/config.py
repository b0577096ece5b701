"""`config`: any JSON value on the wire of UM-Bridge, and elsewhere a parameter that holds its text."""

from collections.abc import Iterable

from gateway.core.datatypes import GATEWAY_DATATYPE
from gateway.core.errors import DecodeError, Reason, invalid_input, refusal
from gateway.core.protocol import Limits
from gateway.core.types import Parameters, ParameterValue, Request
from gateway.json import Json, read, write
from gateway.protocols.umbridge.excerpts import excerpt

CONFIG = "config"
NO_PARAMETERS: Parameters = {}
EMPTY = b"{}"
_AS_GOOD_AS_EMPTY = (b"null", b"[]")


def to_parameters(config: Json, limits: Limits, where: str) -> Parameters:
    """The parameter for a request's `config`: compact text of equal value, in the order of its keys. None for `{}`,
    `[]` (R writes an empty list so), null, or a request without one.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED, its text is longer than the limit.
    """
    if config is None or config == {} or config == []:
        return NO_PARAMETERS
    raw = write(config)
    _check_size(len(raw), limits, where)
    return {CONFIG: raw.decode()}


def to_json(request: Request, limits: Limits, where: str) -> bytes:
    """The JSON value for a request's parameter; `{}` without one, since that is what every client sends.

    Raises:
        GatewayError: the parameter is not JSON text, or too long; there are other parameters.
    """
    if not request.parameters and not any(tensor.parameters for tensor in request.inputs):
        return EMPTY
    refuse_others(request.parameters, "")
    for tensor in request.inputs:
        refuse_others(tensor.parameters, f" of input {tensor.name!r}", allowed=(GATEWAY_DATATYPE,))
    raw = _checked(request.parameters.get(CONFIG, EMPTY.decode()), limits, where)
    return EMPTY if raw in _AS_GOOD_AS_EMPTY else raw


def refuse_others(parameters: Parameters, owner: str, allowed: Iterable[str] = (CONFIG,)) -> None:
    """Nothing that a client said is dropped in silence."""
    for name in parameters:
        if name not in allowed:
            raise invalid_input(f"parameter {name!r}{owner} has no place in UM-Bridge, which takes 'config' only")


def _checked(text: ParameterValue, limits: Limits, where: str) -> bytes:
    """`text` as it will stand in the message: one whole value, so that it can not add members of its own."""
    if not isinstance(text, str):
        raise invalid_input(f"parameter 'config' is {excerpt(text)}, expected JSON text")
    try:
        raw = text.strip().encode()
        _check_size(len(raw), limits, where)
        members = read(b'{"config":%b}' % raw, {}, values=limits.json_values, literals=False)
        if len(members) != 1:
            raise DecodeError(f"it holds more than one value: {excerpt(text)}")
    except (DecodeError, UnicodeEncodeError) as error:
        raise invalid_input(f"parameter 'config' is not JSON text: {error}") from error
    return raw


def _check_size(size: int, limits: Limits, where: str) -> None:
    if size > limits.config:
        text = f"config of {size} bytes; `limits: {{config: {limits.config}}}` of {where} allows no more"
        raise refusal(Reason.TOO_LARGE, text)
