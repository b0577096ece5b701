"""The key `backends.*.load`: where the strategy `least_load` reads how busy servers are."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from gateway.config.fields import VALUE, Keys, Name, Period, refusal

HOST, PORT = "{host}", "{port}"
"""Stand for those of the endpoint, in the URL of a page."""
TRITON_PAGE = "http://{host}:8002/metrics"

_BRACES = re.compile(r"\{[^}]*\}?|\}")


def _page(url: str) -> str:
    for found in _BRACES.findall(url):
        if found not in (HOST, PORT):
            raise refusal(f"{VALUE} has {found}; only {HOST} and {PORT} are replaced, by those of the endpoint")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise refusal(f"expected a URL such as {TRITON_PAGE}, got {VALUE}")
    if "@" in parts.netloc:
        raise refusal("the URL has a password, which would be shown")
    if parts.fragment:
        raise refusal(f"a page has no fragment, got {VALUE}")
    return url


PageUrl = Annotated[Name, AfterValidator(_page)]


class LoadConfig(Keys):
    """The source of the loads that `balance: least_load` compares."""

    kind: Literal["triton", "prometheus", "orca"] = Field("triton", alias="from")
    """`triton`: the metrics page of Triton. `prometheus`: one `metric` of any Prometheus page. `orca`: the load reports
    in replies, the header `endpoint-load-metrics` over HTTP and trailing metadata over gRPC."""
    url: PageUrl = TRITON_PAGE
    """The page of each server, with `{host}` and `{port}` of its endpoint; `load_url` of an endpoint is its own. Pages
    of more than 4 MiB are not read."""
    metric: Name | None = None
    """The metric of the page, a gauge: the sum of its samples is the load. For `orca` the name in the report, such as
    `named_metrics.queue`; without it `application_utilization`, else `cpu_utilization`, else
    `named_metrics.kv_cache_utilization`."""
    measures: Literal["calls", "use"] | None = None
    """The meaning of the number. `calls`: how many calls the server has, the default for `prometheus`. `use`: how much
    of it is in use (of a processor, a GPU, a cache), on any scale, the default for `orca`."""
    labels: Mapping[Name, str] = {}
    """`{LABEL: VALUE}`: only samples of the metric with these labels count."""
    interval: Period = 1
    """Seconds between two looks at the page of a server."""
    timeout: Period = 1
    """Seconds that a page may take."""
    stale: Period = 5
    """Seconds after which what a server said does not count any more; then its calls in flight do, until it says
    something again."""


DEFAULT_LOAD = LoadConfig.model_validate({})
"""Where the load of Triton servers is read."""
