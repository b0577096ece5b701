"""Loads the built-in forms, which are definitions for common model servers in YAML files of this package."""

from functools import cache
from importlib.resources import files
from typing import Any

_FORMS = files(__package__) / "forms"
_SUFFIX = ".yaml"


@cache
def names() -> tuple[str, ...]:
    """Return the names of all built-in forms."""
    found = _FORMS.iterdir() if _FORMS.is_dir() else ()
    return tuple(sorted(each.name.removesuffix(_SUFFIX) for each in found if each.name.endswith(_SUFFIX)))


@cache
def document(name: str) -> dict[str, Any]:
    """Return the definition of the built-in form `name`. Callers share this object and must not change it.

    Raises:
        LookupError: no built-in form has this name.
    """
    import yaml  # imported only by programs that use a built-in form

    if name not in names():
        raise LookupError(f"unknown built-in form {name!r}; expected {', '.join(names())}")
    whole: dict[str, Any] = yaml.safe_load((_FORMS / f"{name}{_SUFFIX}").read_text("utf-8"))
    return whole
