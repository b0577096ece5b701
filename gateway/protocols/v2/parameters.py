"""V2's parameters: "key/value pairs" of "string, number, or boolean" on a request, a response and each tensor."""

from math import isfinite
from reprlib import repr as shown

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.types import Message, Parameters, ParameterValue

_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1

CONSUMED = frozenset({"binary_data_output", "priority", "timeout", "triton_enable_empty_final_response"})
"""Request parameters that are meant for the server that reads them, and go no further. Triton refuses the last one over
REST, though perf_analyzer puts it on every call."""


FINAL_RESPONSE = "triton_final_response"
"""A parameter of each response that Triton streams over gRPC: whether it is the last."""


def read_parameters(given: object, what: str, *, reply: bool = False) -> dict[str, ParameterValue]:
    """The parameters in `given`, a JSON object or nothing. `reply` reads what servers write: null for what is absent,
    as KServe, and the request's HTTP headers in an object, as MLServer.

    Raises:
        DecodeError: not an object; naming its key, a value that is no string, 64-bit integer, finite number or boolean.
    """
    if given is None:
        return {}
    if type(given) is not dict:
        raise DecodeError(f"{what}: parameters must be an object, not {shown(given)}")
    return {key: _read(key, each, what) for key, each in given.items() if not (reply and _is_noise(key, each))}


def _is_noise(key: str, given: object) -> bool:
    return given is None or (key == "headers" and type(given) is dict)


def _read(key: str, given: object, what: str) -> ParameterValue:
    if isinstance(given, (str, bool)):
        return given
    if isinstance(given, int) and _INT64_MIN <= given <= _UINT64_MAX:
        return given
    if isinstance(given, float) and isfinite(given):
        return given
    raise DecodeError(
        f"{what}: parameter {shown(key)} must be a string, a finite number of at most 64 bits or a boolean, "
        f"not {'null' if given is None else shown(given)}"
    )


def take_flag(parameters: dict[str, ParameterValue], key: str, what: str) -> bool | None:
    """Remove `key` and give its value; None without one. Raises DecodeError where it is no boolean."""
    flag = parameters.pop(key, None)
    if flag is not None and not isinstance(flag, bool):
        raise DecodeError(f"{what}: parameter {key} must be true or false, not {shown(flag)}")
    return flag


def take_deadline(parameters: dict[str, ParameterValue], message: Message, what: str) -> float | None:
    """Remove `timeout`, in microseconds as Triton has it, and give the deadline that it sets; None without one.

    Raises:
        DecodeError: a timeout that is no integer of at least 0; 0 is none.
    """
    timeout = parameters.pop("timeout", 0)
    if type(timeout) is not int or timeout < 0:
        raise DecodeError(f"{what}: parameter timeout must be an integer number of microseconds, not {shown(timeout)}")
    return message.received + timeout / 1e6 if timeout else None


def without_consumed(parameters: dict[str, ParameterValue]) -> Parameters:
    """The parameters that go on to the model."""
    return {key: each for key, each in parameters.items() if key not in CONSUMED} if parameters else parameters


def refuse_shared_memory(parameters: Parameters, what: str) -> None:
    """Raises DecodeError for `shared_memory_*`: a region on the client's machine means nothing behind a gateway."""
    for key in parameters:
        if key.startswith("shared_memory_"):
            raise DecodeError(f"{what}: {key} cannot cross the gateway; send the tensor's data in the request")


def writable(parameters: Parameters, what: str) -> Parameters:
    """`parameters` as they go into JSON, which has no word for the NaN, the infinities and the bytes that other wires
    carry.

    Raises:
        GatewayError: INVALID_ARGUMENT naming the key.
    """
    for key, given in parameters.items():
        if isinstance(given, float) and not isfinite(given):
            raise invalid_input(f"{what}: parameter {key!r} is {given}, which JSON cannot carry")
        if isinstance(given, str) and not given.isascii() and not _is_utf8(given):
            raise invalid_input(f"{what}: parameter {key!r} is not UTF-8, which JSON cannot carry")
    return parameters


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
