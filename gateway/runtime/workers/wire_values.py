"""Converts requests and errors to values in messages from a worker to the supervisor, and the supervisor's answers to
values in replies.

A Channel can transport these values. Both processes run the same code, and no other process can write to the channel,
so pickled bytes are safe.
"""

import pickle
from typing import Any, TypeAlias

from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.record import UNRECORDED
from gateway.core.requests import Answer, Request, Tries
from gateway.runtime.workers.channel import read_error, written_error

SEQUENCE_KEYS = ("sequence_id", "sequence_start", "sequence_end")
"""The parameters of a request that determine its destination."""

RequestValues: TypeAlias = tuple[str, str, str, str, dict[str, Any], tuple[list[str], bool] | None]


def request_values(request: Request) -> RequestValues:
    """Return the values that determine a request's destination."""
    tries = request.tries
    given = {} if request.unread is not None else request.parameters
    return (
        request.operation.value,
        request.client,
        request.model,
        request.version,
        {key: given[key] for key in SEQUENCE_KEYS if key in given},
        None if tries is None else (list(tries.avoided), tries.elsewhere),
    )


def request_from_values(values: RequestValues) -> Request:
    """Return a request with these values."""
    operation, client, model, version, parameters, avoided = values
    tries = None if avoided is None else Tries(avoided=frozenset(avoided[0]), elsewhere=avoided[1])
    return Request(Operation(operation), model, version, parameters=parameters, peer=f"{client}:0", tries=tries)


def pickled_request(request: Request) -> bytes:
    """Return the pickled bytes of a request for which the supervisor queries servers. They omit data that only this
    process can use."""
    plain = replace(request, deadline=None, origin=None, record=UNRECORDED, span=None, tries=None, calls_left=None)
    return pickle.dumps(plain)


def unpickled_request(data: bytes) -> Request:
    """Return the request in bytes that `pickled_request` has returned in another process of this gateway."""
    request: Request = pickle.loads(data)
    return request


def pickled_answer(answer: Answer | None) -> bytes:
    """Return the pickled bytes of an answer, or of None if the supervisor itself has no answer."""
    return pickle.dumps(answer)


def unpickled_answer(data: bytes) -> Answer | None:
    """Return the answer in bytes that `pickled_answer` has returned."""
    answer: Answer | None = pickle.loads(data)
    return answer


def error_values(error: GatewayError) -> tuple[object, ...]:
    """Return the values that represent an error, including the endpoint where it occurred."""
    return *written_error(error), error.endpoint


def error_from_values(values: tuple[Any, ...]) -> GatewayError:
    """Return the error with these values."""
    *written, endpoint = values
    error = read_error(tuple(written))
    error.endpoint = endpoint
    return error
