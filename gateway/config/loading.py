"""Load a configuration from a file or text, and return a Config or a list of all problems.

1. The text is parsed into a tree of nodes with their positions, and references are replaced (`document`). 2. pydantic
   validates the tree as a Config (`keys`). 3. Forms become protocols (`form_checks`), and each section, names and
   addresses are checked. If the configuration is invalid, both steps run on its valid parts (`partial`, `name_checks`,
   `paths`). 4. If the configuration is valid, permissions are checked, routes are checked against listeners and
   backends, and policies against backends (`access_checks`, `route_checks`, `policy_checks`). 5. Valid settings that
   are probably a mistake become warnings (`warnings`).

All steps collect problems, up to MOST_PROBLEMS, which are reported in the order of the file.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.config.access_checks import access_findings
from gateway.config.catalog import Catalog
from gateway.config.document import MAX_BYTES, DocumentError, Location, Mark, Node, YamlFault, compose
from gateway.config.fields import VALUE
from gateway.config.form_checks import shown_references, with_forms
from gateway.config.graph_checks import graph_findings
from gateway.config.keys import Config, ReferenceConfig
from gateway.config.messages import finding_of, flattened, shown
from gateway.config.name_checks import name_findings
from gateway.config.partial import Parts, all_parts, valid_parts
from gateway.config.policy_checks import policy_findings
from gateway.config.problems import MOST_PROBLEMS, ConfigError, Finding, Problem, first_of
from gateway.config.route_checks import route_findings
from gateway.config.scalars import Referenced, resolve
from gateway.config.schema import json_schema
from gateway.config.warnings import boolean_keys, find_warnings
from gateway.config.worker_checks import worker_findings
from gateway.core.frozen import replace


def load(path: Path, catalog: Catalog, environ: Mapping[str, str] = os.environ) -> Config:
    """Return the configuration in the file at `path`.

    Raises:
        ConfigError: the configuration is invalid; the error has all problems.
    """
    return load_with_warnings(path, catalog, environ)[0]


def loads(text: str, name: str, catalog: Catalog, environ: Mapping[str, str] = os.environ) -> Config:
    """Return the configuration in `text`. Problems show `name` as the file name; `environ` contains the variables for
    `${ENV}`.

    Raises:
        ConfigError: the configuration is invalid; the error has all problems.
    """
    return loads_with_warnings(text, name, catalog, environ)[0]


def load_with_warnings(
    path: Path, catalog: Catalog, environ: Mapping[str, str] = os.environ
) -> tuple[Config, tuple[Problem, ...]]:
    """Return the configuration in the file at `path`, and its warnings.

    Raises:
        ConfigError: the configuration is invalid; the error has all problems.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        return loads_with_warnings(content.decode("utf-8-sig"), str(path), catalog, environ)
    except OSError as error:
        text = f"cannot read the file: {error.strerror}; check the path and its permissions"
        raise ConfigError([Problem(str(path), 1, 1, text)]) from error
    except UnicodeDecodeError as error:
        before = content[: error.start].split(b"\n")
        message = f"not UTF-8: {error.reason}"
        raise ConfigError([Problem(str(path), len(before), len(before[-1]) + 1, message)]) from error


def loads_with_warnings(
    text: str, name: str, catalog: Catalog, environ: Mapping[str, str] = os.environ
) -> tuple[Config, tuple[Problem, ...]]:
    """Return the configuration in `text`, and its warnings.

    Raises:
        ConfigError: the configuration is invalid; the error has all problems.
    """
    try:
        root, faults = compose(text, environ)
    except DocumentError as error:
        raise ConfigError([_problem(name, error.fault)]) from error
    data = {} if root.value is None else root.plain()
    config, findings = _validated(data, root, catalog)
    if len(faults) + len(findings) <= MOST_PROBLEMS:
        parts = valid_parts(data) if config is None else all_parts(config)
        catalog, of_forms = with_forms(catalog, parts)
        findings += [*of_forms, *islice(_further(config, parts, root, catalog), MOST_PROBLEMS + 1)]
    unread = {fault.mark for fault in faults}
    faults = (*faults[: MOST_PROBLEMS + 1], *_without_repeated(unread, (_located(each, root) for each in findings)))
    warned = _warnings(
        name, boolean_keys(root), root
    )  # even if there are errors, because these warnings might name the cause
    if config is None or faults:
        errors = (replace(fault, location=fault.location or root.location_of(fault.mark)) for fault in faults)
        files = (file for finding in findings for file in finding.files)
        raise ConfigError([*(_problem(name, error) for error in errors), *warned], files)
    config.references.update((str(each), each.source) for each in root.referenced())
    warned += _warnings(name, find_warnings(config, catalog), root)
    config.warned.update((each.location, each) for each in warned)
    return config, first_of(warned)


def _further(config: Config | None, parts: Parts, root: Node, catalog: Catalog) -> Iterator[Finding]:
    """Yield the findings of the checks that follow pydantic's checks and the checks of forms. `config` is None if it is
    invalid."""
    yield from shown_references(root, parts)
    yield from name_findings(parts, catalog)
    if config is not None:
        yield from route_findings(config, catalog)
        yield from graph_findings(config)
        yield from policy_findings(config, catalog)
        yield from access_findings(config, catalog)
        yield from worker_findings(config, catalog)
        if config.log.payloads is not None:
            yield from config.log.payloads.findings(("log", "payloads"), catalog)


def _warnings(name: str, findings: Iterable[Finding], root: Node) -> list[Problem]:
    first = islice(findings, MOST_PROBLEMS + 1)
    return [replace(_problem(name, _located(finding, root)), is_warning=True) for finding in first]


def located(path: Path, findings: Iterable[Finding], environ: Mapping[str, str] = os.environ) -> list[Problem]:
    """Return findings about the valid configuration in the file at `path` as Problems with lines and columns.

    Raises:
        ConfigError: the file is no longer readable.
    """
    try:
        root, _ = compose(path.read_text("utf-8-sig"), environ)
    except (OSError, UnicodeDecodeError, DocumentError) as error:
        raise ConfigError(
            [Problem(str(path), 1, 1, "the file changed during the check; run the check again")]
        ) from error
    return [_problem(str(path), _located(each, root)) for each in findings]


NO_TLS: Mapping[str, str] = {}

_OPTIONS: Mapping[str | int, str] = {
    "protocol": "--protocol", "bind": "--bind", "models": "--model",
    "certificate": "--certificate", "key": "--key", "client_ca": "--client-ca",
}  # fmt: skip


def reference_config(
    protocol: str, bind: str, models: Sequence[str], catalog: Catalog, tls: Mapping[str, str] = NO_TLS
) -> ReferenceConfig:
    """Return an item of `reference:` for the options of a command. `tls` contains the item's TLS keys.

    Raises:
        ValueError: the options are invalid (the message lists all problems with their options).
    """
    item: dict[str, Any] = {"protocol": protocol, "bind": bind, "models": list(models)}
    if tls:
        item["tls"] = dict(tls)
    whole, place = {"reference": [item]}, ("reference", 0)
    parts = valid_parts(whole)
    findings = list(name_findings(parts, with_forms(catalog, parts)[0]))
    config = None
    try:
        config = ReferenceConfig.model_validate(item)
    except ValidationError as error:
        findings += [finding_of(each, {}) for each in flattened(error.errors(include_url=False), place)]
    if config is None or findings:
        raise ValueError("\n".join(dict.fromkeys(_option_message(finding, whole) for finding in findings)))
    return config


def _option_message(finding: Finding, whole: Any) -> str:
    option, value = next(_OPTIONS[each] for each in finding.location[2:] if each in _OPTIONS), whole
    for step in finding.location:
        value = value[step]
    return f"{option}: {finding.message.replace(VALUE, repr(value))}"


def _validated(data: Any, root: Node, catalog: Catalog) -> tuple[Config | None, list[Finding]]:
    try:
        return Config.model_validate(data, context=catalog.policies), []
    except ValidationError as error:
        if (count := error.error_count()) > _MOST_ERRORS:
            return None, [Finding((), f"{count} keys or values are wrong; is this a gateway configuration?")]
        errors = list(flattened(error.errors(include_url=False)))
    if [each for each in errors if _converted(data, each)]:
        return _validated(data, root, catalog)
    schema = json_schema(catalog)
    return None, [finding_of(each, schema, catalog.policies) for each in errors[: MOST_PROBLEMS + 1]]


_MOST_ERRORS = 10_000
"""Maximum number of errors that pydantic reports: it creates the list in one step, and a longer list would block
requests for too long."""

_TYPED = frozenset({"int_type", "float_type", "bool_type"})


def _converted(data: Any, error: dict[str, Any]) -> bool:
    """Convert the value of a reference if its key is a number or a flag, and return whether this was possible. For
    other keys the value stays text, such as a password that consists of digits."""
    *above, last = error["loc"] or ("",)
    if error["type"] not in _TYPED or not (isinstance(error["input"], Referenced) and error["input"].alone):
        return False
    for step in above:
        if not (step == 0 and isinstance(data, dict)):  # a single map instead of a list of maps
            data = data[step]
    data[last] = resolve(error["input"])
    return not isinstance(data[last], str)


def _without_repeated(unread: set[Mark], further: Iterable[YamlFault]) -> tuple[YamlFault, ...]:
    """Return `further` without findings about scalars that were unreadable, such as a variable that is not set."""
    return tuple(fault for fault in further if fault.mark not in unread)


def _located(finding: Finding, root: Node) -> YamlFault:
    node = root.find(finding.location)
    message = finding.message.replace(VALUE, shown(node))
    return YamlFault(_key_mark(finding.location, root) if finding.at_key else node.mark, message, finding.location)


def _key_mark(location: Location, root: Node) -> Mark:
    above = root.find(location[:-1])
    return above.keys.get(str(location[-1]), above.mark)


def _problem(name: str, fault: YamlFault) -> Problem:
    return Problem(name, fault.mark.line, fault.mark.column, fault.message, location=fault.location)
