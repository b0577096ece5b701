"""Tests the kubectl, Helm and Docker commands in pages, as far as possible without a cluster and a container engine.

- kubectl: the real kubectl runs, with a fake API server that contains the objects of the chart and of the page's files.
- Helm: Helm's own library renders every installation, with the values and the `--set` options of the command.
- docker: the options are compared with the real client, if it is installed. `tests/deploy/test_image.py` executes the
  Dockerfile, and `tests/deploy/test_compose.py` runs the services of the compose file.
"""

import argparse
import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from tests.deploy.dockerfile import ignored, stages
from tests.deploy.rendered import CHART, NAMESPACE, Object, Release, chart, render
from tests.documents.command_lines import Line, lines_not_run
from tests.documents.pages import ROOT, blocks_of
from tests.documents.parts import problems_but_absent_files
from tests.in_thread import QuietHandler, in_thread
from tests.limits import GENEROUS
from tests.tls.certificates import Authority

LINES = lines_not_run()


def lines_of(program: str) -> pytest.MarkDecorator:
    found = [each for each in LINES if each.words[0] == program and len(each.words) > 2]
    return pytest.mark.parametrize("line", found, ids=lambda each: each.place)


# --- Helm ---


def helm() -> argparse.ArgumentParser:
    """Return a parser for the Helm commands and options that pages use (https://helm.sh/docs/helm/)."""
    parser = argparse.ArgumentParser("helm", allow_abbrev=False, exit_on_error=False)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("install", "upgrade", "template", "uninstall", "status", "test"):
        command = commands.add_parser(name, allow_abbrev=False, exit_on_error=False)
        command.add_argument("release")
        command.add_argument("-n", "--namespace", default="default")
        if name in ("install", "upgrade", "template"):
            command.add_argument("chart")
            command.add_argument("-f", "--values", action="append", default=[])
            command.add_argument("--set", action="append", default=[])
        if name == "upgrade":
            command.add_argument("--reuse-values", action="store_true")
        if name == "template":
            command.add_argument("--show-only", action="append", default=[])
        if name == "test":
            command.add_argument("--logs", action="store_true")
    return parser


def values_of(line: Line, given: argparse.Namespace) -> dict[str, Any]:
    """Return the chart values that a command sets."""
    found: dict[str, Any] = {}
    for path in given.values:
        found = merged(found, helm_python.values_from_yaml(file_of(line, path)))
    for setting in given.set:
        name, _, text = setting.partition("=")
        nested: Any = yaml.safe_load(text)
        for key in reversed(name.split(".")):
            nested = {key: nested}
        found = merged(found, nested)
    return found


def file_of(line: Line, path: str) -> str:
    """Return a file of the repository, or a file that the page tells to save. In the chart's README, the values file is
    arbitrary."""
    page = ROOT / line.place.partition(":")[0]
    saved = {each.file: each.text for each in blocks_of(page)}
    if (ROOT / path).exists():
        return (ROOT / path).read_text()
    return "{}" if page.parent == CHART else saved[path]


def merged(left: Any, right: Any) -> Any:
    if isinstance(left, dict) and isinstance(right, dict):
        return {**left, **{key: merged(left.get(key), value) for key, value in right.items()}}
    return right


@lines_of("helm")
def test_helm_accepts_the_command(line: Line) -> None:
    given = helm().parse_args(line.words[1:])
    helm_python.validate_release_name(given.release)
    if "chart" not in given:
        return
    assert (ROOT / given.chart) == CHART
    values = values_of(line, given)
    chart().validate_schema(values)
    release = render(values, given.release)
    assert problems_but_absent_files(release.configuration, line.place) == []
    for shown in getattr(given, "show_only", []):
        assert (CHART / shown).exists()


def test_a_setting_of_a_command_changes_what_is_rendered() -> None:
    for line in LINES:
        if line.words[0] != "helm" or "--set" not in line.words:
            continue
        given = helm().parse_args(line.words[1:])
        assert render(values_of(line, given), given.release).objects != render({}, given.release).objects


@pytest.mark.parametrize("wrong", ["install m deploy/helm/modelglot --sett a=b", "instal m c", "test m --reuse-values"])
def test_an_option_that_helm_does_not_have_is_found(wrong: str) -> None:
    with pytest.raises((SystemExit, argparse.ArgumentError)):
        helm().parse_args(wrong.split())


# --- kubectl ---

PLURALS = {
    "v1": ["Namespace", "Service", "ConfigMap", "ServiceAccount", "Pod", "Secret"],
    "apps/v1": ["Deployment", "ReplicaSet"],
    "batch/v1": ["Job"],
    "policy/v1": ["PodDisruptionBudget"],
    "serving.kserve.io/v1beta1": ["InferenceService"],
    "serving.kserve.io/v1alpha1": ["ServingRuntime"],
}
"""The kinds of objects in the API server."""


def resources(version: str) -> Object:
    verbs = ["get", "create", "patch"]
    kinds = [
        {"name": f"{kind.lower()}s", "namespaced": kind != "Namespace", "kind": kind, "verbs": verbs}
        for kind in PLURALS[version]
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": kinds}


@cache
def discovery() -> dict[str, Object]:
    """Return the responses with which kubectl discovers the kinds of the server."""
    groups: dict[str, list[str]] = {}
    for version in PLURALS:
        if "/" in version:
            groups.setdefault(version.partition("/")[0], []).append(version)
    listed = [
        {"name": name, "versions": [{"groupVersion": each, "version": each.partition("/")[2]} for each in versions]}
        for name, versions in groups.items()
    ]
    found = {"/api": {"kind": "APIVersions", "versions": ["v1"]}, "/api/v1": resources("v1")}
    found["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    return found | {f"/apis/{version}": resources(version) for version in PLURALS if "/" in version}


@contextmanager
def api_server(objects: Sequence[Object], folder: Path) -> Iterator[str]:
    """Yield the configuration for kubectl and an API server with `objects`. All pods of the deployments are ready."""
    kept = {}
    for each in objects:
        version, kind = each["apiVersion"], each["kind"]
        prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
        path = f"{prefix}/namespaces/{NAMESPACE}/{kind.lower()}s/{each['metadata']['name']}"
        count = each.get("spec", {}).get("replicas", 1)
        status = {f"{name}Replicas": count for name in ("updated", "ready", "available")}
        generation = {"generation": 1, "namespace": NAMESPACE}
        ready = {**each, "metadata": {**each["metadata"], **generation}}
        if kind == "Deployment":
            ready["status"] = {"observedGeneration": 1, "replicas": count, **status}
        kept[path] = ready

    class Answers(QuietHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            name = re.search(r"fieldSelector=metadata\.name%3D([\w-]+)", self.path)
            found = discovery().get(path) or kept.get(path)
            if name and "watch=" not in self.path:
                items = [kept[f"{path}/{name[1]}"]]
                found = {"kind": "List", "apiVersion": "apps/v1", "metadata": {"resourceVersion": "1"}, "items": items}
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            self.send_json(found or missing, 200 if found else 404)

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as address:
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://{address}"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
            "current-context": "c",
        }
        config = folder / "kubeconfig"
        config.write_text(json.dumps(kubeconfig))
        yield str(config)


def objects_of(page: str) -> list[Object]:
    """Return the objects that the installations of a page create."""
    installed: list[Release] = []
    for line in LINES:
        if line.words[:2] == ["helm", "install"] and line.place.startswith(f"{page}:") and len(line.words) > 2:
            given = helm().parse_args(line.words[1:])
            installed.append(render(values_of(line, given), given.release))
    return [each for release in installed for each in release.objects]


@pytest.mark.real("kubectl")
@lines_of("kubectl")
def test_kubectl_accepts_the_command(line: Line, tmp_path: Path) -> None:
    """`create` and `apply` run without changing the cluster, and `rollout status` runs. For `port-forward`, which needs
    a pod, only the options are checked. Secrets use files that the reader created before."""
    words = list(line.words)
    Authority().issue(tmp_path, "localhost")
    (tmp_path / "keys.yaml").write_text("keys: []\n")
    asked = ["--help"] if "port-forward" in words else []
    if {"create", "apply"} & {*words}:
        asked = ["--dry-run=client", *(["--validate=false"] if "apply" in words else [])]
    with api_server(objects_of(line.place.partition(":")[0]), tmp_path) as config:
        done = subprocess.run(
            [*words, *asked],
            cwd=tmp_path if "secret" in words else ROOT,
            env={"KUBECONFIG": config, "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=GENEROUS,
        )
    assert done.returncode == 0, done.stderr
    if "rollout" in words:
        assert "successfully rolled out" in done.stdout
    elif asked != ["--help"]:
        assert done.stdout.count("created (dry run)") >= 1


# --- docker ---


@cache
def help_of(*command: str) -> str:
    done = subprocess.run(["docker", *command, "--help"], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 and f"docker {' '.join(command)}" in done.stdout else ""


@pytest.mark.real("docker")
@lines_of("docker")
def test_docker_has_the_options_of_the_command(line: Line) -> None:
    command = line.words[1:2] if line.words[1] != "compose" else ["compose", "up"]
    if not help_of(*command):
        pytest.skip(f"this docker client has no `docker {' '.join(command)}`")
    told = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", help_of(*command) + help_of(command[0]))
    assert [word for word in line.words if word.startswith("-") and word not in told] == []


def test_every_file_that_the_image_copies_is_there_and_not_ignored() -> None:
    readable = ignored(ROOT / "deploy/Dockerfile.dockerignore")
    for value in stages(ROOT / "deploy/Dockerfile")[0].values("COPY"):
        *sources, _ = shlex.split(value)
        for source in sources:
            assert (ROOT / source).exists()
            assert any(Path(source).match(pattern) for pattern in readable), source
