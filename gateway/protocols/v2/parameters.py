"""Handles V2 parameters: "key/value pairs" of "string, number, or boolean" in a request, a response and each tensor.

This module handles the parameters that the gateway itself acts on, and the request ids, which responses repeat. The
`parameters.py` of each transport reads and writes parameters.
"""

from reprlib import repr as shown

from gateway.core.errors import DecodeError, WrongReplyError
from gateway.core.messages import Message
from gateway.core.requests import Answer, Response
from gateway.core.tensors import Parameters, ParameterValue

CONSUMED = frozenset({"binary_data_output", "timeout", "triton_enable_empty_final_response"})
"""Request parameters that are meant for the first server that reads them. The gateway therefore does not forward them.

Triton rejects the last parameter over REST, although perf_analyzer adds it to every request."""

PRIORITY = "priority"
"""The request parameter of the extension `schedule_policy`, which is the priority in the server's queue.

0 means the default."""

FINAL_RESPONSE = "triton_final_response"
"""A parameter in each response that Triton streams over gRPC. The parameter is true in the last response."""


def take_flag(parameters: dict[str, ParameterValue], key: str, what: str) -> bool | None:
    """Remove the parameter `key` and return its value, or None if it is absent. Raise DecodeError if the value is not a
    boolean."""
    flag = parameters.pop(key, None)
    if flag is not None and not isinstance(flag, bool):
        raise DecodeError(f"{what}: parameter {key} must be true or false, not {shown(flag)}")
    return flag


def take_deadline(parameters: dict[str, ParameterValue], message: Message, what: str) -> float | None:
    """Remove the parameter `timeout`, which is in microseconds as in Triton, and return the deadline that it sets.

    Return None if the parameter is absent or 0.

    Raises:
        DecodeError: the timeout is not an integer of at least 0.
    """
    timeout = parameters.pop("timeout", 0)
    if type(timeout) is not int or timeout < 0:
        raise DecodeError(f"{what}: parameter timeout must be an integer number of microseconds, not {shown(timeout)}")
    return message.received + timeout / 1e6 if timeout else None


def without_consumed(parameters: dict[str, ParameterValue]) -> Parameters:
    """Return the parameters for the server, which are all parameters except a priority of 0 and the parameters in
    CONSUMED."""
    if not parameters:
        return parameters
    priority = parameters.get(PRIORITY)
    if priority == 0 and type(priority) is int:
        del parameters[PRIORITY]
    return {key: each for key, each in parameters.items() if key not in CONSUMED}


def refuse_shared_memory(parameters: Parameters, what: str) -> None:
    """Raise DecodeError if the parameters contain `shared_memory_*`, because the backend cannot access memory of the
    client's machine."""
    for key in parameters:
        if key.startswith("shared_memory_"):
            raise DecodeError(f"{what}: {key} cannot cross the gateway; send the tensor's data in the request")


# --- Request ids ---


def check_id(answer: Answer, sent: str) -> None:
    """Check that a response belongs to the request with the id `sent`. The specification says: "if specified this
    identifier must be returned".

    A response without an id is not an error. Do not call this function for requests without an id, because MLServer
    generates an id.

    Raises:
        WrongReplyError: the response contains another id.
    """
    found = answer.id if isinstance(answer, Response) else None
    # servers in C and C++ end a string at its first NUL
    if found and found not in (sent, sent.partition("\0")[0]):
        raise WrongReplyError(f"the reply's id is {shown(found)}, expected {shown(sent)}, the request's")
