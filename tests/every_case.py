"""One test of many small cases, where a test for each would cost more than what it tests."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeAlias

import pytest

Case: TypeAlias = Mapping[str, object]
"""The arguments of a test that differ from case to case, by the names of parameters."""


class Failures:
    """What failed of the cases that a test goes through."""

    def __init__(self) -> None:
        self.cases = 0
        self.errors: list[BaseException] = []

    @contextmanager
    def of(self, case: str) -> Iterator[None]:
        """Within, `case` is tried. If it fails, the error is kept with its name."""
        self.cases += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"the case {case!r}")
            self.errors.append(error)


@contextmanager
def failures() -> Iterator[Failures]:
    """Goes through all cases, and fails at the end if some did, with the errors of each."""
    found = Failures()
    yield found
    if found.errors:
        raise BaseExceptionGroup(f"{len(found.errors)} of {found.cases} cases failed", found.errors)


def every_case(test: Callable[..., object], parameters: Sequence[str]) -> Callable[..., Any]:
    """`test` with `cases` by name in place of `parameters`. All are tried, also after one that fails."""
    kept = [each for each in inspect.signature(test).parameters.values() if each.name not in parameters]

    def whole(cases: Mapping[str, Case], **given: Any) -> None:
        with failures() as failed:
            for name, case in cases.items():
                with failed.of(name):
                    test(**given, **case)

    async def whole_async(cases: Mapping[str, Case], **given: Any) -> None:
        with failures() as failed:
            for name, case in cases.items():
                with failed.of(name):
                    await test(**given, **case)  # type: ignore[misc]

    made = wraps(test)(whole_async if inspect.iscoroutinefunction(test) else whole)
    cases = inspect.Parameter("cases", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    made.__signature__ = inspect.Signature([*kept, cases])  # type: ignore[attr-defined]
    return made
