"""The keys of `log`, `request_ids`, `metrics` and `tracing`.

An attribute is a key, and its docstring is the key's description in `docs/configuration`.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, Strict

from gateway.config.fields import (
    VALUE,
    EachHeaderOnce,
    Flag,
    HeaderName,
    Keys,
    Name,
    Period,
    SecretHeaderValue,
    Share,
    refusal,
)
from gateway.config.payload_log import PayloadLogConfig


def _log_path(path: str) -> str:
    if path not in ("stdout", "stderr") and not path.startswith("/"):
        raise refusal("expected stdout, stderr or the absolute path of a file, got {value}")
    return path


class AccessConfig(Keys):
    """The access log: one line for each request, written when the request ends. The log contains no header values, keys
    or tensors."""

    when: Literal["auto", "always", "never"] = "auto"
    """When the gateway writes the access log. `auto`: if `format` is `json`, or if `path` is a file or a terminal."""
    sample: Share = 1
    """Fraction of successful requests that are logged. Failed requests are always logged."""
    path: Annotated[Name, AfterValidator(_log_path)] = "stdout"
    """`stdout`, `stderr` or the absolute path of a file. The gateway reopens the file on SIGHUP and at every reload."""


class LogConfig(Keys):
    """The gateway's log on standard error, the access log and the payload log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum severity of the gateway's log lines. For libraries, the minimum is always `warning`."""
    format: Literal["text", "json"] = "text"
    """`text`: readable lines, with colors only on a terminal. `json`: one JSON object per line."""
    access: AccessConfig = AccessConfig()
    """One line for each request."""
    payloads: PayloadLogConfig | None = None
    """The payload log: requests and responses of a sample of calls, with their tensors. Off if absent."""


class RequestIdsConfig(Keys):
    """Request ids in responses and in requests to backends. Every request has an id in the access log, in traces, and
    in log lines about unexpected errors. If this key is absent, only error responses contain the id."""

    accept: Flag = True
    """Use the client's id: the value of `x-request-id` if it has at most 128 letters, digits and `._:/+=@-`, otherwise
    the trace id in a valid `traceparent`. If `false`, the gateway generates every id."""
    reply: Flag = True
    """Return the id to clients as `x-request-id`, in HTTP response headers and in gRPC trailers."""
    forward: Flag = True
    """Send the id to backends: over HTTP and gRPC as `x-request-id`, over brpc in the frame's meta. A valid
    `traceparent` from the client is forwarded too."""


def _ascending(bounds: tuple[float, ...]) -> tuple[float, ...]:
    for at in range(1, len(bounds)):
        if bounds[at] <= bounds[at - 1]:
            raise refusal(f"{VALUE} is not more than the bound before it, {bounds[at - 1]:g}", at)
    return bounds


class MetricsConfig(Keys):
    """`/metrics` on the health port, for Prometheus. If the health port is not enabled, the gateway records no
    metrics."""

    enabled: Flag = True
    """Record metrics, and serve the page."""
    models: Annotated[int, Strict(), Field(ge=0)] = 100
    """Maximum number of models with their own value of the label `model`, in addition to the models with an exact name
    in a route. The first models that return a response get their own values. All other models are counted together as
    `other`."""
    buckets: Annotated[tuple[Period, ...], Field(min_length=1, max_length=50), AfterValidator(_ascending)] = (
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
    )  # fmt: skip
    """Upper bounds of the histogram buckets, in seconds, ascending."""


def _collector(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise refusal(f"expected a URL such as http://127.0.0.1:4318, got {VALUE}")
    if parts.username or parts.password:
        raise refusal("the URL contains a password, which would not stay secret; use a header in `headers`")
    if find_spec("requests") is None:
        text = 'needs the package of the extra `tracing`: pip install "modelglot[tracing]"'
        raise refusal(text)
    return url if parts.path.strip("/") else f"{url.rstrip('/')}/v1/traces"


class TracingConfig(Keys):
    """OpenTelemetry tracing. Needs `pip install "modelglot[tracing]"`."""

    otlp: Annotated[Name, AfterValidator(_collector)]
    """URL of a collector that accepts OTLP over HTTP. The gateway appends `/v1/traces` to a URL without a path."""
    headers: Annotated[Mapping[HeaderName, SecretHeaderValue], EachHeaderOnce] = {}
    """`{NAME: VALUE}`: headers for requests to the collector."""
    sample: Share = 0.01
    """Fraction of the traces starting at this gateway that are recorded. If a request has a `traceparent` header, the
    header decides whether the trace is recorded."""
    service: Name = "modelglot"
    """Value of `service.name` in the spans."""
    interval: Period = 5
    """Seconds between two batches of spans."""
    timeout: Period = 10
    """Timeout for sending a batch to the collector, in seconds. While the collector is slow, the gateway keeps the
    trace data of at most 2048 requests, and drops the rest."""
