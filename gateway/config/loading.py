"""A configuration's file or text to a Config, or every problem of it at once."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.config.catalog import Catalog
from gateway.config.document import MAX_BYTES, DocumentError, Fault, Location, Mark, Node, compose
from gateway.config.doubts import doubts
from gateway.config.fields import VALUE
from gateway.config.models import Config
from gateway.config.name_checks import name_findings
from gateway.config.parts import all_parts, sound_parts
from gateway.config.problems import ConfigError, Finding, Problem, ordered
from gateway.config.references import Referenced
from gateway.config.route_checks import route_findings
from gateway.config.scalars import resolve
from gateway.config.schema import json_schema
from gateway.config.wording import flattened, shown, worded
from gateway.core.frozen import replace


def load(path: Path, catalog: Catalog, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration in the file at `path`.

    Raises:
        ConfigError: every problem of it, each with its place.
    """
    return load_with_warnings(path, catalog, environ)[0]


def loads(text: str, name: str, catalog: Catalog, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration in `text`, which problems call `name`. `environ` holds what `${ENV}` refers to.

    Raises:
        ConfigError: every problem of it, each with its place.
    """
    return loads_with_warnings(text, name, catalog, environ)[0]


def load_with_warnings(
    path: Path, catalog: Catalog, environ: Mapping[str, str] = os.environ
) -> tuple[Config, tuple[Problem, ...]]:
    """The configuration in the file at `path`, and what in it is allowed but hardly meant.

    Raises:
        ConfigError: every problem of it, each with its place.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        return loads_with_warnings(content.decode("utf-8-sig"), str(path), catalog, environ)
    except OSError as error:
        raise ConfigError([Problem(str(path), 1, 1, f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        before = content[: error.start].split(b"\n")
        message = f"not UTF-8: {error.reason}"
        raise ConfigError([Problem(str(path), len(before), len(before[-1]) + 1, message)]) from error


def loads_with_warnings(
    text: str, name: str, catalog: Catalog, environ: Mapping[str, str] = os.environ
) -> tuple[Config, tuple[Problem, ...]]:
    """The configuration in `text`, as `loads` reads it, and what in it is allowed but hardly meant.

    Raises:
        ConfigError: every problem of it, each with its place.
    """
    try:
        root, faults = compose(text, environ)
    except DocumentError as error:
        raise ConfigError([_problem(name, error.fault)]) from error
    data = {} if root.value is None else root.plain()
    config, findings = _validated(data, root, catalog)
    findings += name_findings(sound_parts(data) if config is None else all_parts(config), catalog)
    if config is not None:
        findings += route_findings(config, catalog)
    faults += _without_echoes(faults, (_located(finding, root) for finding in findings))
    if config is None or faults:
        raise ConfigError(_problem(name, fault) for fault in faults)
    found = (_problem(name, _located(finding, root)) for finding in doubts(config, catalog))
    return config, ordered(replace(problem, is_warning=True) for problem in found)


def _validated(data: Any, root: Node, catalog: Catalog) -> tuple[Config | None, list[Finding]]:
    try:
        return Config.model_validate(data, context=catalog.policies), []
    except ValidationError as error:
        errors = list(flattened(error.errors(include_url=False)))
    if [each for each in errors if _retyped(data, each)]:
        return _validated(data, root, catalog)
    described = json_schema(catalog)
    return None, [worded(each, described) for each in errors]


_TYPED = frozenset({"int_type", "float_type", "bool_type"})


def _retyped(data: Any, error: dict[str, Any]) -> bool:
    """Whether a reference stood where a number or a flag is wanted, and is one now. References are text otherwise, so
    that a password of digits stays what it is."""
    *above, last = error["loc"] or ("",)
    if error["type"] not in _TYPED or not (isinstance(error["input"], Referenced) and error["input"].alone):
        return False
    for step in above:
        data = data[step]
    data[last] = resolve(error["input"])
    return not isinstance(data[last], str)


def _without_echoes(faults: tuple[Fault, ...], further: Iterable[Fault]) -> tuple[Fault, ...]:
    """`further` without those about scalars that could not even be read, such as a variable that is not set."""
    unread = {fault.mark for fault in faults}
    return tuple(fault for fault in further if fault.mark not in unread)


def _located(finding: Finding, root: Node) -> Fault:
    node = root.find(finding.location)
    message = finding.message.replace(VALUE, shown(node))
    return Fault(_key_mark(finding.location, root) if finding.at_key else node.mark, message)


def _key_mark(location: Location, root: Node) -> Mark:
    above = root.find(location[:-1])
    return above.keys.get(str(location[-1]), above.mark)


def _problem(name: str, fault: Fault) -> Problem:
    return Problem(name, fault.mark.line, fault.mark.column, fault.message)
