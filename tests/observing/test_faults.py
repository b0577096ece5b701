"""Whose fault errors are."""

import pytest

from gateway.observing.faults import fault


@pytest.mark.parametrize(
    ("reason", "status", "found"),
    [
        ("invalid-input", "INVALID_ARGUMENT", "caller"), ("model-not-found", "NOT_FOUND", "caller"),
        ("rate-limited", "RESOURCE_EXHAUSTED", "caller"), ("request-timeout", "DEADLINE_EXCEEDED", "caller"),
        ("", "CANCELLED", "caller"), ("", "INVALID_ARGUMENT", "caller"),
        ("overloaded", "RESOURCE_EXHAUSTED", "server"), ("timeout", "DEADLINE_EXCEEDED", "server"),
        ("unreachable", "UNAVAILABLE", "server"), ("invalid-output", "INTERNAL", "server"), ("", "INTERNAL", "server"),
    ],
)  # fmt: skip
def test_callers_and_servers_are_told_apart(reason: str, status: str, found: str) -> None:
    assert fault(reason, status) == found
