"""Models whose docstrings are the descriptions of their keys."""

import sys
from types import ModuleType
from typing import Annotated, Any

import pytest
from pydantic import Field

from gateway.core.documented import Documented


class Part(Documented):
    """A part."""

    size: int = 0
    """How large
    it is."""


class Whole(Part):
    """All."""

    part: Part | None = None
    """The part."""
    other: Part = Field(Part(), alias="another")
    """Another one."""
    said: Annotated[int, Field(description="told otherwise")] = 0
    """Not this."""
    silent: int = 0


def descriptions(schema: dict[str, dict[str, dict[str, str]]]) -> dict[str, str | None]:
    return {name: key.get("description") for name, key in schema["properties"].items()}


def test_docstrings_describe_the_keys_also_those_of_parts_and_of_what_is_extended() -> None:
    schema = Whole.model_json_schema()
    assert descriptions(schema) == {
        "size": "How large\nit is.",
        "part": "The part.",
        "another": "Another one.",
        "said": "told otherwise",
        "silent": None,
    }
    assert descriptions(schema["$defs"]["Part"]) == {"size": "How large\nit is."}


def test_a_model_whose_source_is_not_installed_has_no_descriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("without_source")
    module.__file__ = "/nowhere/without_source.pyc"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    made: dict[str, Any] = {"__module__": module.__name__}
    source = 'class Made(Documented):\n    size: int = 0\n    """How large it is."""'
    exec(source, module.__dict__ | {"Documented": Documented}, made)
    assert descriptions(made["Made"].model_json_schema()) == {"size": None}


def test_a_model_can_have_the_docstrings_of_another_class() -> None:
    class Made(Documented):
        size: int = 0

    Made.documented_by = Whole
    assert descriptions(Made.model_json_schema()) == {"size": "How large\nit is."}
