"""Convert exceptions of models to client errors, which contain no traceback."""

import logging

from gateway.core.errors import GatewayError, Reason, refusal, without_traceback

log = logging.getLogger(__name__)


def model_error(name: str, error: BaseException) -> GatewayError:
    """Return the client error for an exception of model `name`, with a message such as `ValueError: message`. The
    traceback goes to the log.

    A MemoryError becomes RESOURCE_EXHAUSTED (overloaded), which MIP encodes as ERROR_MEMORY."""
    log.error("model %r failed", name, exc_info=error)
    message = without_traceback(str(error))
    reason = Reason.OVERLOADED if isinstance(error, MemoryError) else Reason.MODEL_ERROR
    return refusal(reason, f"{type(error).__name__}: {message}" if message else type(error).__name__)
