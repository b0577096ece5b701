"""The samples of a Prometheus page, by the text format's own rules."""

import re
from collections.abc import Generator
from contextlib import suppress
from typing import TypeVar

import pytest

from gateway.core.errors import DecodeError
from gateway.routing.load.prometheus import LONGEST_LINE, MOST_SAMPLES, PageSample, is_counter, read_gauge, samples

Result = TypeVar("Result")

# Of Triton with one model, shortened; then lines that other exporters write.
PAGE = rb"""# HELP nv_inference_pending_request_count Instantaneous number of pending requests
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="identity_FP32",version="1"} 3
nv_inference_pending_request_count{model="other",version="1"} 2 1700000000000
nv_inference_pending_request_count_total{model="other"} 77
nv_cpu_utilization 0.25
# TYPE requests counter
requests 12
quoted{path="C:\\dir \"a\" }\n",empty=""} +1.5e1
spaced{ a = "1" , b="2", }   7 # {trace_id="x"} 1
vllm:num_requests_waiting{model_name="m"} 4.0
large 1e3
"""


def read(page: bytes, *names: str) -> list[PageSample]:
    return list(samples(page, names))


def test_only_the_wanted_metric_is_read_with_its_labels() -> None:
    assert read(PAGE, "nv_inference_pending_request_count") == [
        PageSample("nv_inference_pending_request_count", {"model": "identity_FP32", "version": "1"}, 3.0),
        PageSample("nv_inference_pending_request_count", {"model": "other", "version": "1"}, 2.0),
    ]
    assert read(PAGE, "nv_cpu_utilization", "large") == [
        PageSample("nv_cpu_utilization", {}, 0.25), PageSample("large", {}, 1000.0),
    ]  # fmt: skip
    assert read(PAGE, "missing") == []


def test_label_values_are_unescaped_and_may_have_braces() -> None:
    assert read(PAGE, "quoted") == [PageSample("quoted", {"path": 'C:\\dir "a" }\n', "empty": ""}, 15.0)]
    assert read(PAGE, "spaced") == [PageSample("spaced", {"a": "1", "b": "2"}, 7.0)]
    assert read(PAGE, "vllm:num_requests_waiting")[0].value == 4.0


def test_a_page_may_begin_with_a_sample_and_end_without_a_newline() -> None:
    assert [each.value for each in read(b"x 1\nx 2\r\nx 3", "x")] == [1.0, 2.0, 3.0]


def test_counters_are_told_from_gauges() -> None:
    assert is_counter(PAGE, "requests")
    assert not is_counter(PAGE, "nv_inference_pending_request_count")


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (b"x abc\n", "a line of x is malformed: b' abc'"),
        (b"x\t\n", "a line of x is malformed"),
        (b"x NaN\n", "x is nan"),
        (b"x +Inf\n", "x is inf"),
        (b'x{a="1} 2\n', "a line of x is malformed"),
        (b'x{a=1} 2\n', "a line of x has malformed labels: 'a=1'"),
        (b'x{a-b="1"} 2\n', "a line of x has malformed labels"),
        (b'x{a="1",a="2"} 2\n', "a line of x has the label 'a' twice"),
        (b'x{a="\xff"} 2\n', "the labels of a line of x are not UTF-8"),
        (b"x " + b"1" * LONGEST_LINE, f"a line of x has more than {LONGEST_LINE} bytes"),
        (b"x 1\n" * (MOST_SAMPLES + 1), f"the page has more than {MOST_SAMPLES} samples of the wanted metrics"),
    ],
)  # fmt: skip
def test_what_is_no_sample_is_refused(page: bytes, text: str) -> None:
    with pytest.raises(DecodeError, match=re.escape(text)):
        read(page, "x")


@pytest.mark.parametrize(
    "page",
    [
        b"x" * 2**20,
        b"\nx" * 2**19,
        b'x{a="' + b"\\" * 2**19,
        b"\n" * 2**20,
        (b'other{model="m",version="1"} 1\n' * 2**15)[: 2**20],
        b'x{' + b'a="b",' * 2**17,
    ],
)  # fmt: skip
def test_a_hostile_megabyte_is_read_or_refused(page: bytes) -> None:
    """In time that grows with its size: one that grew with the square would be minutes."""
    with suppress(DecodeError):
        assert read(page, "x", "y", "z") == []


def result(steps: Generator[None, None, Result]) -> Result:
    """What a page is read to, step by step."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: Result = end.value
        return found


def load(page: bytes, metric: str, **labels: str) -> float:
    return result(read_gauge(page, metric, labels))


def test_the_load_is_the_sum_of_the_samples_with_the_wanted_labels() -> None:
    assert load(PAGE, "nv_inference_pending_request_count") == 5.0
    assert load(PAGE, "nv_inference_pending_request_count", model="other") == 2.0
    for metric, labels, text in (
        ("missing", {}, "the page has no metric missing; check `load.metric`"),
        ("spaced", {"a": "3"}, 'the page has no metric spaced{a="3"}; check `load.metric` and `load.labels`'),
        ("requests", {}, "requests is a counter, which only grows; a gauge is wanted"),
    ):
        with pytest.raises(DecodeError, match=f"^{re.escape(text)}$"):
            load(PAGE, metric, **labels)
    with pytest.raises(DecodeError, match="x is -1, and a load is at least 0"):
        load(b"x -1\n", "x")
