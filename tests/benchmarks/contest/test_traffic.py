"""The requests of the table `mixed traffic` are as varied as it says."""

import json
import re

from tests.benchmarks.contest.traffic import MODELS, POOL, V2_REST, V2_REST_ONE, sample

REQUESTS = [V2_REST.request("127.0.0.1:1", 0, seed) for seed in range(POOL)]
BODIES = [request.partition(b"\r\n\r\n")[2] for request in REQUESTS]


def test_no_request_is_the_same_as_another() -> None:
    assert len(set(BODIES)) == len({sample(seed).id for seed in range(POOL)}) == POOL
    assert len({re.search(rb"traceparent: (\S+)", request) for request in REQUESTS}) == POOL


def test_models_shapes_and_clients_vary() -> None:
    assert len({sample(seed).model for seed in range(POOL)}) == MODELS
    assert {len(sample(seed).inputs) for seed in range(POOL)} == {1, 2, 3}
    assert {each.shape[0] for seed in range(POOL) for each in sample(seed).inputs} >= {1, 2, 4, 8, 16, 32}
    assert len({re.search(rb"User-Agent: (\S+)", request)[1] for request in REQUESTS}) == 8  # type: ignore[index]


def test_bodies_are_what_python_writes() -> None:
    assert all(json.dumps(json.loads(body)).encode() == body for body in BODIES)
    assert 3_000 < sum(map(len, BODIES)) / POOL < 4_500


def test_one_body_is_the_same_again_and_again() -> None:
    one = V2_REST_ONE.request("127.0.0.1:1", 0, 0)
    assert one == V2_REST_ONE.request("127.0.0.1:1", 0, 1)
    assert V2_REST_ONE.pool == 1


def test_a_reply_with_other_numbers_is_told() -> None:
    given = json.loads(BODIES[0])["inputs"]
    reply = {"model_name": sample(0).model, "outputs": given}
    assert V2_REST.difference(0, json.dumps(reply).encode()) == ""
    given[0]["data"][0] += 1
    assert V2_REST.difference(0, json.dumps(reply).encode()).startswith("sent ")
