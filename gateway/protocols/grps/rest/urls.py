"""What stands in the query of a URL of grps."""

from functools import lru_cache
from urllib.parse import parse_qsl, urlencode

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.frozen import frozen

_MOST_PARAMETERS = 100


@frozen
class Query:
    """`model`, and the switches; their value is `true` in any case. `name` is that of a series."""

    model: str = ""
    streaming: bool = False
    returns_ndarray: bool = False
    name: str = ""


NOTHING = Query()


def read(text: str) -> Query:
    """The query of a request. Raises DecodeError for one that is not percent-encoded UTF-8, or endless."""
    return _read(text) if text else NOTHING


@lru_cache(256)
def _read(text: str) -> Query:
    try:
        given = dict(parse_qsl(text, errors="strict", max_num_fields=_MOST_PARAMETERS))
    except ValueError as error:
        raise DecodeError(f"the query {text[:100]!r} is not percent-encoded UTF-8") from error
    return Query(
        given.get("model", ""), _is_true(given, "streaming"), _is_true(given, "return-ndarray"), given.get("name", "")
    )


def _is_true(given: dict[str, str], key: str) -> bool:
    return given.get(key, "").lower() == "true"


def write(*, model: str = "", streaming: bool = False) -> str:
    """The query that says so. Raises GatewayError, INVALID_ARGUMENT, for a model's name with lone surrogates."""
    given = ({"model": model} if model else {}) | ({"streaming": "true"} if streaming else {})
    try:
        return urlencode(given) if given else ""
    except UnicodeEncodeError as error:
        raise invalid_input(f"model {model[:40]!r} is not UTF-8") from error
