"""Metric families: the names, kinds, labels and meanings of the metrics. The page of the health port and the table in
`docs/observability.md` are made of these."""

from typing import Literal, TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from gateway.core.frozen import frozen

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

UNITS = ("seconds", "bytes")


@frozen
class Family:
    """One metric. `name` is the one in queries: that of a counter ends in `_total`, and a histogram has its name with
    `_bucket`, `_count` and `_sum`. A unit stands at its end (before `_total`)."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str

    @property
    def unit(self) -> str:
        """`seconds`, `bytes`, or empty."""
        word = self.name.removesuffix("_total").rpartition("_")[2]
        return word if word in UNITS else ""

    def counter(self) -> CounterMetricFamily:
        """The counter, without samples."""
        return CounterMetricFamily(self.name, self.text, labels=self.labels, unit=self.unit)

    def gauge(self) -> GaugeMetricFamily:
        """The gauge, without samples."""
        return GaugeMetricFamily(self.name, self.text, labels=self.labels, unit=self.unit)

    def histogram(self) -> HistogramMetricFamily:
        """The histogram, without samples."""
        return HistogramMetricFamily(self.name, self.text, labels=self.labels, unit=self.unit)
