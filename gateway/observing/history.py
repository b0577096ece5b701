"""An hour of history in bounded memory: statistics of requests in steps of ten seconds, for the console's charts."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.observing.counters import LATENCY_BOUNDS, CountedPath
from gateway.observing.stages import STAGES, StageSums

STEP = 10.0
"""Length of a step, in seconds."""
STEPS = 360
"""Number of stored steps, which cover an hour."""
MOST_SERIES = 256
"""Maximum number of gateway parts with their own history. Each history takes 17 KB, and reloads can add any number of
names. Additional parts count only in the history of the entire gateway."""

Part: TypeAlias = tuple[str, str]
"""A part of the gateway: `listener`, `route` or `backend`, and its name."""
ALL: Part = ("", "")
"""The entire gateway."""

REQUESTS, ERRORS, IN_FLIGHT, WAITING, MEDIAN, P95, P99, STAGE = range(8)
"""The rows of a series. The rows from STAGE on contain the mean time in each of STAGES. The rows from MEDIAN on (three
latencies and the stage times) are in seconds, or NaN if no request has ended."""
ROWS = STAGE + len(STAGES)


class PartLoad(NamedTuple):
    """The numbers of a part's requests at one moment: requests `in_flight`, and, for backends, requests `waiting` for a
    free slot."""

    in_flight: int
    waiting: int


class Steps(NamedTuple):
    """The history of a part, with one value per step, oldest first.

    - `times`: the Unix times of the ends of the steps.
    - `seconds`: the lengths of the steps. A step is longer than STEP if the process was too busy to end it in time.
    - `values`: FP32[12, steps], with the rows REQUESTS to P99, and then one row per stage.
    """

    times: NDArray[np.float64]
    seconds: NDArray[np.float64]
    values: NDArray[np.float32]


class History:
    """The last STEPS steps of the gateway and its parts. Call `observe` several times in each step, and `end_step`
    once."""

    def __init__(self) -> None:
        self._times = np.zeros(STEPS)
        self._seconds = np.zeros(STEPS)
        self._series: dict[Part, NDArray[np.float32]] = {ALL: _nothing()}
        self._ended = 0
        """The number of completed steps."""
        self._peaks: dict[Part, PartLoad] = {}
        """The highest loads of each part in the current step."""

    def observe(self, loads: Mapping[Part, PartLoad]) -> None:
        """Record the current loads of parts. The history stores each part's maximum load in a step."""
        for part, load in loads.items():
            before = self._peaks.get(part, load)
            self._peaks[part] = PartLoad(max(before.in_flight, load.in_flight), max(before.waiting, load.waiting))

    def end_step(self, counted: Iterable[CountedPath], now: float, seconds: float) -> None:
        """End a step of `seconds` at the Unix time `now`. `counted` contains the requests that ended in the step."""
        at = self._ended % STEPS
        self._times[at], self._seconds[at] = now, seconds
        sums = _sums(counted)
        busy = [part for part, load in self._peaks.items() if any(load)]
        for part in chain(sums, busy):
            if part not in self._series and len(self._series) < MOST_SERIES:
                self._series[part] = _nothing()
        for part, series in self._series.items():
            series[:, at] = _column(sums.get(part), self._peaks.get(part, PartLoad(0, 0)))
        self._peaks = {}
        self._ended += 1
        for part in [each for each, series in self._series.items() if each != ALL and _is_empty(series)]:
            del self._series[part]

    def steps(self, part: Part = ALL) -> Steps:
        """Return the history of a part. For a part without requests, the history consists of zeros."""
        order = np.arange(max(0, self._ended - STEPS), self._ended) % STEPS
        series = self._series.get(part)
        return Steps(self._times[order], self._seconds[order], (_nothing() if series is None else series)[:, order])


class _Sum:
    def __init__(self) -> None:
        self.succeeded = self.failed = self.rejected = 0
        self.latencies: Sequence[int] = (0,) * (len(LATENCY_BOUNDS) + 1)
        self.stages = StageSums()

    def add(self, path: CountedPath) -> None:
        self.succeeded += path.succeeded
        self.failed += path.failed.total()
        self.rejected += path.rejected.total()
        self.latencies = [one + other for one, other in zip(self.latencies, path.latencies, strict=True)]
        self.stages += path.stages


def _sums(counted: Iterable[CountedPath]) -> dict[Part, _Sum]:
    """Return the sums of the counts, by part."""
    found: dict[Part, _Sum] = {}
    for path in counted:
        listener, route, backend, _ = path.place
        own = (ALL, ("listener", listener), ("route", route)) if listener else ()  # not for graph steps
        for part in (*own, ("backend", backend)):
            if part == ALL or part[1]:
                found.setdefault(part, _Sum()).add(path)
    return found


def _column(counted: _Sum | None, load: PartLoad) -> tuple[float, ...]:
    if counted is None:
        return (0, 0, *load, *[math.nan] * (ROWS - MEDIAN))
    latencies = (quantile(counted.latencies, part) for part in (0.5, 0.95, 0.99))
    requests = counted.succeeded + counted.failed + counted.rejected
    return (requests, counted.failed, *load, *latencies, *counted.stages.means(requests))


def _nothing() -> NDArray[np.float32]:
    """Return the series of a step without requests."""
    made = np.zeros((ROWS, STEPS), np.float32)
    made[MEDIAN:] = math.nan
    return made


def _is_empty(series: NDArray[np.float32]) -> bool:
    return not (series[REQUESTS].any() or series[IN_FLIGHT].any() or series[WAITING].any())


def quantile(latencies: Sequence[int], part: float) -> float:
    """Return the latency, in seconds, that this fraction (`part`) of the requests did not exceed. The result is an
    estimate within the correct bucket of LATENCY_BOUNDS. Without requests, the result is NaN. If the latency exceeds
    the last bound, the result is the last bound."""
    wanted = part * sum(latencies)
    if not wanted:
        return math.nan
    for at, count in enumerate(latencies[: len(LATENCY_BOUNDS)]):
        if count and wanted <= count:
            upper = LATENCY_BOUNDS[at]
            lower = LATENCY_BOUNDS[at - 1] if at else upper / 10**0.2
            return float(lower * (upper / lower) ** (wanted / count))
        wanted -= count
    return LATENCY_BOUNDS[-1]
