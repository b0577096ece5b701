"""Find models by name, on the command line and in the configuration: bundled models, and callables at
`module:attribute`."""

import importlib
import os
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from gateway.reference.bundled import BUNDLED
from gateway.reference.callables import from_callable
from gateway.reference.model import Model


def find(name: str) -> Model:
    """Return the bundled model `name`, or the callable at `module:attribute`.

    Raises:
        ValueError: the model does not exist. The message gives the reason and a similar name.
    """
    if ":" in name:
        return load(name)
    model = BUNDLED.get(name)
    if model is None:
        expected = f"expected {', '.join(BUNDLED)}, or module:attribute"
        raise ValueError(f"no model {name!r}{_suggestion(name, BUNDLED)}; {expected}")
    return model


def load(path: str) -> Model:
    """Return the callable at `module:attribute` as a Model. The last part of the attribute is the model's name. The
    search for modules includes the working directory.

    Raises:
        ValueError: the module or attribute does not exist, importing the module fails, the object is not callable, or
            its parameters do not match the inputs that it declares.
    """
    module, colon, attribute = path.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"{path!r} does not name a callable; expected module:attribute")
    found = _attribute(_import(module), attribute, path)
    if not callable(found):
        raise ValueError(f"{path!r} is of type {type(found).__name__}; expected a callable")
    return from_callable(attribute.rpartition(".")[2], found)


def _import(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ValueError(f"no module {error.name!r}; looked in {os.getcwd()} and the installed packages") from error
        raise ValueError(f"module {name!r} failed to import: {error}") from error
    except (Exception, SystemExit) as error:
        raise ValueError(f"module {name!r} failed to import: {type(error).__name__}: {error}") from error


def _attribute(owner: Any, attribute: str, path: str) -> Any:
    for name in attribute.split("."):
        if not hasattr(owner, name):
            raise ValueError(f"{path!r} has no attribute {name!r}{_suggestion(name, dir(owner))}")
        owner = getattr(owner, name)
    return owner


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""
