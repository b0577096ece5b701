"""Counting Records: what a page says of them, without a gateway."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.metrics import MetricsPage
from gateway.core.messages import Headers, Message
from gateway.core.record import Record
from gateway.observing.request_metrics import PART, ModelLabels, RequestMetrics
from tests import records
from tests.observing.scraped import Page, openmetrics

PLAIN = Message()
OPENMETRICS = Message(headers=Headers([(b"accept", b"application/openmetrics-text; version=1.0.0")]))


def record(model: str = "m", seconds: float = 0.25, **fields: Any) -> Record:
    made = records.made((), "id-1", "http", "v2-rest", "127.0.0.1:4000", 0.0, 10)
    made.model = model
    for name, value in fields.items():
        setattr(made, name, value)
    made.ended = seconds
    return made


def counting(*ended: Record, models: ModelLabels | None = None) -> RequestMetrics:
    metrics = RequestMetrics(models or ModelLabels(1000), [0.1, 0.25, 1])
    metrics.count(records.batch(*ended))
    return metrics


def text(metrics: RequestMetrics, asked: Message = PLAIN) -> str:
    return bytes(MetricsPage(metrics).reply(asked).body).decode()


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.1, 0), (0.11, 1), (0.25, 1), (1.0, 2), (1.1, 3)])
def test_a_bound_belongs_to_its_bucket(seconds: float, bucket: int) -> None:
    page = Page(text(counting(record(seconds=seconds))))
    found = [page.value("gateway_request_seconds_bucket", le=bound) for bound in ("0.1", "0.25", "1.0", "+Inf")]
    assert found == [0] * bucket + [1] * (4 - bucket)
    assert page.value("gateway_request_seconds_sum") == pytest.approx(seconds)


def test_only_requests_that_were_sent_to_a_backend_waited_and_took_time_there() -> None:
    times: dict[str, Any] = {"tries": 2, "retries": 1, "queued": 0.5, "upstream": 2.0}
    graph, step = record(**times), record(**times, listener="", backend="lab")  # the times of a graph are its steps'
    page = Page(text(counting(record(), graph, step)))
    assert page.value("gateway_retries_total") == 1
    for stage, seconds in (("queue", 0.5), ("upstream", 2.0)):
        assert page.value(f"gateway_{stage}_seconds_count") == 1
        assert page.value(f"gateway_{stage}_seconds_sum") == seconds


def test_counts_of_a_process_with_other_buckets_are_left_out() -> None:
    metrics = counting(record())
    metrics.add(counting(record()).take())
    other = RequestMetrics(ModelLabels(1000), [0.5])
    other.count(records.batch(record()))
    metrics.add(other.take())
    assert Page(text(metrics)).value("gateway_request_seconds_count") == 2


def test_times_of_codecs_are_counted_of_requests_that_were_timed() -> None:
    page = Page(text(counting(record(decode=0.5), record(), record(decode=0.125, encode=2.0))))
    for stage, count, seconds in (("decode", 2, 0.625), ("encode", 1, 2.0), ("request", 3, 0.75)):
        assert page.value(f"gateway_{stage}_seconds_count") == count
        assert page.value(f"gateway_{stage}_seconds_sum") == seconds


ENDED = st.builds(
    record,
    st.sampled_from(["m", "n"]),
    st.sampled_from([0.05, 0.2, 5.0]),
    tries=st.integers(0, 2),
    status=st.sampled_from(["OK", "INTERNAL"]),
    reason=st.sampled_from(["", "timeout"]),
    endpoint=st.sampled_from(["a:1", "b:1"]),  # no label: requests of several kinds are counted together
    queued=st.sampled_from([0.0, 0.5]),
    upstream=st.sampled_from([0.0, 0.25]),
    decode=st.sampled_from([0.0, 0.125]),
    bytes_out=st.integers(0, 5),
)


@given(st.lists(ENDED, min_size=1, max_size=12))
def test_many_at_once_are_counted_as_one_by_one(ended: list[Record]) -> None:
    models = ModelLabels(2, ["m", "n"])
    one_by_one = counting(ended[0], models=models)
    for each in ended[1:]:
        one_by_one.count(records.batch(each))
    at_once, expected = (
        [line for line in text(each).splitlines() if line.startswith("gateway_")]
        for each in (counting(*ended, models=models), one_by_one)
    )
    assert at_once == expected


def test_a_large_metric_is_one_on_the_page_though_it_is_rendered_in_parts() -> None:
    count = 2 * PART + 1
    metrics = counting(*(record(f"m{at}") for at in range(count)))
    for shown in (text(metrics), text(metrics, OPENMETRICS)):
        assert shown.count("# TYPE gateway_request_seconds histogram") == 1
        assert shown.count("\ngateway_request_seconds_count{") == count
    found = {each.name: each for each in openmetrics(text(metrics, OPENMETRICS))}
    assert len(found["gateway_requests"].samples) == count


def test_a_model_gets_a_label_with_its_first_answer() -> None:
    failed = record("new", status="DEADLINE_EXCEEDED", reason="timeout")
    metrics = counting(failed, record("new"), record("named"), models=ModelLabels(1, ["named"]))
    page = Page(text(metrics))
    assert page.by("gateway_requests_total", "model") == {"other": 1, "new": 1, "named": 1}
    metrics.count(records.batch(failed))
    metrics.count(records.batch(record("third")))
    page = Page(text(metrics))
    assert page.by("gateway_requests_total", "model") == {"other": 2, "new": 2, "named": 1}
    assert page.by("gateway_errors_total", "model") == {"other": 1, "new": 1}


def test_errors_say_whose_they_are() -> None:
    wrong = record("m", status="INVALID_ARGUMENT", reason="invalid-input")
    gone = record("m", status="UNAVAILABLE", reason="unreachable")
    page = Page(text(counting(wrong, gone, gone)))
    assert page.by("gateway_errors_total", "fault") == {"caller": 1, "server": 2}


def test_an_id_that_openmetrics_cannot_hold_is_no_exemplar() -> None:
    metrics = counting(record(id="x" * 128))
    assert " # {" not in text(metrics, OPENMETRICS)
    metrics.count(records.batch(record(id="x" * 100)))
    page = openmetrics(text(metrics, OPENMETRICS))
    (exemplar,) = [sample.exemplar for family in page for sample in family.samples if sample.exemplar]
    assert exemplar.labels == {"request_id": "x" * 100}


def test_names_with_any_characters_are_written_so_that_they_can_be_read() -> None:
    odd = 'a"b\\c\nd{e="f"}'
    assert Page(text(counting(record(odd)))).value("gateway_requests_total", model=odd) == 1
