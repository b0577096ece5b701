"""The key `placement` of a backend: units, and what is refused."""

import re

import pytest

from gateway.config.placement import Copies, PlacementConfig
from tests.config.told import problem, problems, read

TEXT = """
listeners: [{{name: a, bind: "127.0.0.1:0", protocols: [v2-grpc]}}]
backends:
  fleet:
    protocol: {protocol}
    endpoints: ["a:1", "b:1"]
    placement: {placement}
routes: [{{match: {{}}, backend: fleet}}]
"""


def config(placement: str, protocol: str = "v2-grpc") -> str:
    return TEXT.format(placement=placement, protocol=protocol)


def placement(text: str) -> PlacementConfig:
    found = read(config(text)).backends["fleet"].placement
    assert found is not None
    return found


def test_nothing_is_required() -> None:
    found = placement("{}")
    assert (found.by, found.interval, found.loading, found.loads) == ("model", 30, "never", False)


def test_units() -> None:
    found = placement(
        "{loading: on_demand, interval: 500ms, max_models: 8, memory: 1.5GiB, sizes: {'big*': 512 MiB, '*': 1000},"
        " copies: 1..3, idle: 10m, timeout: 2h, pinned: [m*], min_stay: 1m, share: 0.5}"
    )
    assert (found.pinned, found.min_stay, found.share) == (("m*",), 60, 0.5)
    assert (found.interval, found.idle, found.timeout) == (0.5, 600, 7200)
    assert (found.max_models, found.memory, found.sizes) == (8, 3 * 2**29, {"big*": 2**29, "*": 1000})
    assert found.copies == Copies(1, 3)
    plain = placement("{loading: on_demand, interval: 5, copies: 2, idle: 0}")
    assert (plain.interval, plain.copies, plain.idle) == (5, Copies(2, 2), 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{interval: 10 minutes}", "7:27: .*expected a number, or one with a unit .ms, s, m, h, d. such as 10m"),
        ("{interval: 0s}", "7:27: must be above 0"),
        ("{loading: on_demand, memory: 20GB, sizes: {'*': 1}}", "such as 64KiB, got '20GB'"),
        ("{loading: on_demand, copies: 3..1}", "7:45: .*the larger number last"),
        ("{loading: on_demand, copies: 0}", "expected at least 1"),
        ("{loading: on_demand, share: 0}", "must be above 0"),
        ("{share: 0.5}", "has an effect only with `loading: on_demand`"),
        ("{loading: on_demand, copies: many}", "a range such as 1..3, got 'many'"),
        ("{max_models: 8}", "7:17: .*has an effect only with `loading: on_demand`"),
        ("{loading: on_demand, memory: 20GiB}", "this key needs `sizes`"),
        ("{loading: on_demand, sizes: {'*': 2GiB}}", "has an effect only with `memory`"),
        ("{loading: on_demand, memory: 1GiB, sizes: {'*': 2GiB}}", "no server can load models"),
        ("{by: version}", "expected model"),
    ],
)
def test_refused(text: str, message: str) -> None:
    assert any(re.search(message, each) for each in problems(config(text)))


def test_protocols_without_names_or_loading() -> None:
    assert "mip requests do not name a model" in problem(config("{}", "mip"))
    assert "umbridge servers cannot load models" in problem(config("{loading: on_demand}", "umbridge"))


@pytest.mark.parametrize("workers", ["2", "auto"])
def test_several_workers_may_share_a_fleet(workers: str) -> None:
    assert read(f"{config('{loading: on_demand}')}workers: {workers}").backends["fleet"].placement is not None


def test_passthrough_routes_and_started_servers() -> None:
    text = config("{}", "grps-rest").replace("[v2-grpc]", "[grps-rest]")
    passing = text.replace("match: {}", 'match: {path: "/x/*"}, passthrough: true')
    assert "needs the model, but passthrough does not decode" in problem(passing)
    started = text.replace('endpoints: ["a:1", "b:1"]', "servers: {engine: process, command: sleep 1}")
    assert "all servers that the gateway starts have the same models" in problem(started)


def test_two_backends_do_not_load_models_on_one_server() -> None:
    fleet = '{protocol: v2-grpc, endpoints: ["a:1"], placement: {loading: on_demand}}'
    text = config("{loading: on_demand}").replace("backends:\n", f"backends:\n  other: {fleet}\n")
    assert "backend 'other' also loads models on 'a:1'" in problem(text)
