"""The stages in which a request spends its time: waiting in queues, at model servers, and in the gateway itself."""

from operator import add, sub
from typing import NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.observing.batches import DECODE, ENCODE, QUEUED, SECONDS, UPSTREAM, Batch

StageSeconds: TypeAlias = NDArray[np.float64]
"""FP64[5, requests]: the seconds of each request in QUEUE to WRITING."""

STAGES = ("queue", "server", "gateway", "reading", "writing")
"""The names of the stages, in the order of their rows. `queue`, `server` and `gateway` add up to the total time. If
parallel calls (steps of a graph, rows of a batch) together took longer than their request, `queue` and `server` are
scaled down to the total time:

- `queue`: time in backend queues.
- `server`: time in calls to endpoints, for all attempts together, including codecs and the network.
- `gateway`: all other time, such as the client's codec, routing, policies and conversion.
- `reading`, `writing`: the parts of `gateway` that the client's codec takes, measured only for some requests.
"""
QUEUE, SERVER, GATEWAY, READING, WRITING = range(5)


def stage_seconds(numbers: NDArray[np.float64]) -> StageSeconds:
    """Return the seconds that requests spent in each stage. `numbers` contains their measurements, as in
    `Batch.numbers`. READING and WRITING are 0 if they were not measured."""
    found = numbers[[QUEUED, UPSTREAM, SECONDS, DECODE, ENCODE]]
    calls = found[QUEUE] + found[SERVER]
    is_longer = calls > found[GATEWAY]  # found[GATEWAY] still contains the total time
    if is_longer.any():
        found[QUEUE : SERVER + 1, is_longer] *= found[GATEWAY, is_longer] / calls[is_longer]
    found[GATEWAY] -= np.minimum(calls, found[GATEWAY])
    return found


class StageSums(NamedTuple):
    """The total seconds that a group of requests spent in each stage, and the number of requests for which `reading`
    and `writing` were measured."""

    queue: float = 0.0
    server: float = 0.0
    gateway: float = 0.0
    reading: float = 0.0
    writing: float = 0.0
    read: float = 0.0
    written: float = 0.0

    def __add__(self, other: Self) -> Self:  # type: ignore[override] # adds values instead of joining tuples
        return type(self)(*map(add, self, other))

    def __sub__(self, other: Self) -> Self:
        return type(self)(*map(sub, self, other))

    def means(self, requests: int) -> tuple[float, ...]:
        """Return the mean seconds in each of STAGES for `requests` requests; NaN without requests."""
        numbers = (requests, requests, requests, self.read, self.written)
        return tuple(total / number if number else float("nan") for total, number in zip(self, numbers, strict=False))


def stage_sums(batch: Batch, groups: NDArray[np.int64], number: int) -> list[StageSums]:
    """Return the sums for each group of requests. `groups`, INT64[requests], contains the group of each request in
    `batch`. `number` is the number of groups."""
    seconds = stage_seconds(batch.numbers)
    measured = np.concatenate((seconds, seconds[READING:] > 0))
    if number == 1:
        return [StageSums(*measured.sum(axis=1).tolist())]
    sums = np.zeros((number, len(measured)))
    for at, row in enumerate(measured):
        sums[:, at] = np.bincount(groups, row, number)
    return [StageSums(*each) for each in sums.tolist()]
