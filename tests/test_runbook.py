"""`docs/runbook.md` explains every reason of an error and every line of the log."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Reason
from gateway.core.models import Signature, TensorSpec
from gateway.protocols.umbridge.metadata import encode_input_sizes

ROOT = Path(__file__).parents[1]
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, int]]:
    """Calls that write to the log, each with the position of its text: those of a logger's methods, and those that take
    a level before the text."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        levels = [at for at, each in enumerate(node.args) if _is_level(each)]
        if levels:
            yield node, levels[0] + 1
        elif isinstance(node.func, ast.Attribute) and _is_name(node.func.value, "log") and node.func.attr in _LEVELS:
            yield node, 0


def _is_level(node: ast.expr) -> bool:
    """Whether it is `logging.LEVEL`, or one of two."""
    if isinstance(node, ast.IfExp):
        return _is_level(node.body)
    return isinstance(node, ast.Attribute) and _is_name(node.value, "logging")


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _text(node: ast.expr, constants: dict[str, str]) -> str | None:
    """A format string; None for what is none."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return constants.get(name)
        case ast.JoinedStr(values=pieces):
            return "".join(str(each.value) if isinstance(each, ast.Constant) else "%s" for each in pieces)
    return None


def _constants(tree: ast.AST) -> dict[str, str]:
    return {
        node.targets[0].id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def _trees(word: str = "") -> Iterator[tuple[Path, ast.AST]]:
    """The files of the package that contain `word`."""
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        if word in (text := path.read_text()):
            yield path, ast.parse(text)


@cache
def lines() -> dict[str, str]:
    """The log's format strings, each with the file that writes it."""
    found = {}
    for path, tree in _trees("log"):
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        for function in functions:
            constants = _constants(function)
            for call, at in _calls(function):
                text = _text(call.args[at], constants) if at < len(call.args) else None
                if text:
                    found[text] = str(path.relative_to(ROOT))
    return found


@cache
def _all_texts() -> set[str]:
    nodes = (node for _, tree in _trees() for node in ast.walk(tree))
    return {_as_shown(node.value) for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def _as_shown(text: str) -> str:
    """The form of a format string in the runbook: `...` for each value."""
    return re.sub(r"%[-+0-9.]*[a-z]", "...", text).replace("%%", "%")


def test_the_lines_are_found() -> None:
    assert len(lines()) > 15


def test_every_line_of_the_log_is_explained() -> None:
    missing = {_as_shown(text): path for text, path in lines().items() if f"`{_as_shown(text)}`" not in RUNBOOK}
    assert not missing, "describe these lines in a row of docs/runbook.md"


def test_no_line_is_explained_that_is_never_written() -> None:
    cells = re.findall(r"^\| (`.+?`) \|", RUNBOOK.split("## Log lines")[1], re.MULTILINE)
    explained = {each.removeprefix("`").removesuffix("`") for cell in cells for each in cell.split("<br>")}
    assert explained <= {_as_shown(text) for text in lines()} | _all_texts()


def test_every_reason_is_explained() -> None:
    explained = set(re.findall(r"^\| `([a-z-]+)` \|", RUNBOOK.split("## Log lines")[0], re.MULTILINE))
    assert explained == {reason.value for reason in Reason}


def test_the_first_line_is_the_error_that_a_client_hides() -> None:
    """UM-Bridge's Python client shows no text for a model of unknown sizes: people look here for the KeyError."""
    first = next(line for line in RUNBOOK.splitlines() if line.startswith("| UM-Bridge"))
    assert "KeyError: 'inputSizes'" in first
    assert "`signature`" in first
    with pytest.raises(GatewayError) as caught:
        encode_input_sizes(Signature((TensorSpec("x", Datatype.FP64, (-1,)),)), "null")
    assert "`has a free dimension`" in first
    assert "has a free dimension" in caught.value.message
