"""The ready forms: descriptions of servers that many have, as YAML files of this package."""

from functools import cache
from importlib.resources import files
from typing import Any

_FORMS = files(__package__) / "forms"
_SUFFIX = ".yaml"


@cache
def names() -> tuple[str, ...]:
    """The names of all ready forms."""
    found = _FORMS.iterdir() if _FORMS.is_dir() else ()
    return tuple(sorted(each.name.removesuffix(_SUFFIX) for each in found if each.name.endswith(_SUFFIX)))


@cache
def document(name: str) -> dict[str, Any]:
    """The description of the ready form `name`. Callers share it, and must not change it.

    Raises:
        LookupError: there is none of this name.
    """
    import yaml  # only programs that use a ready form pay for it

    if name not in names():
        raise LookupError(f"unknown built-in form {name!r}; expected {', '.join(names())}")
    whole: dict[str, Any] = yaml.safe_load((_FORMS / f"{name}{_SUFFIX}").read_text("utf-8"))
    return whole
