"""The configuration in use as lines of YAML, with the warnings of `gateway check` at the lines that they are about.

The lines are those of the effective configuration, every default included and secrets masked, and not those of the
file: that may have secrets in it.
"""

from collections.abc import Iterable
from typing import Any, Literal

import yaml
from pydantic import BaseModel

from gateway.config.document import Location
from gateway.config.effective import effective
from gateway.config.fields import VALUE
from gateway.config.keys import Config
from gateway.config.problems import Finding, without_credentials


class LineMark(BaseModel):
    """What is said about a line."""

    line: int
    """Counted from 0."""
    kind: Literal["warning"]
    text: str


class ReloadFailure(BaseModel):
    """Why the configuration could not be read again, so that the one before is still in use."""

    text: str
    """Every error on a line of its own, as `gateway check` prints it."""
    at: str


class Configuration(BaseModel):
    """The configuration in use."""

    lines: list[str]
    marks: list[LineMark]
    failure: ReloadFailure | None = None
    """Null if the last attempt to read the file succeeded."""


def marked(config: Config, findings: Iterable[Finding]) -> tuple[list[str], list[LineMark]]:
    """The lines of `config`, and a LineMark for each finding."""
    text = yaml.dump(effective(config), Dumper=_Plain, sort_keys=False, width=10**6, allow_unicode=True)
    root = yaml.compose(text, Loader=yaml.CSafeLoader)
    marks = [_mark(root, finding) for finding in findings]
    return text.splitlines(), sorted(marks, key=lambda mark: mark.line)


class _Plain(yaml.CSafeDumper):
    """Writes every value where it stands, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never an alias."""
        return True


def _mark(root: Any, finding: Finding) -> LineMark:
    line, node = _found(root, finding.location)
    message = finding.message.replace(VALUE, _shown(node))
    return LineMark(line=line, kind="warning", text=without_credentials(message))


def _found(root: Any, location: Location) -> tuple[int, Any]:
    """The line of the key or item at `location`, or of the nearest one above it, and its value."""
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
