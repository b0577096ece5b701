"""Checks the command lines in pages that the tests do not run; `test_pages` calls it.

Commands and options of the gateway and targets of `make` must exist. For other programs, the files and chart values in
the command must exist.
"""

import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import typer
import yaml

from gateway.cli import application
from tests.documents.pages import FENCE, ROOT, Block, blocks, pages

SERVERS = ("bentoml", "flask", "mlflow", "tritonserver", "uvicorn")
"""Programs of real servers, which `examples.py` starts."""
OTHER_PROGRAMS = ("curl", "docker", "helm", "hq", "kind", "kubectl", "python", "ssh", *SERVERS)
PROGRAMS = (*OTHER_PROGRAMS, "gateway", ".venv/bin/gateway", "make", "pip", ".venv/bin/python")
IN_TEXT = re.compile(r"`((?:\.venv/bin/)?gateway [a-z][^`]*|make [^`]*|helm [a-z][^`]*)`")
"""Matches a command in running text."""

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
CHART = ROOT / "deploy/helm/modelglot"


@dataclass(frozen=True)
class Line:
    place: str
    words: Sequence[str]


def lines_not_run() -> list[Line]:
    """Return the block lines without `$ ` that start with a known program, and the commands in running text."""
    scripts = (each for each in blocks() if each.language in ("", "bash") and not each.text.startswith("$ "))
    return [*(line for block in scripts for line in _lines_of(block)), *_lines_in_text()]


def _lines_of(block: Block) -> Iterator[Line]:
    joined = block.text.replace("\\\n", "  ")
    for number, text in enumerate(whole_lines(joined)):
        words = shlex.split(text, comments=True)
        if words and words[0] in PROGRAMS:
            yield Line(f"{block.place}+{number + 1}", words)


def whole_lines(text: str) -> Iterator[str]:
    """Return the lines of `text`. A quoted part with several lines counts as one line."""
    pending = ""
    for line in text.splitlines():
        pending += line
        try:
            shlex.split(pending, comments=True)
        except ValueError:
            pending += "\n"
            continue
        yield pending
        pending = ""


def _lines_in_text() -> Iterator[Line]:
    for page in pages():
        if page.name == "CHANGELOG.md":
            continue
        text = FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), page.read_text("utf-8"))
        for found in IN_TEXT.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield Line(f"{page.relative_to(ROOT)}:{line}:{found[1][:30]}", found[1].split())


def problems(words: Sequence[str]) -> list[str]:
    """Return the problems of a command; empty if it is correct."""
    program, *arguments = words
    if program.endswith("gateway"):
        return list(_of_gateway(arguments))
    if program == "make":
        return [f"there is no target {word}" for word in arguments if "=" not in word and word not in TARGETS | {""}]
    if program == "pip":
        named = re.findall(r"modelglot\[(\w+)\]", " ".join(arguments))
        return [f"there is no extra {name}" for name in named if name not in EXTRAS]
    return [*_absent_files(arguments), *(_absent_values(arguments) if program == "helm" else [])]


def _of_gateway(arguments: Sequence[str]) -> Iterator[str]:
    command: Any = typer.main.get_command(application)
    rest = list(arguments)
    while rest and hasattr(command, "commands"):
        name = rest.pop(0)
        if name == "--version":
            return
        found = command.get_command(None, name)
        if found is None:
            yield f"there is no command {name}"
            return
        command = found
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        if word.startswith("--") and word.partition("=")[0] not in known | {"--help"}:
            yield f"there is no option {word}"


def _absent_files(arguments: Sequence[str]) -> Iterator[str]:
    for word in arguments:
        if re.match(r"(deploy|config|docs|tests|protos)/", word) and not (ROOT / word.partition(":")[0]).exists():
            yield f"there is no file {word}"


def _absent_values(arguments: Sequence[str]) -> Iterator[str]:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    for option, setting in pairwise(arguments):
        if option == "--set" and not _has(values, setting.partition("=")[0].split(".")):
            yield f"the chart has no value {setting}"


def _has(values: Any, path: Sequence[str]) -> bool:
    """Return whether the chart has a value at `path`. Below an empty map (labels, annotations), every name is valid."""
    for name in path:
        if values == {}:
            return True
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True
