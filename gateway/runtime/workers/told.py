"""Requests and their errors as a worker tells the supervisor of them, and the supervisor's answers: values that a
Channel carries. Both processes run the same code, and nobody else can write to the channel: pickled bytes are safe."""

import pickle
from typing import Any, TypeAlias

from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.record import UNRECORDED
from gateway.core.types import Answer, Request, Tries
from gateway.runtime.workers.channel import read_error, written_error

SEQUENCE_KEYS = ("sequence_id", "sequence_start", "sequence_end")
"""The parameters of a request that decide where it goes."""

Told: TypeAlias = tuple[str, str, str, str, dict[str, Any], tuple[list[str], bool] | None]


def told(request: Request) -> Told:
    """The values of a request that decide where it goes."""
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


def request_told(values: Told) -> Request:
    """The request that was told."""
    operation, client, model, version, parameters, avoided = values
    tries = None if avoided is None else Tries(avoided=frozenset(avoided[0]), elsewhere=avoided[1])
    return Request(Operation(operation), model, version, parameters=parameters, peer=f"{client}:0", tries=tries)


def packed(request: Request) -> bytes:
    """A request that the supervisor has answered by servers, without what belongs to this process alone."""
    plain = replace(request, deadline=None, origin=None, record=UNRECORDED, span=None, tries=None, calls_left=None)
    return pickle.dumps(plain)


def unpacked(data: bytes) -> Request:
    """The request in `packed` bytes, which another process of this gateway has written."""
    request: Request = pickle.loads(data)
    return request


def packed_answer(answer: Answer | None) -> bytes:
    """An answer; None: there is none of the supervisor's own."""
    return pickle.dumps(answer)


def unpacked_answer(data: bytes) -> Answer | None:
    """The answer in `packed_answer` bytes."""
    answer: Answer | None = pickle.loads(data)
    return answer


def told_error(error: GatewayError) -> tuple[object, ...]:
    """An error, with the endpoint where it occurred."""
    return *written_error(error), error.endpoint


def error_told(values: tuple[Any, ...]) -> GatewayError:
    """The error that was told."""
    *written, endpoint = values
    error = read_error(tuple(written))
    error.endpoint = endpoint
    return error
