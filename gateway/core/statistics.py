"""Statistics that servers report: counters of models (V2), and figures about the requests of a listener (grps)."""

import dataclasses
from collections.abc import Mapping
from enum import Enum

from gateway.core.frozen import frozen


@frozen
class ModelStatistics:
    """The counters of one model version, with the names in V2 JSON: `inference_count`, `inference_stats`, ..."""

    name: str
    version: str
    counters: Mapping[str, object] = dataclasses.field(default_factory=dict)


@frozen
class Statistics:
    """The response to `model-statistics` and `all-statistics`."""

    models: tuple[ModelStatistics, ...]


class Metric(Enum):
    """A quantity that a Series measures.

    Latencies are in milliseconds. Fractions and usage are in percent, and 100% CPU usage means one core."""

    REQUESTS = "requests that ended in the second"
    FAILED = "the share of these requests that failed"
    MEAN_LATENCY = "the mean latency of these requests"
    MAX_LATENCY = "the longest latency of these requests"
    LATENCY_PERCENTILES = "percentiles 1 to 100 of the latencies"
    CPU_USAGE = "CPU time of the process"
    MEMORY_USAGE = "the process's share of the machine's memory"


@frozen
class Series:
    """The values of one Metric: one value per second, the oldest first, or one value per percentile."""

    metric: Metric
    values: tuple[float, ...]


@frozen
class Measurements:
    """The response to `statistics`: figures about the requests of one listener."""

    series: tuple[Series, ...] = ()
