"""The key `backends.*.load`: the source of the loads that servers report."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from gateway.config.document import Location
from gateway.config.fields import VALUE, Keys, Name, Period, refusal
from gateway.config.problems import Finding, unused
from gateway.core.protocol import Protocol, StreamBinding

URL_HOST, URL_PORT = "{host}", "{port}"
"""Placeholders for the endpoint's host and port in the URL of a page."""
TRITON_PAGE = "http://{host}:8002/metrics"

_BRACES = re.compile(r"\{[^}]*\}?|\}")


def _page(url: str) -> str:
    for found in _BRACES.findall(url):
        if found not in (URL_HOST, URL_PORT):
            raise refusal(f"{VALUE} has {found}; use only {URL_HOST} and {URL_PORT}, the endpoint's host and port")
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
    """Quantity that the metric measures. `calls` (default for `prometheus`): number of calls at the server. `use`
    (default for `orca`): utilization of a processor, a GPU or a cache, on any scale."""
    labels: Mapping[Name, str] = {}
    """`{LABEL: VALUE}`: use only samples of the metric with these labels."""
    interval: Period = 1
    """Interval between requests for a server's page, in seconds."""
    timeout: Period = 1
    """Timeout of a request for a page, in seconds."""
    stale: Period = 5
    """Age above which the gateway ignores a load report, in seconds. Until the next report, the gateway uses the number
    of calls in flight instead."""

    def findings(self, location: Location, protocol: Protocol) -> Iterator[Finding]:
        """Find missing keys, invalid values, and a source that the protocol does not have."""
        if self.kind == "prometheus":
            if self.metric is None:
                yield Finding(location, "expected the key `metric`: the gauge of a server's load", at_key=True)
            elif not _METRIC.fullmatch(self.metric):
                yield Finding((*location, "metric"), f"{VALUE} is not a valid metric name")
            if "url" not in self.model_fields_set:
                yield Finding(location, "expected the key `url`, such as http://{host}:8000/metrics", at_key=True)
            for label in self.labels:
                if not _LABEL.fullmatch(label):
                    yield Finding((*location, "labels", label), f"{label!r} is not a valid label name", at_key=True)
        if self.kind == "orca" and isinstance(protocol.binding, StreamBinding):
            text = f"{protocol.name} responses have no headers for load reports; use `from: prometheus`"
            yield Finding((*location, "from"), text)
        if self.kind != "orca" and self.stale < self.interval:
            yield Finding(
                (*location, "stale"), f"expected at least `interval`, which is {self.interval:g}, got {VALUE}"
            )

    def warnings(self, location: Location) -> Iterator[Finding]:
        """Find keys without effect."""
        for key in _UNUSED[self.kind]:
            if key in self.model_fields_set:
                yield unused((*location, key), f"`from` is {self.kind}")


_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_UNUSED = {
    "triton": ("metric", "labels", "measures"),
    "prometheus": (),
    "orca": ("url", "interval", "timeout", "labels"),
}
"""The keys without effect, for each value of `from`."""

DEFAULT_LOAD = LoadConfig.model_validate({})
"""The default source: Triton's metrics page."""
