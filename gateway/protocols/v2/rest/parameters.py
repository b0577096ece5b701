"""Reads and writes V2 parameters over REST, which are a JSON object of strings, numbers and booleans.

Clients and servers also write null for an absent value (KServe, MLServer), and objects and lists (MLServer accepts any
JSON). Null counts as absent. Objects and lists remain JSON text (NestedJson), which only V2 REST can represent.
"""

import json
from collections.abc import Iterable
from math import isfinite
from reprlib import repr as shown
from typing import Any

from msgspec import UNSET, Raw

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.requests import NestedJson, RequestedOutput
from gateway.core.tensors import Parameters, ParameterValue, Tensor

_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1


def read_parameters(given: object, what: str, *, reply: bool = False) -> dict[str, ParameterValue]:
    """Return the parameters in the JSON object `given`, or no parameters if it is null or missing. The function skips
    parameters that are null. Objects and lists become NestedJson.

    If `reply` is True, the function also skips the object `headers`, in which MLServer returns the request's HTTP
    headers.

    Raises:
        DecodeError: `given` is not an object, or contains an integer that does not fit in 64 bits, an infinite number,
            or an object or list that the gateway would act upon. The message contains the value's key.
    """
    if given is None or given is UNSET:
        return {}
    if type(given) is not dict:
        raise DecodeError(f"{what}: parameters must be an object, not {shown(given)}")
    if reply and type(given.get("headers")) is dict:
        given = {key: each for key, each in given.items() if key != "headers"}
    return {
        key: each if type(each) in _SIMPLE else _read_other(key, each, what)
        for key, each in given.items()
        if each is not None
    }


_SIMPLE = frozenset({str, bool})


def _read_other(key: str, given: object, what: str) -> ParameterValue:
    if type(given) in _NESTED and not key.startswith(_OF_SEQUENCES):
        return _read_nested(key, given, what)
    if isinstance(given, int) and _INT64_MIN <= given <= _UINT64_MAX:
        return given
    if isinstance(given, float) and isfinite(given):
        return given
    raise DecodeError(
        f"{what}: parameter {shown(key)} must be a string, a finite number of at most 64 bits or a boolean, "
        f"not {shown(given)}"
    )


_NESTED = frozenset({dict, list})
_OF_SEQUENCES = "sequence_"
"""Parameters with this prefix determine the destination of a request."""


def _read_nested(key: str, given: object, what: str) -> NestedJson:
    try:
        # not orjson, which writes NaN as null
        return NestedJson(json.dumps(given, separators=(",", ":")))
    except TypeError as error:
        # the general reader treats a list with this name as tensor data
        raise DecodeError(f"{what}: parameter {shown(key)} has a list `data`; rename it") from error


def nested_parameter(
    parameters: Parameters, holders: Iterable[Tensor | RequestedOutput], what: str, role: str
) -> str | None:
    """Return an error message that names the first NestedJson in `parameters`, which are the parameters of `what`, or
    in the parameters of `holders`. Return None if there is no NestedJson. `role` is `input` or `output`."""
    if name := _first_nested(parameters):
        return f"{what}: parameter {shown(name)} is an object or a list, which only V2 REST carries"
    for each in holders:
        if name := _first_nested(each.parameters):
            text = f"{role} {each.name!r}: parameter {shown(name)} is an object or a list"
            return f"{text}, which only V2 REST carries"
    return None


def _first_nested(parameters: Parameters) -> str | None:
    return next((key for key, each in parameters.items() if type(each) is NestedJson), None)


def json_parameters(parameters: Parameters, what: str) -> Parameters:
    """Return `parameters` for `json.write_message`, unchanged except for NestedJson. Parameters from gRPC and other
    protocols can contain NaN, infinities and strings of any bytes, which JSON cannot represent.

    Raises:
        GatewayError: INVALID_ARGUMENT if JSON cannot represent a parameter. The message contains the key.
    """
    written: dict[str, Any] | None = None
    for key, value in parameters.items():
        if type(value) is NestedJson:
            written = written or dict(parameters)
            written[key] = Raw(value.encode())
        if isinstance(value, float) and not isfinite(value):
            raise invalid_input(f"{what}: parameter {key!r} is {value}, which JSON cannot carry")
        if isinstance(value, str) and not value.isascii() and not _is_utf8(value):
            raise invalid_input(f"{what}: parameter {key!r} is not UTF-8, which JSON cannot carry")
    return parameters if written is None else written


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
