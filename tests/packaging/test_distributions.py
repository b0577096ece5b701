"""What is published: the archives' content, and the wheel in an environment of its own."""

import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from email.parser import Parser
from pathlib import Path

import pytest

from tests.cli.commands import ROOT
from tests.interop.exchanges import post
from tests.interop.processes import Process, clean_environment
from tests.limits import GENEROUS
from tests.packaging.index import PIP, require_index

pytestmark = pytest.mark.long

LEFT_OUT = shutil.ignore_patterns(
    *(".git", ".venv*", ".peers", ".*_cache", ".coverage", ".hypothesis"),
    *("__pycache__", "*.egg-info", "build", "dist"),
)
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
STEM = f"modelglot-{VERSION}"
LICENSE = (ROOT / "LICENSE").read_text()
README = (ROOT / "README.md").read_text()
DEMO = (ROOT / "config/gateway.yaml").read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive of a copy of the repository, and the wheel that is built from that archive."""
    source = shutil.copytree(ROOT, tmp_path_factory.mktemp("source") / "repository", ignore=LEFT_OUT)
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture(scope="module")
def archive(built: Path) -> Iterator[tarfile.TarFile]:
    with tarfile.open(built / f"{STEM}.tar.gz") as opened:
        yield opened


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return built / f"{STEM}-py3-none-any.whl"


def tracked(folder: str) -> set[str]:
    """The files of a folder of the repository."""
    found = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(ROOT)) for path in found}


def test_the_source_archive_has_the_package_and_what_is_written_for_its_readers(archive: tarfile.TarFile) -> None:
    has = {name.removeprefix(f"{STEM}/") for name in archive.getnames()}
    for folder in ("gateway", "config", "deploy", "docs", "protos", "tests"):
        assert tracked(folder) - has == set()
    texts = {f"{name}.md" for name in ("README", "PACKAGE", "CHANGELOG", "CONTRIBUTING", "SECURITY")}
    assert texts | {"CITATION.cff", "LICENSE", "pyproject.toml", "Makefile", "mkdocs.yml"} <= has
    tops = {name.partition("/")[0] for name in has if "/" in name}
    assert tops == {"gateway", "config", "deploy", "docs", "protos", "tests", ".github", "modelglot.egg-info"}


def test_the_page_of_an_index_has_no_link_that_needs_the_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        metadata = Parser().parsestr(opened.read(f"{STEM}.dist-info/METADATA").decode())
    shown = metadata.get_payload()
    assert isinstance(shown, str)
    assert "# Modelglot" in shown
    assert [link for link in re.findall(r"\]\(([^)]+)\)", shown) if not link.startswith("https://")] == []
    assert metadata["Author"] == "The authors of Modelglot"


def test_the_default_configuration_is_a_file_and_no_link_in_the_source_archive(archive: tarfile.TarFile) -> None:
    for name in ("gateway/demo.yaml", "config/gateway.yaml"):
        file = archive.extractfile(f"{STEM}/{name}")
        assert file is not None
        assert file.read().decode() == DEMO


def test_the_wheel_has_the_package_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        has = {name for name in opened.namelist() if not name.startswith(f"{STEM}.dist-info/")}
        assert has == tracked("gateway")
        assert opened.read(f"{STEM}.dist-info/licenses/LICENSE").decode() == LICENSE
        metadata = Parser().parsestr(opened.read(f"{STEM}.dist-info/METADATA").decode())
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")


def test_the_license_is_the_whole_of_apache_2() -> None:
    assert "Version 2.0, January 2004" in LICENSE
    for number in range(1, 10):
        assert f"\n   {number}. " in LICENSE
    assert "END OF TERMS AND CONDITIONS" in LICENSE


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a new environment, in which nothing but the wheel was asked for."""
    require_index()
    home = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    subprocess.run([*PIP, "--python", str(home / "bin/python"), "install", "--no-compile", str(wheel)], check=True)
    return home / "bin"


def run(installed: Path, folder: Path, *arguments: str) -> str:
    command = [str(installed / "gateway"), *arguments]
    done = subprocess.run(command, cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.real
def test_an_installed_gateway_tells_its_version(installed: Path, tmp_path: Path) -> None:
    assert run(installed, tmp_path, "--version") == f"gateway {VERSION}\n"


@pytest.mark.real
def test_an_installed_gateway_has_a_configuration_that_is_right(installed: Path, tmp_path: Path) -> None:
    printed = run(installed, tmp_path, "demo", "--print")
    assert printed == DEMO
    (tmp_path / "own.yaml").write_text(printed)
    assert run(installed, tmp_path, "check", "--config", "own.yaml") == ""


def require_free(ports: Iterable[str]) -> None:
    """The demo's ports are fixed: skip the test where something else has one of them."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", int(port)))
            except OSError:
                pytest.skip(f"port {port}, which the demo takes, is taken on this machine")


@pytest.mark.real
def test_an_installed_gateway_serves_the_demo(installed: Path, tmp_path: Path) -> None:
    require_free(re.findall(r'"\S*127\.0\.0\.1:(\d+)"', DEMO))
    process = Process([str(installed / "gateway"), "demo"], tmp_path, clean_environment())
    process.wait_until(lambda: "\nready" in process.stdout(), seconds=GENEROUS)
    try:
        theta = {"name": "input0", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}
        status, answer = post("http://127.0.0.1:8080", "/v2/models/posterior/infer", inputs=[theta])
    finally:
        ended = process.stop(seconds=GENEROUS)
    assert (status, answer["outputs"][0]["data"], ended) == (200, [-5.0], 0)
    (shown,) = re.findall(r"^```\n(listener http .*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert process.stdout().split() == shown.split()
