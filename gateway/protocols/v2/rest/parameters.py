"""V2 parameters in JSON, which are an object of strings, numbers and booleans."""

from math import isfinite
from reprlib import repr as shown

from msgspec import UNSET

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.types import Parameters, ParameterValue

_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1


def read_parameters(given: object, what: str, *, reply: bool = False) -> dict[str, ParameterValue]:
    """Return the parameters in `given`, a JSON object, or no parameters if it is null or missing.

    If `reply` is True, values that servers add are skipped: null for an absent value (KServe), and the request's HTTP
    headers in an object `headers` (MLServer).

    Raises:
        DecodeError: `given` is not an object, or has a value that is not a string, 64-bit integer, finite number or
            boolean. The text names the value's key.
    """
    if given is None or given is UNSET:
        return {}
    if type(given) is not dict:
        raise DecodeError(f"{what}: parameters must be an object, not {shown(given)}")
    if reply:
        given = {
            key: each
            for key, each in given.items()
            if each is not None and not (key == "headers" and type(each) is dict)
        }
    return {key: each if type(each) in _SIMPLE else _read_number(key, each, what) for key, each in given.items()}


_SIMPLE = frozenset({str, bool})


def _read_number(key: str, given: object, what: str) -> ParameterValue:
    if isinstance(given, int) and _INT64_MIN <= given <= _UINT64_MAX:
        return given
    if isinstance(given, float) and isfinite(given):
        return given
    raise DecodeError(
        f"{what}: parameter {shown(key)} must be a string, a finite number of at most 64 bits or a boolean, "
        f"not {'null' if given is None else shown(given)}"
    )


def json_parameters(parameters: Parameters, what: str) -> Parameters:
    """Return `parameters` unchanged, if JSON can carry them. gRPC and other protocols also carry NaN, infinities and
    strings of any bytes.

    Raises:
        GatewayError: INVALID_ARGUMENT if JSON cannot carry a parameter. The text names its key.
    """
    for key, value in parameters.items():
        if isinstance(value, float) and not isfinite(value):
            raise invalid_input(f"{what}: parameter {key!r} is {value}, which JSON cannot carry")
        if isinstance(value, str) and not value.isascii() and not _is_utf8(value):
            raise invalid_input(f"{what}: parameter {key!r} is not UTF-8, which JSON cannot carry")
    return parameters


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
