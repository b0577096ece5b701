"""The HTTP status codes for a Status and a Reason, for all protocols that use the codes with their usual meaning."""

from gateway.core.errors import GatewayError, Reason, Status

_BY_REASON = {
    Reason.TOO_LARGE: 413,
    Reason.INVALID_OUTPUT: 502,
    Reason.METHOD_NOT_ALLOWED: 405,
    Reason.REQUEST_TIMEOUT: 408,
    Reason.LENGTH_REQUIRED: 411,
    Reason.UNSUPPORTED_MEDIA_TYPE: 415,
    Reason.UNSUPPORTED_ENCODING: 415,
    Reason.HEADERS_TOO_LARGE: 431,
    Reason.VERSION_NOT_SUPPORTED: 505,
}

_BY_STATUS = {
    Status.INVALID_ARGUMENT: 400,
    Status.FAILED_PRECONDITION: 400,
    Status.OUT_OF_RANGE: 400,
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.ALREADY_EXISTS: 409,
    Status.ABORTED: 409,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.CANCELLED: 499,
    Status.UNIMPLEMENTED: 501,
    Status.UNAVAILABLE: 503,
    Status.DEADLINE_EXCEEDED: 504,
}

REASONS_BY_NUMBER = {
    400: Reason.INVALID_INPUT,
    401: Reason.UNAUTHENTICATED,
    403: Reason.PERMISSION_DENIED,
    404: Reason.MODEL_NOT_FOUND,
    405: Reason.UNSUPPORTED,
    413: Reason.TOO_LARGE,
    415: Reason.UNSUPPORTED_MEDIA_TYPE,
    422: Reason.INVALID_INPUT,  # FastAPI's validation errors; MLServer and KServe are built on FastAPI
    429: Reason.OVERLOADED,
    499: Reason.CANCELLED,
    501: Reason.UNSUPPORTED,
    502: Reason.INVALID_OUTPUT,
    503: Reason.UNREACHABLE,
    504: Reason.TIMEOUT,
}
"""The Reason assumed for a backend's error response without a Reason, by status code.

For all other codes, MODEL_ERROR is assumed."""


def number(error: GatewayError) -> int:
    """Return the status code of the response that reports `error`."""
    return _BY_REASON.get(error.reason) or number_of_status(error.status)


def number_of_status(status: Status) -> int:
    """Return the status code for `status` without a Reason, according to the usual mapping of gRPC codes to HTTP."""
    return _BY_STATUS.get(status, 500)
