"""What somebody who picks the repository up relies on: the targets, the workflow, the hooks and the guides."""

import json
import os
import re
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import SkipTest

import jsonschema
import pytest
import yaml

from tests.cli.commands import ROOT
from tests.peers import build
from tests.peers.build import TABLE, Peer

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()  # type: ignore[index]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
GUIDES = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests/README.md")
    if path.name != "CHANGELOG.md"
)


def made(*arguments: str) -> str:
    """What make prints, without what a make around these tests would have it add."""
    added = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in added}
    command = ["make", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def test_make_help_tells_every_target() -> None:
    printed = made("help")
    told = dict(re.findall(r"^make (\S+) +(\S.*)$", printed, re.MULTILINE))
    assert list(told) == TARGETS


def test_make_run_is_the_demo() -> None:
    planned = made("--dry-run", "run")
    assert planned.splitlines()[-1] == ".venv/bin/gateway demo"


# --- the workflow ---


def steps() -> list[dict[str, Any]]:
    return [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", ["test.yml", "release.yml"])
def test_the_workflow_is_one(name: str) -> None:
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/github-workflows.json").read_text())
    workflow = yaml.safe_load((ROOT / ".github/workflows" / name).read_text())
    document = {("on" if key is True else key): value for key, value in workflow.items()}  # YAML 1.1 reads `on` as true
    jsonschema.validators.validator_for(schema)(schema).validate(document)


def test_the_workflow_runs_targets_of_the_makefile_and_nothing_else() -> None:
    commands = [step["run"] for step in steps() if "run" in step]
    targets = {command.removeprefix("make ") for command in commands}
    assert targets == {"test", "test-long", "coverage", "test-real", "attack", "lint"}
    assert targets <= set(TARGETS)
    assert all(command.startswith("make ") for command in commands)


def test_the_workflow_can_publish_nothing() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in WORKFLOW["jobs"].values())
    actions = {step["uses"].partition("@")[0] for step in steps() if "uses" in step}
    assert actions == {"actions/checkout", "actions/setup-python"}
    assert "secrets" not in (ROOT / ".github/workflows/test.yml").read_text()


def test_the_workflow_has_every_supported_python() -> None:
    fast = WORKFLOW["jobs"]["fast"]["strategy"]["matrix"]["python"]
    everything = [step["with"]["python-version"] for step in WORKFLOW["jobs"]["everything"]["steps"] if "with" in step]
    assert [*everything, *fast] == ["3.11", "3.12", "3.13", "3.14"]


# --- peers that a Python cannot have ---

OLD = Peer("old", ("old==1",), before=(3, 11))


def test_a_peer_that_this_python_cannot_have_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "PEERS", tmp_path)
    reason = r"old needs a Python older than 3\.11, and this is 3\.\d+"
    assert re.fullmatch(f"old: not built, and its tests are skipped: {reason}", build.build(OLD))
    assert not [*tmp_path.iterdir()]


def test_tests_with_such_a_peer_are_skipped_with_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "TABLE", (OLD,))
    with pytest.raises(SkipTest, match=r"old needs a Python older than 3\.11"):
        build.require("old")


def test_a_peer_that_was_not_built_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "PEERS", tmp_path)
    monkeypatch.setattr(build, "TABLE", (Peer("new", ("new==1",)),))
    with pytest.raises(build.BuildError, match="run `make peers`"):
        build.require("new")


def test_python_3_11_has_all_of_them() -> None:
    assert [peer.unavailable((3, 11)) for peer in TABLE] == [""] * len(TABLE)
    assert [peer.name for peer in TABLE if peer.unavailable((3, 12))] == ["triton", "graphpipe", "seldon"]


# --- the hooks ---


def test_the_hooks_fetch_nothing() -> None:
    assert [each["repo"] for each in HOOKS["repos"]] == ["local"]
    for hook in HOOKS["repos"][0]["hooks"]:
        assert (hook["language"], ".venv/bin/" in hook["entry"]) == ("system", True)
        assert "additional_dependencies" not in hook


# --- the guides ---


@pytest.mark.parametrize("name", GUIDES)
def test_every_file_that_a_guide_names_is_there(name: str) -> None:
    folders = r"(?:\.github|config|deploy|docs|gateway|protos|tests)"
    shown = re.findall(rf"`({folders}/[\w./-]+)`", (ROOT / name).read_text())
    assert [path for path in shown if "NAME" not in path and not (ROOT / path).exists()] == []
