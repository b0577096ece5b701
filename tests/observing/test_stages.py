"""The stages in which requests spend their time."""

import numpy as np
import pytest

from gateway.core.record import Record
from gateway.observing.stages import READING, STAGES, StageSums, stage_seconds, stage_sums
from tests import records


def record(seconds: float, *, queued: float = 0.0, upstream: float = 0.0, decode: float = 0.0) -> Record:
    found = records.made(received=10.0)
    found.queued, found.upstream, found.decode, found.encode = queued, upstream, decode, decode / 2
    found.ended = 10.0 + seconds
    return found


def test_queue_server_and_gateway_make_up_the_whole_time() -> None:
    batch = records.batch(record(1.0, queued=0.25, upstream=0.5, decode=0.0625))
    assert stage_seconds(batch.numbers).tolist() == [[0.25], [0.5], [0.25], [0.0625], [0.03125]]
    assert len(STAGES) == 5


def test_parallel_calls_that_take_longer_together_fill_the_time_of_their_request() -> None:
    batch = records.batch(record(1.0, queued=1.0, upstream=3.0), record(1.0, upstream=0.5), record(0.0))
    assert stage_seconds(batch.numbers)[:READING].tolist() == [[0.25, 0.0, 0.0], [0.75, 0.5, 0.0], [0.0, 0.5, 0.0]]


@pytest.mark.parametrize("groups", [1, 2])
def test_sums_are_those_of_each_group(groups: int) -> None:
    batch = records.batch(record(2.0, upstream=1.5), record(4.0, queued=1.0, decode=0.5), record(8.0))
    found = stage_sums(batch, np.array([0, groups - 1, 0]), groups)
    assert sum(each.queue + each.server + each.gateway for each in found) == 14.0
    assert found[-1] == (StageSums(1, 0, 3, 0.5, 0.25, 1, 1) if groups == 2 else found[0])
    assert len(found) == groups


def test_means_are_those_of_what_was_measured() -> None:
    sums = StageSums(2.0, 4.0, 6.0, 0.5, 0.0, 1, 0)
    assert sums.means(2)[:4] == (1.0, 2.0, 3.0, 0.5)
    assert np.isnan(sums.means(2)[4])
    assert all(np.isnan(StageSums().means(0)))
    assert (sums + sums - sums) == sums
