"""What a principal may do."""

import pytest

from gateway.auth.permissions import Principals
from gateway.core.operations import Operation
from gateway.core.principal import Grant, Principal

READER = Principal("reader", [Grant(frozenset({"metadata"}))])
ECHO = Principal("echo", [Grant(frozenset({"infer", "metadata"}), ("echo", "echo-*"), ("http",))])
ALL = Principals({}, {"root": ["all"]}).find("root")


@pytest.mark.parametrize(
    ("principal", "operation", "model", "allowed"),
    [
        (READER, Operation.METADATA, "m", True),
        (READER, Operation.INFER, "m", False),
        (ECHO, Operation.INFER, "echo", True),
        (ECHO, Operation.STREAM, "echo-1.0.0", True),
        (ECHO, Operation.GRADIENT, "echo", True),
        (ECHO, Operation.INFER, "Echo", False),
        (ECHO, Operation.INFER, "echo.gradient", False),
        (ECHO, Operation.INFER, "echo-1/b", True),
        (ECHO, Operation.INFER, "echo-1/../secret", False),
        (ECHO, Operation.INFER, "echo-\\..\\secret", False),
        (ALL, Operation.INFER, "echo-1/../secret", True),
        (ECHO, Operation.INFER, "", False),
        (ECHO, Operation.MODELS, "", True),
        (ECHO, Operation.LIVE, "", True),
        (ECHO, Operation.LOAD, "echo", False),
        (ECHO, Operation.OFFLINE, "", False),
        (ALL, Operation.LOG_SETTINGS, "", True),
        (ALL, Operation.OFFLINE, "", True),
        (Principal("nobody"), Operation.MODELS, "", False),
        (Principal("nobody"), Operation.READY, "", True),
    ],
)
def test_operations_by_model(principal: Principal, operation: Operation, model: str, allowed: bool) -> None:
    assert principal.may(operation, model, "http") is allowed
    assert principal.may(operation, model, "http") is allowed


def test_many_models_are_decided_the_same_after_the_first_are_forgotten() -> None:
    for number in range(5000):
        assert ECHO.may(Operation.INFER, f"echo-{number}", "http")
        assert not ECHO.may(Operation.INFER, f"other-{number}", "http")
    assert ECHO.may(Operation.INFER, "echo-1", "http")
    assert len(ECHO._decisions) <= 4096


def test_a_principal_is_shown_by_its_name() -> None:
    assert repr(ECHO) == "Principal('echo')"


def test_every_operation_needs_a_permission_that_someone_can_have() -> None:
    assert all(ALL.may(operation, "m", "http") for operation in Operation)


def test_a_grant_is_for_its_listeners() -> None:
    assert not ECHO.may(Operation.INFER, "echo", "grpc")
    assert not ECHO.may(Operation.MODELS, "", "grpc")


def test_an_entry_with_the_whole_name_counts_before_globs_and_tokens_add_theirs() -> None:
    grant = Grant(frozenset({"control"}))
    known = Principals({"ops": (grant,)}, {"ci-*": ["all"], "ci-1": ["use"], "*": ["ops"]})
    assert not known.find("ci-1").may(Operation.LOAD, "m", "http")
    assert known.find("ci-2").may(Operation.LOAD, "m", "http")
    assert not known.find("bob").may(Operation.INFER, "m", "http")
    assert known.find("ci-1", ["ops", "unknown"]).may(Operation.LOAD, "m", "http")
    assert known.find("ci-1") is known.find("ci-1", ["unknown"])
