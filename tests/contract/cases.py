"""The cases of a contract test: all combinations of its axes, except the combinations that its rules leave out.

A request that a protocol cannot express is not a case, so contract tests are never skipped. `make matrix` writes the
left-out cases and the reasons to `left_out.txt`. A test compares this file, so no case can disappear unnoticed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TypeVar

import pytest

from gateway.core.datatypes import DATATYPES
from gateway.core.frozen import frozen
from tests.contract.flavors import DIALECTS
from tests.every_case import Case, every_case

FILE = Path(__file__).with_name("left_out.txt")

Axes = Mapping[str, Mapping[str, object]]
"""The values of each test parameter, by their names in test ids."""
Rules = Mapping[str, Callable[..., bool]]
"""A reason to leave out cases, with a function that gets the values of all axes in order, and returns whether to leave
out this case."""
Test = TypeVar("Test", bound=Callable[..., object])


@frozen
class Cases:
    """The cases of a test, and the left-out cases by reason. A case consists of the names of its values."""

    axes: Axes
    kept: list[tuple[str, ...]]
    left_out: dict[str, list[tuple[str, ...]]]


CASES: dict[str, Cases] = {}
"""The cases of each test (`module.function`). Importing a test module adds its tests."""


def each(
    leave_out: Rules | None = None, label: str = "", together: Sequence[str] = (), **axes: Mapping[str, object]
) -> Callable[[Test], Test]:
    """Return a decorator that runs a test for all combinations of the axes, except those that a rule leaves out.

    `label` is the format of test ids, such as `{front}-to-{back}`; by default, dashes join the names. A single test
    iterates over all values of the axes in `together`, and reports each value that fails.
    """
    rules = leave_out or {}
    found = Cases(axes, [], {reason: [] for reason in rules})
    for names in product(*axes.values()):
        values = [axis[name] for axis, name in zip(axes.values(), names, strict=True)]
        reason = next((reason for reason, holds in rules.items() if holds(*values)), None)
        (found.kept if reason is None else found.left_out[reason]).append(names)
    apart = [axis for axis in axes if axis not in together]
    label = label or "-".join(f"{{{axis}}}" for axis in apart)

    def decorate(test: Test) -> Test:
        CASES[f"{test.__module__.rpartition('.')[2]}.{test.__name__}"] = found
        tests: dict[tuple[str, ...], dict[str, Case]] = {}
        for names in found.kept:
            named = dict(zip(axes, names, strict=True))
            inner = "-".join(named[axis] for axis in together)
            tests.setdefault(tuple(named[axis] for axis in apart), {})[inner] = {
                axis: axes[axis][named[axis]] for axis in together
            }
        parameters = [
            pytest.param(
                *(axes[axis][name] for axis, name in zip(apart, names, strict=True)),
                *([cases] if together else []),
                id=label.format(**dict(zip(apart, names, strict=True))),
            )
            for names, cases in tests.items()
        ]
        whole = every_case(test, together) if together else test
        parametrized: Test = pytest.mark.parametrize((*apart, *(["cases"] if together else [])), parameters)(whole)
        return parametrized

    return decorate


each_dialect = each(dialect=DIALECTS)

each_datatype = each(
    {"the wire does not have the datatype": lambda dialect, datatype: datatype not in dialect.traits.wire.datatypes},
    together=("datatype",),
    dialect=DIALECTS,
    datatype=DATATYPES,
)


def each_pair(leave_out: Rules | None = None, **axes: Mapping[str, object]) -> Callable[[Test], Test]:
    """Return a decorator that runs a test for each client protocol `front` and server protocol `back`. The test
    iterates over the other axes."""
    return each(leave_out, "{front}-to-{back}", tuple(axes), front=DIALECTS, back=DIALECTS, **axes)


def collected() -> Mapping[str, Cases]:
    """Return the cases of every test in this folder."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        import_module(f"tests.contract.{file.stem}")
    return CASES


def left_out() -> str:
    """Return the text of the file: for each test and reason, the number of left-out cases, and for each axis the values
    in these cases, unless all values occur."""
    return "".join(f"{line}\n" for test, cases in sorted(collected().items()) for line in _lines(test, cases))


def _lines(test: str, cases: Cases) -> Iterator[str]:
    found = {reason: those for reason, those in cases.left_out.items() if those}
    if not found:
        return
    absent = sum(map(len, found.values()))
    yield f"{test}: {absent} of {absent + len(cases.kept)}"
    for reason, those in found.items():
        yield f"  {len(those)}: {reason}"
        for at, (axis, values) in enumerate(cases.axes.items()):
            occurring = {names[at] for names in those}
            if occurring != set(values):
                yield f"    {axis}: {', '.join(name for name in values if name in occurring)}"
