"""Pydantic models whose keys are described by docstrings.

The string below an attribute is the description of its key in the JSON Schema. The configuration and the policies'
settings use these models.

Pydantic's `use_attribute_docstrings` does the same, but reads the source code when Python creates a class. Reading the
source code would take a fifth of the gateway's start time, although few processes print a schema.
"""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Documented(BaseModel):
    """A model with lazy documentation and validation.

    The model reads its docstrings when it creates its JSON Schema. It builds its validator on first use, because a
    model that is used only inside other models never needs its own validator."""

    model_config = ConfigDict(defer_build=True)

    documented_by: ClassVar[type | None] = None
    """The class that contains the docstrings, if it is a different class."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(schema)
        keys = handler.resolve_ref_schema(found)["properties"]
        texts = attribute_docstrings(cls.documented_by or cls)
        for name, field in cls.model_fields.items():
            if field.description is None and name in texts:
                keys[field.alias or name]["description"] = texts[name]
        return found


def attribute_docstrings(cls: type) -> dict[str, str]:
    """Return the strings below the annotated attributes of the class and of its base classes, by attribute name.

    The result is empty for a nested class, or if the module's source code is unavailable."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if each not in _WITHOUT_KEYS:
            found |= _docstrings(sys.modules.get(each.__module__)).get(each.__qualname__, {})
    return found


_WITHOUT_KEYS = (object, BaseModel, Documented)


@cache  # one module can contain many of the configuration's models
def _docstrings(module: ModuleType | None) -> dict[str, dict[str, str]]:
    """Return the strings below attributes, by class name and attribute name."""
    try:
        source = "" if module is None else inspect.getsource(module)
    except OSError:
        source = ""
    return {each.name: _strings(each) for each in ast.parse(source).body if isinstance(each, ast.ClassDef)}


def _strings(definition: ast.ClassDef) -> dict[str, str]:
    found = {}
    for attribute, text in pairwise(definition.body):
        if isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name):
            match text:
                case ast.Expr(ast.Constant(str(words))):
                    found[attribute.target.id] = inspect.cleandoc(words)
    return found
