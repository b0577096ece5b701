"""Metric families: the names, kinds, labels and meanings of the metrics, for the page on the health port and the table
in `docs/observability.md`."""

from typing import Literal, TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from gateway.core.frozen import frozen

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

UNITS = ("seconds", "bytes")


@frozen
class Family:
    """One metric. `name` is the metric's name in queries. The name of a counter ends in `_total`; queries for a
    histogram append `_bucket`, `_count` or `_sum`. A unit is at the end of the name (before `_total`)."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str

    @property
    def unit(self) -> str:
        """Return the unit in the name, `seconds` or `bytes`; otherwise an empty text."""
        word = self.name.removesuffix("_total").rpartition("_")[2]
        return word if word in UNITS else ""

    def counter(self) -> CounterMetricFamily:
        """Return the counter, without samples."""
        return CounterMetricFamily(self.name, self.text, labels=self.labels, unit=self.unit)

    def gauge(self) -> GaugeMetricFamily:
        """Return the gauge, without samples."""
        return GaugeMetricFamily(self.name, self.text, labels=self.labels, unit=self.unit)

    def histogram(self) -> HistogramMetricFamily:
        """Return the histogram, without samples."""
        return HistogramMetricFamily(self.name, self.text, labels=self.labels, unit=self.unit)
