"""The report of a run: its figures and its warnings."""

from gateway.tools.bench.load import Plan
from gateway.tools.bench.measured import Measured
from gateway.tools.bench.report import Result, as_json, text

WITH_ERRORS = """\
m at v2-rest://a:1: open loop, constant arrivals, at most 10 in flight

requests  6 in 2.0 s
errors    3
          2 UNAVAILABLE: it is full
          1 INTERNAL: it broke
rate      3.0/s (100.0/s wanted)
bytes     0 sent, 0 received

                     mean       p50       p90       p99     p99.9       max
latency (ms)        10.00     10.00     10.00     10.00     10.00     10.00
from sending        5.000     5.000     5.000     5.000     5.000     5.000
of errors           40.00     40.00     40.00     40.00     40.00     40.00
generator's lag     5.000     5.000     5.000     5.000     5.000     5.000

     from 10.00 ms ######################################## 3
warning: the generator is the bottleneck: it was 5.000 ms late on average, which is in the latencies (mean 10.00 ms); \
lower --rate, or raise --processes if there are free cores
warning: the generator is the bottleneck: it used 95% of 1 core; raise --processes if there are free cores
warning: 1 request had to wait because 10 requests were in flight; the wait is part of the latencies, but not of the \
latencies from sending
warning: 3 requests waited until the end, and are not in the figures: the server does not keep up with 100/s, so the \
latencies grow with the length of the run
warning: interrupted with 2 requests in flight, which are not in the figures"""

NOTHING = """\
m at v2-rest://a:1: closed loop, 10 in flight

requests  0 in 2.0 s
errors    0
rate      0.0/s
bytes     0 sent, 0 received

                     mean       p50       p90       p99     p99.9       max
latency (ms)        0.000     0.000     0.000     0.000     0.000     0.000"""


def run(rate: float, successes: int) -> Result:
    measured = Measured()
    for _ in range(successes):
        measured.succeed(0.01, 0.005, 0.005)
    measured.settle()
    measured.seconds = 2.0
    return Result("v2-rest://a:1", "m", Plan(rate, "constant", 10, 2.0, None, 0.0), measured)


def test_the_text_has_figures_errors_and_every_reason_to_doubt_them() -> None:
    result = run(100.0, 3)
    measured = result.measured
    for status, example in (("INTERNAL", "it broke"), ("UNAVAILABLE", "it is full"), ("UNAVAILABLE", "it is too full")):
        measured.fail(status, example, 0.04, 0.005)
    measured.settle()
    measured.waited, measured.unsent, measured.cut, measured.cpu = 1, 3, 2, 1.9
    assert text([result], "#") == WITH_ERRORS


def test_without_latencies_there_is_no_histogram_and_no_ratio() -> None:
    results = run(0.0, 0), run(0.0, 1)
    printed = text(results, "#")
    assert printed.startswith(f"{NOTHING}\n\nm at ")
    assert "\nrate (1/s)                0         0.5         -\n" in printed
    ratios = as_json(results)["ratios"]
    assert ratios == dict.fromkeys(("rate", "errors", "mean", "p50", "p90", "p99", "p99.9", "max"))
