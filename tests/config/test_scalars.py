import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.document import compose
from gateway.config.scalars import Scalar, resolve

TABLE: tuple[tuple[str, Scalar], ...] = (
    ("", None), ("~", None), ("null", None), ("NULL", None), ("nUll", "nUll"),
    ("true", True), ("False", False), ("TRUE", True), ("tRue", "tRue"),
    ("no", "no"), ("on", "on"), ("yes", "yes"), ("off", "off"), ("y", "y"),
    ("12:30", "12:30"), ("1:20:30", "1:20:30"), ("1_000", "1_000"), ("2024-01-01", "2024-01-01"), ("=", "="),
    ("0", 0), ("-0", 0), ("+12", 12), ("017", 17), ("0o17", 15), ("0x1F", 31), ("0b11", "0b11"),
    ("1e3", 1000.0), (".5", 0.5), ("5.", 5.0), ("-1.5E-2", -0.015), ("1e", "1e"), (".", "."), ("+", "+"), ("-", "-"),
    (".inf", math.inf), ("-.Inf", -math.inf), ("+.INF", math.inf), ("inf", "inf"), ("nan", "nan"),
    ("1.2.3", "1.2.3"), ("12e03x", "12e03x"), ("9" * 5000, "9" * 5000),
)  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TABLE, ids=[text[:12] for text, _ in TABLE])
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, expected: Scalar) -> None:
    found = resolve(text)
    assert (type(found), found) == (type(expected), expected)


def test_nan_is_a_float() -> None:
    found = resolve(".NaN")
    assert isinstance(found, float)
    assert math.isnan(found)


def loaded(text: str) -> object:
    root, faults = compose(f"a: {text}\n", {})
    assert faults == ()
    return root.plain()["a"]


@given(st.integers(-(2**64), 2**64) | st.booleans() | st.none())
def test_what_yaml_writes_is_read_back(given: Scalar) -> None:
    found = loaded(yaml.safe_dump(given).split("\n")[0])
    assert (type(found), found) == (type(given), given)


@given(st.floats(allow_nan=False))
def test_floats_are_read_back(given: float) -> None:
    found = loaded(repr(given).replace("inf", ".inf"))
    assert (type(found), found) == (float, given)


@given(st.text(st.characters(exclude_categories=["C"]), max_size=20).filter(lambda text: "${" not in text))
def test_quoted_text_is_text_whatever_it_looks_like(given: str) -> None:
    assert loaded(yaml.safe_dump(given, default_style='"', width=1000)) == given
    assert loaded("'" + given.replace("'", "''") + "'") == given or not given.isprintable()
