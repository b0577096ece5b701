"""Converts grps errors to and from a Reason. A grps error is a message whose Status has the flag FAILURE.

The message is a normal response: over gRPC and brpc the call itself succeeds, and over HTTP the C++ server sends status
200. grps uses HTTP status codes as error codes over all transports.
"""

import re

from gateway.core import http_status
from gateway.core.errors import REASON_HEADER, REASONS, GatewayError, Reason, refusal
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.messages import Headers
from gateway.protocols.grps.schema import FAILURE, SUCCESS, GrpsMessage, GrpsStatus

OK = GrpsStatus(200, "OK", SUCCESS)
NOT_READY = GrpsStatus(503, "Service Unavailable", FAILURE)

_NO_SUCH_MODEL = re.compile(
    r"\[ExecutorException\] Not found model: .*|"  # the C++ server
    r"Traceback \(most recent call last\):\n.*\nRuntimeError: Model [^\n]* not found\.\n?",  # the Python server
    re.DOTALL,
)
"""The messages that real servers send, with code 500, for an unknown model."""


class ModelFailure(GatewayError):  # noqa: N818 - the flag's own word
    """A FAILURE with a `code` that the model or its server chose. grps clients receive the same code."""

    def __init__(self, reason: Reason, message: str, code: int) -> None:
        super().__init__(refusal(reason, message).status, reason, message)
        self.code = code


def failure(error: GatewayError) -> GrpsMessage:
    """Return the message that reports `error` to a client."""
    text = error.message.encode("utf-8", "replace").decode()  # without lone surrogates
    code = error.code if isinstance(error, ModelFailure) else http_status.number(error)
    return GrpsMessage(status=GrpsStatus(code, text, FAILURE))


def is_failure(status: GrpsStatus | None) -> bool:
    """Return whether a response with this status is an error. A response without a status is not an error: the C++
    server sends metadata over RPC in this form."""
    if status is None:
        return False
    if status.flag in (SUCCESS, FAILURE):
        return status.flag == FAILURE
    return status.code != 0 and not 200 <= status.code < 300


def backend_error(status: GrpsStatus, headers: Headers) -> GatewayError:
    """Return the error that a backend reports in `status`. The Python server's message can be a complete traceback."""
    text = status.text or f"status {status.code} without a message"
    told = REASONS.get(headers.get(REASON_HEADER))
    if told is None and status.code == 500 and _NO_SUCH_MODEL.fullmatch(status.text):
        told = Reason.MODEL_NOT_FOUND
    if told is not None:
        return refusal(told, text)
    return ModelFailure(REASONS_BY_NUMBER.get(status.code, Reason.MODEL_ERROR), text, status.code)
