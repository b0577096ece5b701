"""The load of a Triton server, from literal pages."""

import pytest

from gateway.routing.load.prometheus import FADING_SECONDS, TritonLoad, TritonMeter, TritonPage, read_triton
from tests.routing.load.test_prometheus import result

PAGE = b"""# TYPE nv_inference_request_success counter
nv_inference_request_success{model="a",version="1"} 90
nv_inference_request_success{model="b",version="2"} 10
# TYPE nv_inference_request_failure counter
nv_inference_request_failure{model="a",reason="OTHER",version="1"} 5
nv_inference_request_duration_us{model="a",version="1"} 2000000
nv_inference_request_duration_us{model="b",version="2"} 3000000
nv_inference_queue_duration_us{model="a",version="1"} 500000
nv_inference_queue_duration_us{model="b",version="2"} 500000
nv_inference_pending_request_count{model="a",version="1"} 4
nv_inference_pending_request_count{model="b",version="2"} 1
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5
nv_gpu_utilization{gpu_uuid="GPU-2"} 1
"""


def test_a_page_is_summed_over_models_and_versions() -> None:
    found = result(read_triton(PAGE))
    assert (found.pending, found.answered, found.gpu) == (5.0, 100.0, 0.75)
    assert found.work == pytest.approx(4.0)
    assert result(read_triton(b"up 1\n")) == TritonPage(answered=None)


def meter(*pages: TritonPage, in_flight: int = 0) -> TritonLoad:
    """The load by the last of the pages, which come every second."""
    each = TritonMeter()
    for at, one in enumerate(pages):
        found = each.load(one, float(at), in_flight)
    return found


def test_the_first_page_tells_the_time_of_a_call() -> None:
    load = meter(result(read_triton(PAGE)))
    assert load.work / load.answered == pytest.approx(0.04)
    assert load.calls == 5 + 0.75  # those that wait, and the GPUs, which something keeps busy


def test_running_calls_are_our_own_that_do_not_wait() -> None:
    page = TritonPage(pending=4, answered=10, work=1)
    load = meter(*[page] * 40, in_flight=6)
    assert load.calls == 6
    assert load.at_once == pytest.approx(2, rel=0.01)
    assert meter(TritonPage(pending=9, answered=10, work=1), in_flight=6).calls == 9  # others have calls there, too


def test_the_last_calls_count_more_than_those_of_yesterday() -> None:
    day = TritonPage(answered=1e6, work=1e4)  # 10 ms each
    then = [TritonPage(answered=1e6 + 1000 * at, work=1e4 + 100 * at) for at in range(1, 5)]  # now 100 ms
    load = meter(day, *then)
    assert load.work / load.answered > 0.09


def test_calls_at_once_are_a_mean_over_a_long_time() -> None:
    """A call of ten seconds counts as a whole in the second in which it ends."""
    pages = [TritonPage(answered=at // 10, work=10.0 * (at // 10)) for at in range(1, 62)]
    load = meter(*pages)
    assert load.calls == pytest.approx(1.0, rel=0.1)


def test_a_server_that_was_started_again_keeps_its_speed() -> None:
    each = TritonMeter()
    each.load(TritonPage(answered=100, work=10), 0.0, 0)
    again = each.load(TritonPage(answered=1, work=0.1), 1.0, 0)
    assert again.work / again.answered == pytest.approx(0.1)


def test_what_is_known_of_a_server_without_calls_fades() -> None:
    each = TritonMeter()
    before = each.load(TritonPage(answered=100, work=10), 0.0, 0)
    after = each.load(TritonPage(answered=100, work=10), FADING_SECONDS, 0)
    assert after.answered == pytest.approx(before.answered / 2.71828, rel=0.01)
