"""`docs/runbook.md` explains every reason of an error and every line of the log."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gateway.core.errors import Reason

ROOT = Path(__file__).parents[1]
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls of a logger's methods, and of LogLimit's `write`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = ast.unparse(node.func.value)
        if (owner == "log" and node.func.attr in _LEVELS) or (owner.endswith(("_log", "_lines", "_limited"))):
            yield node


def _texts(call: ast.Call, constants: dict[str, str]) -> Iterator[str]:
    """The format strings among a call's arguments. A key of LogLimit's `write` comes before the level and is none."""
    arguments = call.args
    for at, each in enumerate(arguments):
        if ast.unparse(each).startswith("logging."):
            arguments = arguments[at + 1 :]
    for each in arguments[:1]:
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value
        elif isinstance(each, ast.Name) and each.id in constants:
            yield constants[each.id]


def _constants(tree: ast.AST) -> dict[str, str]:
    return {
        node.targets[0].id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def lines() -> dict[str, str]:
    """The log's format strings, each with the file that writes it."""
    found = {}
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        tree = ast.parse(path.read_text())
        constants = _constants(tree)
        for call in _calls(tree):
            for text in _texts(call, constants):
                found[text] = str(path.relative_to(ROOT))
    return found


def _as_shown(text: str) -> str:
    """The form of a format string in the runbook: `...` for each value."""
    return re.sub(r"%[-+0-9.]*[a-z]", "...", text).replace("%%", "%")


def test_the_lines_are_found() -> None:
    assert len(lines()) > 15


def test_every_line_of_the_log_is_explained() -> None:
    missing = {_as_shown(text): path for text, path in lines().items() if f"`{_as_shown(text)}`" not in RUNBOOK}
    assert not missing


def test_no_line_is_explained_that_is_never_written() -> None:
    explained = set(re.findall(r"^\| `(.+?)` \|", RUNBOOK.split("## Lines of the log")[1], re.MULTILINE))
    assert explained <= {_as_shown(text) for text in lines()}


def test_every_reason_is_explained() -> None:
    explained = set(re.findall(r"^\| `([a-z-]+)` \|", RUNBOOK.split("## Lines of the log")[0], re.MULTILINE))
    assert explained == {reason.value for reason in Reason}
