"""The key `backends.*.load`: the source of the servers' load for the strategy `least_load`."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from gateway.config.fields import VALUE, Keys, Name, Period, refusal

HOST, PORT = "{host}", "{port}"
"""Placeholders for the endpoint's host and port in the URL of a page."""
TRITON_PAGE = "http://{host}:8002/metrics"

_BRACES = re.compile(r"\{[^}]*\}?|\}")


def _page(url: str) -> str:
    for found in _BRACES.findall(url):
        if found not in (HOST, PORT):
            raise refusal(f"{VALUE} has {found}; use only {HOST} and {PORT}, the endpoint's host and port")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise refusal(f"expected a URL such as {TRITON_PAGE}, got {VALUE}")
    if "@" in parts.netloc:
        raise refusal("the URL contains a password, which would not stay secret; remove it")
    if parts.fragment:
        raise refusal(f"expected the URL of a page without a fragment (#...), got {VALUE}")
    return url


PageUrl = Annotated[Name, AfterValidator(_page)]


class LoadConfig(Keys):
    """Source of the server loads that `balance: least_load` compares."""

    kind: Literal["triton", "prometheus", "orca"] = Field("triton", alias="from")
    """`triton`: Triton's metrics page. `prometheus`: the `metric` on any Prometheus page. `orca`: the load reports in
    responses, in the header `endpoint-load-metrics` over HTTP and in trailing metadata over gRPC."""
    url: PageUrl = TRITON_PAGE
    """URL of each server's page, with the placeholders `{host}` and `{port}` for the endpoint's host and port. An
    endpoint's `load_url` overrides this URL. The gateway ignores pages larger than 4 MiB."""
    metric: Name | None = None
    """Name of a gauge metric on the page. The load is the sum of the metric's samples. For `orca`: name in the report,
    such as `named_metrics.queue`. Default for `orca`: `application_utilization`, otherwise `cpu_utilization`, otherwise
    `named_metrics.kv_cache_utilization`."""
    measures: Literal["calls", "use"] | None = None
    """What the metric measures. `calls` (default for `prometheus`): number of calls at the server. `use` (default for
    `orca`): utilization of a processor, a GPU or a cache, on any scale."""
    labels: Mapping[Name, str] = {}
    """`{LABEL: VALUE}`: use only samples of the metric with these labels."""
    interval: Period = 1
    """Seconds between two requests for a server's page."""
    timeout: Period = 1
    """Timeout of a request for a page, in seconds."""
    stale: Period = 5
    """Age above which a load report is ignored, in seconds. Until the next report, the gateway uses the number of calls
    in flight instead."""


DEFAULT_LOAD = LoadConfig.model_validate({})
"""The default source: Triton's metrics page."""
