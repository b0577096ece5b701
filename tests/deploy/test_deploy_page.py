"""docs/deploy.md can be followed: its files are there, its names are those that the chart makes, and its calls print
what it shows."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.deploy.pods import running
from tests.deploy.rendered import CHART, EXAMPLES, NAMESPACE, ROOT, SERVERS, Release, needed, render, servers
from tests.limits import GENEROUS

PAGE = (ROOT / "docs" / "deploy.md").read_text()
INSTALL = re.compile(r"helm (?:install|upgrade) (\S+) (\S+) -n (\S+) -f (\S+)")


@dataclass(frozen=True)
class Use:
    """One section of the page that installs something."""

    text: str

    @property
    def release(self) -> Release:
        ((name, _, _, file),) = INSTALL.findall(self.text)
        return render((ROOT / file).read_text(), name)

    @property
    def commands(self) -> Iterator[tuple[str, str]]:
        """Each curl, on one or more lines, and what it prints."""
        for block in re.findall(r"^```\n(\$ .*?)^```$", self.text, re.MULTILINE | re.DOTALL):
            for example in block.split("$ ")[1:]:
                *command, printed = example.strip().splitlines()
                yield "\n".join(command), printed


SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)
USES = {section.splitlines()[0]: Use(section) for section in SECTIONS if "helm test" in section}


def test_the_page_has_the_uses_each_with_a_file() -> None:
    files = {file for use in USES.values() for _, _, _, file in INSTALL.findall(use.text)}
    assert files == {str(path.relative_to(ROOT)) for path in EXAMPLES.glob("*.yaml") if path != SERVERS}


def test_every_installation_is_of_this_chart_into_the_namespace_that_the_page_creates() -> None:
    for _, chart, namespace, file in INSTALL.findall(PAGE):
        assert (ROOT / chart) == CHART
        assert namespace == NAMESPACE
        assert (ROOT / file).exists()
    assert f"kubectl create namespace {NAMESPACE}" in PAGE


@pytest.mark.parametrize("title", USES)
def test_what_kubectl_is_told_is_there(title: str) -> None:
    use = USES[title]
    names = {f"{each['kind'].lower()}/{each['metadata']['name']}" for each in use.release.objects}
    assert set(re.findall(r"(?:deployment|service)/[a-z-]+", use.text)) <= names
    ((name, *forwards),) = [line.split() for line in re.findall(r"port-forward service/(.*)", use.text)]
    assert name == use.release.name
    assert forwards == [f"{each['port']}:{each['port']}" for each in use.release.service["spec"]["ports"]]
    assert f"helm test -n {NAMESPACE} {name.removesuffix('-modelglot')} --logs" in use.text


def test_the_image_is_the_chart_s() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    image = f"{values['image']['repository']}:{version}"
    assert f"docker build -t {image} -f deploy/Dockerfile ." in PAGE
    for each in servers():
        for container in each["spec"].get("template", {}).get("spec", {}).get("containers", []):
            assert container["image"] == image
    for path in EXAMPLES.glob("*.yaml"):
        assert set(re.findall(r"image: (modelglot:\S+)", path.read_text())) <= {image}


@pytest.mark.real("curl")
@pytest.mark.parametrize("title", USES)
def test_each_call_prints_what_the_page_shows(title: str, tmp_path: Path) -> None:
    use = USES[title]
    release = use.release
    with running(release, needed(release), tmp_path) as (_, gateway):
        commands = list(use.commands)
        assert commands
        for shown, printed in commands:
            command = shown
            for port in gateway.container["ports"]:
                command = command.replace(f"127.0.0.1:{port['containerPort']}", gateway.address(port["name"]))
            done = subprocess.run(
                ["sh", "-c", command], stdout=subprocess.PIPE, text=True, timeout=GENEROUS, check=True
            )
            assert done.stdout.rstrip("\n") == printed
