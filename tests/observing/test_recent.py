"""The last requests that are kept for the console."""

import pickle

import pytest

from gateway.core.record import Record
from gateway.observing.batches import MOST_KINDS, Batch, kind_with
from gateway.observing.recent import MOST_RECENT, RecentRequests, has_failed
from tests import records
from tests.observing.ended import ended as finished


def record(id: str, ended: float = 11.0, *, failed: bool = False, operation: str = "infer", code: int = 200) -> Record:
    found = records.made([], id, "http", "v2-rest", "10.0.0.1:5", 10.0, 5)
    found.operation, found.model, found.code = operation, "double", code
    if operation == "infer":
        records.route(found, "route-0", "lab", "h:1", "v2-grpc")
    return finished(found, ended - 10.0, failed=failed)


def recent_of(*batches: Batch) -> RecentRequests:
    found = RecentRequests()
    for each in batches:
        found.keep(each)
    return found


def many(count: int, first: int = 0) -> Batch:
    return records.batch(*[record(str(number), 11.0 + number) for number in range(first, first + count)])


def test_a_request_is_kept_as_the_access_log_tells_it() -> None:
    ended = record("a", failed=True, code=503)
    ended.model, ended.bytes_out, ended.queued, ended.losses = "m" * 300, 70, 0.25, ("cast rounded",)
    [found] = recent_of(records.batch(ended))
    kind = found.kind
    assert (found.id, found.client, kind.listener, kind.in_protocol) == ("a", "10.0.0.1:5", "http", "v2-rest")
    assert (kind.route, kind.backend, kind.out_protocol, kind.endpoint) == ("route-0", "lab", "v2-grpc", "h:1")
    assert (kind.status, kind.reason, kind.code) == ("UNAVAILABLE", "unreachable", 503)
    assert (found.ended, found.seconds, found.queued, found.upstream) == (11.0, 1.0, 0.25, 0.0)
    assert (found.bytes_in, found.bytes_out, found.retries) == (5, 70, 0)
    assert (found.model, found.losses) == ("m" * 256, ("cast rounded",))


def test_kinds_of_many_models_are_the_same_after_the_first_are_forgotten() -> None:
    given = [record(str(number)) for number in range(MOST_KINDS + 10)]
    for number, each in enumerate(given):
        each.model = str(number)
    assert [kind.model for kind in records.batch(*given).kinds] == [each.model for each in given]
    assert len(kind_with) <= MOST_KINDS


def test_the_newest_come_first_and_old_ones_are_forgotten() -> None:
    ids = [each.id for each in recent_of(*(many(100, first) for first in range(0, 5000, 100)))]
    assert ids == [str(number) for number in range(4999, 4999 - MOST_RECENT, -1)]


def test_requests_that_succeed_do_not_push_out_those_that_failed() -> None:
    recent = recent_of(records.batch(record("lost", failed=True), record("odd", code=404)), *[many(500)] * 10)
    assert {each.id for each in recent if has_failed(each.kind)} == {"lost", "odd"}


def test_one_that_failed_is_told_once() -> None:
    recent = recent_of(records.batch(record("a"), record("b", failed=True)))
    assert sorted(each.id for each in recent) == ["a", "b"]


@pytest.mark.parametrize(("code", "kept"), [(200, False), (503, True)])
def test_probes_are_kept_if_they_fail(code: int, kept: bool) -> None:
    recent = recent_of(records.batch(record("probe", operation="ready", code=code)))
    assert [each.id for each in recent] == ["probe"] * kept


def test_requests_of_other_processes_stand_among_them() -> None:
    parent = recent_of(records.batch(record("1", 11.0), record("3", 13.0)))
    worker = recent_of(records.batch(record("2", 12.0), record("4", 14.0, failed=True)))
    parent.add(pickle.loads(pickle.dumps(worker.take())))
    assert [each.id for each in parent] == ["4", "3", "2", "1"]
    assert list(worker) == []


def test_calls_of_graph_steps_in_other_processes_stand_among_them() -> None:
    parent, worker = recent_of(records.batch(record("1"))), RecentRequests()
    worker.keep_steps(records.batch(record("step")))
    parent.add(pickle.loads(pickle.dumps(worker.take())))
    assert [each.id for each in parent] == ["1"]
    counts = [sum(parent.numbers(lambda kind: True, with_steps=each)[0].values()) for each in (False, True)]
    assert counts == [1, 2]
