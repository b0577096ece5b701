"""Whatever is in a file, loading gives a Config or raises ConfigError."""

import json
from string import punctuation

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config import ConfigError, loads
from tests.config.toys import CATALOG, WHOLE
from tests.limits import examples

KEYS = sorted(
    {"inputs", "data", "shape", "name", "bind", "protocols", "model", "match", "backend", *yaml.safe_load(WHOLE)}
)
PIECES = [*punctuation, *KEYS, "<<", "${", "~", "1", ".inf", "null", "\n", "\t", "&a", "*a", "---", "...", "%YAML", "é"]


def is_config_or_config_error(text: str) -> bool:
    try:
        loads(text, "g.yaml", CATALOG, {})
    except ConfigError as error:
        return all(problem.line > 0 and problem.column > 0 and problem.message for problem in error.problems)
    return True


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join) | st.text(max_size=60))
def test_any_text_is_a_configuration_or_a_config_error(text: str) -> None:
    assert is_config_or_config_error(text)


SCALARS = st.none() | st.booleans() | st.integers(-2, 70000) | st.sampled_from(["", "a:1", "umbridge", "${X}", "*"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_any_value_anywhere_is_a_configuration_or_a_config_error(data: st.DataObject) -> None:
    document = at = yaml.safe_load(WHOLE)
    while isinstance(at, (dict, list)) and at:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if data.draw(st.booleans()) or not isinstance(at[key], (dict, list)):
            at[key] = data.draw(VALUES)
            break
        at = at[key]
    assert is_config_or_config_error(json.dumps(document))
