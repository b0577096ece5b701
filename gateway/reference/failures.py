"""Exceptions of models, told to clients without their tracebacks."""

import logging

from gateway.core.errors import GatewayError, Reason, refusal, without_traceback

log = logging.getLogger(__name__)


def model_error(name: str, error: BaseException) -> GatewayError:
    """What a client is told of an exception of model `name`: `ValueError: message`. Its traceback goes to the log.

    A MemoryError says that resources are exhausted, which MIP tells as ERROR_MEMORY."""
    log.error("model %r failed", name, exc_info=error)
    message = without_traceback(str(error))
    reason = Reason.OVERLOADED if isinstance(error, MemoryError) else Reason.MODEL_ERROR
    return refusal(reason, f"{type(error).__name__}: {message}" if message else type(error).__name__)
