"""What workers cannot share is refused."""

import pytest

from tests.config.told import problem, problems, read

CONFIG = """
workers: WORKERS
LIMITS
listeners: [{name: http, bind: "BIND", protocols: [PROTOCOL] LISTENER}]
backends:
  lab: {protocol: v2-rest, endpoints: ["localhost:9000"] BACKEND}
  other: {protocol: v2-rest, endpoints: ["127.0.0.1:9001"]}
routes: [{match: {model: "*"}, backend: lab ROUTE}]
"""
NOTHING = {"BIND": "127.0.0.1:8080", "PROTOCOL": "grps-rest", "LIMITS": "", "LISTENER": "", "BACKEND": "", "ROUTE": ""}


def config(workers: str, **parts: str) -> str:
    text = CONFIG.replace("WORKERS", workers)
    for name, part in {**NOTHING, **parts}.items():
        text = text.replace(name, part)
    return text


@pytest.mark.parametrize(
    "part",
    [
        {"BIND": "unix:///run/a.sock", "PROTOCOL": "mip", "LISTENER": ", model: m"},
        {"LISTENER": ", metrics_page: true"},
        {"LISTENER": ", limits: {connections: 10}"},
        {"LISTENER": ", limits: {connections_per_client: 10}"},
        {"LIMITS": "limits: {connections_per_client: 10}"},
        {"LIMITS": "limits: {memory_per_client: 1000}"},
        {"BACKEND": ", discovery: {dns: all}"},
        {"LIMITS": "scaler: {bind: '127.0.0.1:9092'}"},
        {"ROUTE": ", policies: [{concurrency_limit: {calls: 3}}]"},
        {"ROUTE": ", policies: [{mirror: {backend: other}}]"},
    ],
    ids=lambda part: next(iter(part.values())).strip(", "),
)
def test_state_that_each_worker_would_have_for_itself_is_refused(part: dict[str, str]) -> None:
    read(config("1", **part))
    for workers in ("2", "auto"):
        assert "cannot be shared between workers yet" in problem(config(workers, **part))


@pytest.mark.parametrize(
    "policy", ["rate_limit: {requests: 3}", "concurrency_limit: {adaptive: gradient}", "circuit_breaker: {}"]
)
def test_policies_that_are_shared_or_judge_by_their_own_calls_are_not(policy: str) -> None:
    read(config("2", ROUTE=f", policies: [{{{policy}}}]"))


@pytest.mark.parametrize("workers", ["0", "-1", "many", "true"])
def test_the_number_is_one_or_more_or_auto(workers: str) -> None:
    assert problems(config(workers))
