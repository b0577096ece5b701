"""Reads and writes URLs of grps-rest: the operation of each path, and the query."""

from functools import lru_cache
from urllib.parse import parse_qsl, urlencode

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.frozen import frozen
from gateway.core.messages import Message
from gateway.protocols.grps.schema import METHODS

_ROOT = "/grps/v1"
_PREDICT = f"{_ROOT}/infer/predict"

METHOD_PATHS = {
    "Predict": ("POST", _PREDICT),
    "PredictStreaming": ("POST", _PREDICT),
    "Online": ("GET", f"{_ROOT}/health/online"),
    "Offline": ("GET", f"{_ROOT}/health/offline"),
    "CheckLiveness": ("GET", f"{_ROOT}/health/live"),
    "CheckReadiness": ("GET", f"{_ROOT}/health/ready"),
    "ServerMetadata": ("GET", f"{_ROOT}/metadata/server"),
    "ModelMetadata": ("POST", f"{_ROOT}/metadata/model"),
}
"""The HTTP method and path of each grps method on a backend."""

OPERATIONS = {
    f"{http_method} {path}": METHODS[name]
    for name, (own_method, path) in METHOD_PATHS.items()
    if path != _PREDICT
    for http_method in dict.fromkeys((own_method, "GET", "POST"))
}
"""The operation of each pattern except inference.

The gateway accepts GET and POST for all these patterns, because the Python server accepts "GET, POST", and the C++
server "any".
"""

METRICS_SERIES = f"GET {_ROOT}/monitor/series"
METRICS_PATTERNS = ("GET /", f"GET {_ROOT}/monitor/metrics", METRICS_SERIES)
"""The two paths of the metrics page, and the path of the series that the page plots."""

PATTERNS = (f"POST {_PREDICT}", *OPERATIONS)


def is_inference(message: Message) -> bool:
    """Return whether a client's message is an inference, either at the grps path or at any other path that a route maps
    to grps."""
    return message.pattern not in OPERATIONS and message.pattern not in METRICS_PATTERNS


# --- Query ---

_MAX_PARAMETERS = 100
_FLAGS = ("true", "false")


@frozen
class Query:
    """The parameters of a client's query. `name` is the name of a metrics series."""

    model: str = ""
    streaming: bool = False
    returns_ndarray: bool = False
    name: str = ""


_NO_QUERY = Query()


def read_query(query: str, stream_key: str = "") -> Query:
    """Return the query of a client's message. `stream_key` is the parameter that requests a stream.

    Raises:
        DecodeError: the query is not percent-encoded UTF-8, has more than 100 parameters, or has a flag that is not
            true or false.
    """
    return _read_query(query, stream_key) if query else _NO_QUERY


@lru_cache(256)
def _read_query(query: str, stream_key: str) -> Query:
    parameters = _parameters(query)
    return Query(
        parameters.get("model", ""),
        _is_true(parameters, stream_key),
        _is_true(parameters, "return-ndarray"),
        parameters.get("name", ""),
    )


def read_model(query: str) -> str:
    """Return the model name in a query whose other parameters belong to the model. Raise DecodeError if the query is
    not percent-encoded UTF-8 or has more than 100 parameters."""
    return _parameters(query).get("model", "") if query else ""


def _parameters(query: str) -> dict[str, str]:
    try:
        found = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS)
    except ValueError as error:
        raise DecodeError(
            f"the query is {query[:100]!r}, expected percent-encoded UTF-8 with at most {_MAX_PARAMETERS} parameters"
        ) from error
    return dict(found)


def _is_true(parameters: dict[str, str], key: str) -> bool:
    return key in parameters and read_flag(parameters[key], f"{key} in the query")


def read_flag(value: str, what: str) -> bool:
    """Return the value of a flag, which can be in upper or lower case.

    Raise DecodeError, with `what` in the message, for any other word, because a server would ignore the word and send a
    response that the client did not request."""
    word = value.strip().lower()
    if word not in _FLAGS:
        raise DecodeError(f"{what} is {value[:40]!r}, expected true or false")
    return word == "true"


@lru_cache(256)
def write_query(model: str, stream_key: str) -> str:
    """Return the query of a request to a backend.

    `stream_key` is the parameter that requests a stream, or empty. The cache saves 3 us per request.

    Raises:
        GatewayError: INVALID_ARGUMENT if the model's name has lone surrogates.
    """
    parameters = ({"model": model} if model else {}) | ({stream_key: "true"} if stream_key else {})
    try:
        return urlencode(parameters) if parameters else ""
    except UnicodeEncodeError as error:
        raise invalid_input(f"model {model[:40]!r} is not UTF-8; use another name") from error
