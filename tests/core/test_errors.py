import pytest

from gateway.core.errors import (
    DEFAULT_REASONS,
    REASONS,
    Reason,
    Status,
    invalid_input,
    invalid_output,
    not_found,
    refusal,
    unsupported,
    without_traceback,
)


def test_every_failure_has_a_reason() -> None:
    assert set(DEFAULT_REASONS) == set(Status) - {Status.OK}
    assert all(reason.status is status for status, reason in DEFAULT_REASONS.items())


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (Status.RESOURCE_EXHAUSTED, Reason.TOO_LARGE),
        (Status.NOT_FOUND, Reason.MODEL_NOT_FOUND),
        (Status.UNIMPLEMENTED, Reason.UNSUPPORTED),
        (Status.UNAVAILABLE, Reason.UNREACHABLE),
        (Status.INVALID_ARGUMENT, Reason.INVALID_INPUT),
        (Status.DEADLINE_EXCEEDED, Reason.TIMEOUT),
        (Status.INTERNAL, Reason.MODEL_ERROR),
    ],
)
def test_default_reasons(status: Status, reason: Reason) -> None:
    assert DEFAULT_REASONS[status] is reason


def test_reasons_travel_by_name() -> None:
    assert all(REASONS[reason.value] is reason for reason in Reason)


def test_errors_carry_what_their_reason_stands_for() -> None:
    error = refusal(Reason.OVERLOADED, "try later")
    assert (error.status, error.reason) == (Status.RESOURCE_EXHAUSTED, Reason.OVERLOADED)
    assert error.message == str(error) == "try later"
    made = [make("x").reason for make in (invalid_input, invalid_output, not_found, unsupported)]
    assert made == [Reason.INVALID_INPUT, Reason.INVALID_OUTPUT, Reason.MODEL_NOT_FOUND, Reason.UNSUPPORTED]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("the model said no", "the model said no"),
        ("two\nlines", "two\nlines"),
        ("Meet me\n\nAt: noon", "Meet me\n\nAt: noon"),
        ('Traceback (most recent call last):\n  File "/srv/m.py", line 3, in f\nValueError: why', "ValueError: why"),
        ('failed: Traceback (most recent call last):\n  File "/m.py", line 3\nE: why\n', "failed: E: why"),
        ('Traceback:\n  File "/a.py", line 1', ""),
        ('  File "/a.py", line 1, in f\n    raise E\nE: why\n', "E: why"),
        ('failed:\n  File "/m.py", line 3, in f\n    f()\nE: why', "failed: E: why"),
        # Triton's python backend
        (
            "Failed to process the request(s) for model 'm', message: ValueError: why\n\n"
            "At:\n  /models/m/1/model.py(12): execute\n",
            "Failed to process the request(s) for model 'm', message: ValueError: why",
        ),
        ("Traceback (most recent call last):\nE: why\n\nAt:\n  /m.py(12): execute\n", "E: why"),
        (
            'message: Traceback (most recent call last):\n  File "/m.py", line 3\nE: why\n\n'
            "At:\n  /m.py(12): execute\n",
            "message: E: why",
        ),
        ('why File "/srv/m.py", line 3', "why"),
    ],
)
def test_clients_see_no_traceback(text: str, shown: str) -> None:
    assert without_traceback(text) == shown
