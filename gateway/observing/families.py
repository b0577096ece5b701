"""Metric families: the name, type, labels and help text of each metric, for the page on the health port and the table
in `docs/observability.md`."""

from typing import Literal, TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from gateway.core.frozen import frozen

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

UNITS = ("seconds", "bytes")


@frozen
class Family:
    """One metric. `name` is the metric's name in queries. A counter's name ends in `_total`; queries for a histogram
    append `_bucket`, `_count` or `_sum`. The unit, if any, is at the end of the name, before `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str

    @property
    def unit(self) -> str:
        """Return the unit in the name, `seconds` or `bytes`, or an empty string."""
        word = self.name.removesuffix("_total").rpartition("_")[2]
        return word if word in UNITS else ""

    def counter(self) -> CounterMetricFamily:
        """Return the counter as a prometheus-client metric, without samples."""
        return CounterMetricFamily(self.name, self.text, labels=self.labels, unit=self.unit)

    def gauge(self) -> GaugeMetricFamily:
        """Return the gauge as a prometheus-client metric, without samples."""
        return GaugeMetricFamily(self.name, self.text, labels=self.labels, unit=self.unit)

    def histogram(self) -> HistogramMetricFamily:
        """Return the histogram as a prometheus-client metric, without samples."""
        return HistogramMetricFamily(self.name, self.text, labels=self.labels, unit=self.unit)
