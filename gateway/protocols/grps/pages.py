"""The page of metrics, and the series that it draws: how requests went, second by second."""

from collections.abc import Mapping
from html import escape
from importlib.resources import files

from gateway import json
from gateway.core.errors import Reason, refusal
from gateway.core.types import Answer, Headers, Message, Request
from gateway.protocols.grps import queries
from gateway.protocols.grps.rest_bodies import JSON

_SERIES = "GET /grps/v1/monitor/series"
PATTERNS = ("GET /", "GET /grps/v1/monitor/metrics", _SERIES)

_HTML = Headers(((b"content-type", b"text/html; charset=utf-8"),))
_PAGE = files(__package__).joinpath("metrics.html").read_text("utf-8")
_CDF = "_cdf("


def encode(answer: Answer, request: Request) -> Message:
    """The page, or the one series that its `name` asks for. `answer` are numbers by the names of their series, such as
    `*qps`, the oldest first.

    Raises:
        GatewayError: NOT_FOUND, no such series.
    """
    assert isinstance(answer, Mapping)
    message = request.origin
    assert message is not None
    if message.pattern != _SERIES:
        names = "".join(f"<section data-name='{escape(name)}'></section>" for name in answer)
        return Message(headers=_HTML, parts=(_PAGE.replace("<!-- series -->", names).encode(),), status=200)
    name = queries.read(message.query).name
    numbers = answer.get(name)
    if not isinstance(numbers, list | tuple):
        raise refusal(Reason.PATH_NOT_FOUND, f"no series {name[:100]!r}, expected one of {', '.join(answer)}")
    document = {"label": "cdf" if _CDF in name else "trend", "data": list(enumerate(numbers))}
    return Message(headers=JSON, parts=(json.write(document),), status=200)
