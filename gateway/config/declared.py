"""Keys that other modules declare: `Declared` derives the keys of a section from a dataclass of the module that uses
the settings. `limits`, `routes` and `graphs` use it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    Field,
    create_model,
)

from gateway.config.fields import Keys, Written


class Declared(Written):
    """Annotation for a value of the class `declaration`, which declares settings in the module that uses them. In YAML,
    the value is a map of the class's fields. If `only` is set, the map contains only these fields, and the
    other fields must have defaults.

    Each field of the class becomes a key. The key has the field's name and default, the field's docstring as its
    description, and a YAML type derived from the field's Python type. `yaml_types` maps Python types to YAML types:
    `bool` is a flag, and `Tensor` is a map of name, datatype, shape and data. A class with fields becomes a nested map.
    A tuple, a mapping or a union uses the YAML types of its items. `checks` contains functions that refuse values of a
    type. Types marked with Annotated define their own YAML types."""

    def __init__(
        self,
        declaration: type,
        yaml_types: Mapping[Any, Any],
        checks: Mapping[Any, Callable[[Any], Any]],
        *,
        only: Sequence[str] = (),
    ) -> None:
        names = only or [each.name for each in fields(declaration)]
        super().__init__(
            _YamlTypes(yaml_types, checks).keys(declaration, names),
            lambda keys: declaration(**{name: getattr(keys, name) for name in names}),
        )


class _YamlTypes:
    def __init__(self, yaml_types: Mapping[Any, Any], checks: Mapping[Any, Callable[[Any], Any]]) -> None:
        self._yaml_types = yaml_types
        self._checks = checks

    def keys(self, declaration: type, names: Sequence[str]) -> type[Keys]:
        """Return a Keys class for the fields `names` of `declaration`."""
        types = get_type_hints(declaration, include_extras=True)
        keys: dict[str, Any] = {}
        for field in fields(declaration):
            if field.name not in names:
                continue
            about: dict[str, Any] = {}
            if field.default is not MISSING:
                about["default"] = field.default
            elif field.default_factory is not MISSING:
                about["default_factory"] = field.default_factory
            keys[field.name] = (self._checked(types[field.name]), Field(**about))
        name = declaration.__name__ if len(keys) == len(fields(declaration)) else f"Some{declaration.__name__}"
        made = create_model(name, __base__=Keys, __doc__=declaration.__doc__, **keys)
        made.documented_by = declaration
        return made

    def _checked(self, declared: Any) -> Any:
        yaml_type, check = self._yaml_type(declared), self._checks.get(declared)
        return yaml_type if check is None else Annotated[yaml_type, AfterValidator(check)]

    def _yaml_type(self, declared: Any) -> Any:
        if declared in self._yaml_types:
            return self._yaml_types[declared]
        origin, arguments = get_origin(declared), get_args(declared)
        if origin is Literal or declared is NoneType:
            return declared
        if isinstance(declared, type) and is_dataclass(declared):
            return Annotated[declared, Declared(declared, self._yaml_types, self._checks)]
        inner = tuple(self._checked(each) for each in arguments if each is not ...)
        if origin in (Union, UnionType):
            return Union[inner]  # noqa: UP007 - `|` takes no tuple
        if origin in (tuple, Mapping) and inner:
            return origin[(*inner, ...) if origin is tuple else inner]
        raise TypeError(f"{declared} has no type in YAML; add one to `yaml_types`")
