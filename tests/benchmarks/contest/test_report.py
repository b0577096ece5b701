"""A report says which targets are met, and how a program that is missing is installed."""

import json

from tests.benchmarks.contest.contests import PAIRS, WALL, Contest, Target
from tests.benchmarks.contest.dialect import Reply
from tests.benchmarks.contest.measure import Figures
from tests.benchmarks.contest.report import Results, block, document, page, targets

SIDES = PAIRS[0].sides
GATEWAY, ENVOY, NGINX, DIRECT = (side.name for side in SIDES)
CONTEST = Contest(PAIRS[0].name, 10, 16, SIDES, (Target(ENVOY, 1.0), Target(NGINX, 2.0), Target(DIRECT, 1.5, WALL)))
FIGURES = {
    GATEWAY: Figures(cpu=150.0, per_second=1000.0, stall=0.004),
    ENVOY: Figures(cpu=50.0, ratio=3.0),
    NGINX: Figures(missing="missing: apt-get install nginx-light"),
    DIRECT: Figures(cpu=10.0, ratio=15.0, waiting_ratio=1.25),
}
EMPTIED = Reply("/path", "{}", 200, '{"outputs":[{"name":"input0"}]}')
RESULTS = Results({"processor": "some"}, [(CONTEST, FIGURES)], [EMPTIED] * 3)


def test_a_target_is_met_or_missed_by_its_own_figure() -> None:
    _, missed, missing, met = targets(RESULTS.found).splitlines()
    assert missed.endswith("3.00  missed by 200 %")
    assert missing.endswith("-  not measured")
    assert met.endswith("1.25  met")


def test_a_missing_program_is_a_row_with_the_line_that_installs_it() -> None:
    assert f"{NGINX:36}  missing: apt-get install nginx-light" in block(CONTEST, FIGURES)
    assert f"| {NGINX} | `missing: apt-get install nginx-light` |" in page(RESULTS)


def test_the_document_has_every_figure_and_verdict() -> None:
    found = json.loads(document(RESULTS))
    (row,) = found["rows"]
    assert row["sides"][ENVOY]["cpu"] == 50.0
    assert [each["verdict"] for each in found["targets"]] == ["missed by 200 %", "not measured", "met"]


def test_a_miss_by_little_is_no_miss_by_nothing() -> None:
    close = FIGURES | {ENVOY: Figures(cpu=149.7, ratio=1.0023)}
    assert targets([(CONTEST, close)]).splitlines()[1].endswith("1.00  missed by 0.2 %")


def test_a_percentile_of_too_few_requests_is_left_out() -> None:
    few = FIGURES | {ENVOY: Figures(cpu=50.0, ratio=3.0, latencies={"p50": 120.0, "p99": 900.0})}
    line = next(line for line in block(CONTEST, few).splitlines() if line.startswith(ENVOY))
    assert line.split()[-5:] == ["120", "900", "-", "0", "-"]


def test_the_page_shows_that_the_transcoder_dropped_the_numbers() -> None:
    assert "with status 200, but without the numbers" in page(RESULTS)
    kept = Reply("/path", "{}", 200, '{"outputs":[{"name":"input0","contents":{}}]}')
    assert "V2 request as follows:" in page(Results({}, RESULTS.found, [kept] * 3))


def test_every_pair_has_a_target_and_every_target_a_side() -> None:
    for pair in PAIRS:
        assert pair.targets, pair.name
        assert {target.against for _, _, target in pair.targets} < {side.name for side in pair.sides}
