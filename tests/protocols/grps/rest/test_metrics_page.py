"""The page of metrics, and the series that it draws."""

import json
import re

import pytest

from gateway.core.errors import GatewayError
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.requests import DEFAULT_TRANSLATE
from gateway.core.statistics import Measurements, Metric, Series
from gateway.protocols.grps import GRPS_REST
from tests.protocols.grps.rest.wire import LISTENER

STATISTICS = Measurements(
    (Series(Metric.REQUESTS, (0, 2.5, 3)), Series(Metric.LATENCY_PERCENTILES, (1.0, 2.0)), Series(Metric.FAILED, ()))
)


def get(pattern: str, query: str = "") -> Message:
    request = GRPS_REST.decode_request(Message("GET", pattern=pattern, query=query), LISTENER)
    assert request.operation is Operation.STATISTICS
    return GRPS_REST.encode_response(STATISTICS, request, DEFAULT_TRANSLATE)


@pytest.mark.parametrize("pattern", ["GET /", "GET /grps/v1/monitor/metrics"])
def test_the_page_needs_nothing_but_the_series(pattern: str) -> None:
    page = get(pattern)
    text = bytes(page.body).decode()
    assert page.headers.get("content-type") == "text/html; charset=utf-8"
    assert re.findall(r"data-name='([^']*)'", text) == ["*qps", "*latency_cdf(ms)", "*fail_rate(%)"]
    assert re.findall(r"\b(?:src|href)=", text) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("name=*qps", {"label": "trend", "data": [[0, 0], [1, 2.5], [2, 3]]}),
        ("name=%2Alatency_cdf%28ms%29", {"label": "cdf", "data": [[0, 1.0], [1, 2.0]]}),
        ("name=*fail_rate(%25)", {"label": "trend", "data": []}),
    ],
)
def test_series(query: str, expected: object) -> None:
    found = get("GET /grps/v1/monitor/series", query)
    assert found.headers.get("content-type") == "application/json"
    assert json.loads(bytes(found.body)) == expected


def test_a_series_that_is_none() -> None:
    with pytest.raises(GatewayError, match=r"no series '\*gpu', expected one of \*qps, "):
        get("GET /grps/v1/monitor/series", "name=*gpu")
