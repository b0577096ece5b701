"""grps' errors: a Status whose flag is FAILURE, to and from a Reason.

They are messages like any other: over RPC the call itself succeeds, and the C++ server answers them with HTTP's 200.
"""

import re

from gateway.core import http_status
from gateway.core.errors import REASON_HEADER, REASONS, GatewayError, Reason, reason_field, refusal
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.types import Headers
from gateway.protocols.grps.message import GrpsMessage, GrpsStatus
from gateway.protocols.grps.schema import FAILURE, SUCCESS

"""The header, or trailer, in which the Reason goes to another gateway."""

OK = GrpsStatus(200, "OK", SUCCESS)
NOT_READY = GrpsStatus(503, "Service Unavailable", FAILURE)


def failure(error: GatewayError) -> GrpsMessage:
    """The message that tells `error`; its text holds no lone surrogates."""
    # RPC has no codes of its own for grps' errors: all have those of HTTP
    text = error.message.encode("utf-8", "replace").decode()
    return GrpsMessage(status=GrpsStatus(http_status.number(error), text, FAILURE))


def reason_header(error: GatewayError) -> tuple[bytes, bytes]:
    """The header beside it."""
    return reason_field(error)


def is_failure(status: GrpsStatus | None) -> bool:
    """Whether a reply of this status tells an error. Metadata comes without one from the C++ server, over RPC."""
    if status is None:
        return False
    if status.flag in (SUCCESS, FAILURE):
        return status.flag == FAILURE
    return status.code != 0 and not 200 <= status.code < 300


_NO_SUCH_MODEL = re.compile(
    r"\[ExecutorException\] Not found model: .*|"  # the C++ server
    r"Traceback \(most recent call last\):\n.*\nRuntimeError: Model [^\n]* not found\.\n?",  # the Python server
    re.DOTALL,
)
"""What real servers tell of a model that they have not, as an error of their own: 500."""


def told(status: GrpsStatus, headers: Headers) -> GatewayError:
    """The error that a backend tells by `status`; the Python server's text may be a whole traceback."""
    reason = REASONS.get(headers.get(REASON_HEADER)) or _reason(status)
    return refusal(reason, status.text or f"status {status.code} without a message")


def _reason(status: GrpsStatus) -> Reason:
    if status.code == 500 and _NO_SUCH_MODEL.fullmatch(status.text):
        return Reason.MODEL_NOT_FOUND
    return REASONS_BY_NUMBER.get(status.code, Reason.MODEL_ERROR)
