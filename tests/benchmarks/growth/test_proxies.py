"""The configurations of nginx and Envoy in the rows beside the gateway's use all backends in turns, and a program that
is missing is a row that says how to install it."""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.contest.sides import MissingError, Started
from tests.benchmarks.growth.costs import Bench, Missing, proxied
from tests.benchmarks.growth.proxies import THERE, envoy_text, nginx_text
from tests.benchmarks.servers import Server

BACKENDS = ["127.0.0.1:1", "127.0.0.2:1"]
EXPECTED = {f"/v2/models/m{at}/infer": (BACKENDS[at % 2], THERE) for at in range(3)}


def test_nginx_sends_models_to_the_backends_in_turns() -> None:
    text = nginx_text(Path("folder"), "127.0.0.1:2", 3, BACKENDS)
    upstreams = dict(re.findall(r"upstream (\S+) { server (\S+);", text))
    locations = re.findall(r"location = (\S+) { proxy_pass http://(\w+)(\S+); }", text)
    assert {path: (upstreams[name], there) for path, name, there in locations} == EXPECTED


def test_envoy_sends_models_to_the_backends_in_turns() -> None:
    static = json.loads(envoy_text(2, 3, BACKENDS))["static_resources"]
    addresses = {}
    for each in static["clusters"]:
        [at] = each["load_assignment"]["endpoints"][0]["lb_endpoints"]
        address = at["endpoint"]["address"]["socket_address"]
        addresses[each["name"]] = f"{address['address']}:{address['port_value']}"
    manager = static["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    [host] = manager["route_config"]["virtual_hosts"]
    found = {}
    for path, each in host["matcher"]["matcher_tree"]["exact_match_map"]["map"].items():
        route = each["action"]["typed_config"]["route"]
        found[path] = addresses[route["cluster"]], route["prefix_rewrite"]
    assert found == EXPECTED


def test_a_proxy_that_is_missing_is_told_in_its_rows() -> None:
    def start(started: Started, name: str, routes: int, backends: object) -> Server:
        raise MissingError("apt-get install nothing")

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        rows = list(proxied(Bench(Path(folder), stack), "nothing", start, rounds=1))
    assert len(rows) == 2
    for row in rows:
        assert isinstance(row, Missing)
        assert row.shown().endswith("missing: apt-get install nothing")
