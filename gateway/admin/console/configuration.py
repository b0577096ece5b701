"""`/api/configuration`: the configuration in use as lines of YAML. Each warning of `gateway check` and each error of a
failed reload is attached to the corresponding line. `/api/policies`: the policies of one place.

The lines and the settings show the effective configuration, with all defaults and masked secrets. The console does not
show the file itself, because it can contain secrets."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, cast

import yaml
from pydantic import BaseModel

from gateway.admin.status import ConfigurationError, LoadError
from gateway.config.document import Location
from gateway.config.effective import effective
from gateway.config.fields import VALUE
from gateway.config.keys import Config
from gateway.config.problems import Finding, without_credentials
from gateway.policies.places import ReportedStates

FindWarnings = Callable[[Config], Sequence[Finding]]
"""A function that returns the warnings of `gateway check` about a valid configuration."""


class LineMark(BaseModel):
    """A remark about a line of the configuration."""

    line: int
    """The line's number, counted from 0."""
    kind: Literal["warning", "error"]
    """`error`: an error of a failed reload, attached to the corresponding line of the configuration in use, or to the
    nearest line above."""
    text: str
    place: str
    """The file, line and column, such as `gateway.yaml:12:3`; empty if the remark has no position in the file."""


class ReloadProblem(BaseModel):
    """An error in the file that made a reload fail."""

    text: str
    place: str
    """See LineMark."""
    line: int | None
    """The line with this error's LineMark; null if no line corresponds to the error."""


class ReloadFailure(BaseModel):
    """The errors of a failed reload. The previous configuration is still in use."""

    errors: list[ReloadProblem]
    at: str


class Configuration(BaseModel):
    """The configuration in use."""

    lines: list[str]
    marks: list[LineMark]
    failure: ReloadFailure | None = None
    """The last reload's failure; null if the last attempt to read the file succeeded."""


class Marked:
    """The lines of a configuration, with their warnings."""

    def __init__(self, config: Config, findings: Iterable[Finding]) -> None:
        self._config = config
        text = yaml.dump(effective(config), Dumper=_Plain, sort_keys=False, width=10**6, allow_unicode=True)
        self._root = yaml.compose(text, Loader=yaml.CSafeLoader)
        self._lines = text.splitlines()
        self._warnings = [self._warning(finding) for finding in findings]

    def shown(self, error: LoadError | None) -> Configuration:
        """Return the lines with their warnings, and with the errors of a failed reload."""
        problems = [] if error is None else list(map(self._problem, error.errors))
        errors = [
            LineMark(line=each.line, kind="error", text=each.text, place=each.place)
            for each in problems
            if each.line is not None
        ]
        marks = sorted([*errors, *self._warnings], key=lambda mark: mark.line)
        failure = None if error is None else ReloadFailure(errors=problems, at=error.at.isoformat())
        return Configuration(lines=self._lines, marks=marks, failure=failure)

    def _warning(self, finding: Finding) -> LineMark:
        line, node = _found(self._root, finding.location)
        message = finding.message.replace(VALUE, _shown(node))
        known = self._config.warned.get(finding.location)
        place = "" if known is None else f"{known.file}:{known.line}:{known.column}"
        return LineMark(line=line, kind="warning", text=without_credentials(message), place=place)

    def _problem(self, error: ConfigurationError) -> ReloadProblem:
        place = "" if error.file is None else f"{error.file}:{error.line}:{error.column}"
        line = _found(self._root, tuple(error.location))[0] if error.location else None
        return ReloadProblem(text=error.text, place=place, line=line)


class _Plain(yaml.CSafeDumper):
    """A YAML dumper that writes every value in full, without anchors or aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True, so the dumper writes no aliases."""
        return True


def _found(root: Any, location: Location) -> tuple[int, Any]:
    """Return the line and the value of the key or item at `location`, or of its nearest existing ancestor."""
    line, node = 0, root
    for step in location:
        match node:
            case yaml.MappingNode():
                pair = next((pair for pair in node.value if pair[0].value == str(step)), None)
            case yaml.SequenceNode() if isinstance(step, int) and step < len(node.value):
                pair = (node.value[step], node.value[step])
            case _:
                pair = None
        if pair is None:
            break
        line, node = pair[0].start_mark.line, pair[1]
    return line, node


def _shown(node: Any) -> str:
    match node:
        case yaml.ScalarNode():
            return repr(node.value)
        case yaml.SequenceNode():
            return "a list"
    return "a map"


class PlacedPolicy(BaseModel):
    """A policy, and its position in the configuration."""

    name: str
    settings: dict[str, Any]
    """The policy's settings with all defaults, as in `/config`."""
    states: list[dict[str, Any]]
    """The policy's states, as in `/status`, one for each worker; empty for a stateless policy."""


class PlacedPolicies(BaseModel):
    """The policies of a route or a backend, in the order in which they apply to a request."""

    policies: list[PlacedPolicy]


class PolicySettings:
    """The settings of all policies of a configuration, by route or backend."""

    def __init__(self, config: Config) -> None:
        shown = cast(dict[str, Any], effective(config))
        self._of_place: dict[str, list[dict[str, Any]]] = {
            route.name: each["policies"] for route, each in zip(config.routes, shown["routes"], strict=True)
        } | {f"backends.{name}": each["policies"] for name, each in shown["backends"].items()}

    def at(self, place: str, states: ReportedStates) -> PlacedPolicies:
        """Return the policies of the route or backend `place`. `states` contains the place, name and state of each
        stateful policy.

        Raises:
            KeyError: the route or backend does not exist.
        """
        found = []
        for entry in self._of_place[place]:
            [(name, settings)] = entry.items()
            own = [dict(state) for at, policy, state in states if (at, policy) == (place, name)]
            found.append(PlacedPolicy(name=name, settings=settings, states=own))
        return PlacedPolicies(policies=found)
