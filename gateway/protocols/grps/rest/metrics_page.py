"""The metrics page, and the series that it plots: request results per second."""

from html import escape
from importlib.resources import files

from gateway.core import json
from gateway.core.errors import Reason, refusal
from gateway.core.messages import JSON_HEADERS, Headers, Message
from gateway.core.requests import Answer, Request
from gateway.core.statistics import Measurements, Metric
from gateway.protocols.grps.rest.urls import METRICS_SERIES, read_query

_HTML = Headers(((b"content-type", b"text/html; charset=utf-8"),))
_PAGE = files(__package__).joinpath("metrics_page.html").read_text("utf-8")

_NAMES = {
    Metric.REQUESTS: "*qps",
    Metric.FAILED: "*fail_rate(%)",
    Metric.MEAN_LATENCY: "*latency_avg(ms)",
    Metric.MAX_LATENCY: "*latency_max(ms)",
    Metric.LATENCY_PERCENTILES: "*latency_cdf(ms)",
    Metric.CPU_USAGE: "*cpu_usage(%)",
    Metric.MEMORY_USAGE: "*mem_usage(%)",
}
"""The names of the series in grps."""


def encode_response(answer: Answer, request: Request) -> Message:
    """Return the page, or the series that the query selects.

    Raises:
        GatewayError: NOT_FOUND if the series is unknown.
    """
    assert isinstance(answer, Measurements)
    series_by_name = {_NAMES[each.metric]: each for each in answer.series}
    message = request.origin
    assert message is not None
    if message.pattern != METRICS_SERIES:
        names = "".join(f"<section data-name='{escape(name)}'></section>" for name in series_by_name)
        return Message(headers=_HTML, parts=(_PAGE.replace("<!-- series -->", names).encode(),), status=200)
    name = read_query(message.query).name
    series = series_by_name.get(name)
    if series is None:
        raise refusal(Reason.PATH_NOT_FOUND, f"no series {name[:100]!r}, expected one of {', '.join(series_by_name)}")
    label = "cdf" if series.metric is Metric.LATENCY_PERCENTILES else "trend"
    document = {"label": label, "data": list(enumerate(series.values))}
    return Message(headers=JSON_HEADERS, parts=(json.write(document),), status=200)
