"""The buckets of a histogram on the metrics page, for `request_metrics`."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeAlias

from prometheus_client.samples import Exemplar

LONGEST_ID = 100
"""Maximum length of a request id in an exemplar, in characters. OpenMetrics limits the names and values of an exemplar
to 128 characters in total."""

Exemplars: TypeAlias = dict[int, tuple[str, float, float]]
"""The last value of each bucket, by the bucket's index: the request's id, the value, and the time of the value."""
Bucket: TypeAlias = tuple[str, float] | tuple[str, float, Exemplar]


def buckets(
    bounds: Sequence[float], cumulative: Sequence[int], exemplars: Mapping[int, tuple[str, float, float]], epoch: float
) -> list[Bucket]:
    """Return the bounds and cumulative counts in the format of HistogramMetricFamily. There is one more count than
    bounds. `epoch` is the Unix time at which the exemplars' clock was 0."""
    found: list[Bucket] = []
    for at, (bound, below) in enumerate(zip((*bounds, inf), cumulative, strict=True)):
        last = exemplars.get(at)
        if last is None or not 0 < len(last[0]) <= LONGEST_ID:
            found.append((_text(bound), below))
        else:
            exemplar = Exemplar({"request_id": last[0]}, last[1], round(epoch + last[2], 3))
            found.append((_text(bound), below, exemplar))
    return found


def _text(bound: float) -> str:
    """Return the value of the label `le`."""
    return "+Inf" if bound == inf else repr(float(bound))
