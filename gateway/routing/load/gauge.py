"""Reads the load from any Prometheus page: the sum of one metric's samples with the given labels. The code is pure."""

from collections.abc import Generator, Mapping

from gateway.core.errors import DecodeError
from gateway.routing.load.prometheus import is_counter, samples


def read(page: bytes, metric: str, labels: Mapping[str, str]) -> Generator[None, None, float]:
    """Return the load in `page`, which is at least 0. Works in steps, between which other tasks can run.

    Raises:
        DecodeError: same as `prometheus.samples`; also if the page contains no such sample, if the metric is a counter
            (which only grows), or if the sum is below 0.
    """
    if is_counter(page, metric):
        raise DecodeError(f"{metric} is a counter, which only grows; a gauge is wanted")
    found = None
    for sample in samples(page, (metric,)):
        if all(sample.labels.get(name) == value for name, value in labels.items()):
            found = (found or 0.0) + sample.value
        yield
    if found is None:
        of = ", ".join(f'{name}="{value}"' for name, value in labels.items())
        raise DecodeError(
            f"the page has no metric {metric}{{{of}}}"
            if of
            else f"the page has no metric {metric}; check `load.metric`"
        )
    if found < 0:
        raise DecodeError(f"{metric} is {found:g}, and a load is at least 0")
    return found
