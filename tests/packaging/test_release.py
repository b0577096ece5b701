"""`make release`: the version in one place, the chart and the sums as a user checks them, and the workflow that
publishes."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.release import checks, parts
from deploy.release.commands import ReleaseError, run
from deploy.release.version import CHART, CITATION, IN_TEXT, PROJECT, set_version, version
from tests.cli.commands import ROOT

VERSION = version()
FILES = ("deploy", "docs", "config", "README.md", "PACKAGE.md", "mkdocs.yml", "pyproject.toml")
LISTED = subprocess.run(["git", "ls-files", *FILES], cwd=ROOT, capture_output=True, text=True, check=False)
TRACKED = [ROOT / name for name in LISTED.stdout.split()]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with the files that say the version."""
    for name in (PROJECT, CHART, CITATION, *IN_TEXT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def says(path: Path, number: str) -> list[str]:
    """The places of a file that say this version of the project."""
    own = re.compile(rf'(modelglot[: ]|newTag: |[vV]ersion"?(:| =) ?"?){re.escape(number)}(?![.\w])')
    return [line for line in path.read_text(errors="replace").splitlines() if own.search(line)]


def test_a_new_version_is_written_in_all_places(copy: Path) -> None:
    before = {path: says(path, VERSION) for path in copy.rglob("*") if path.is_file()}
    assert all(before.values()), "a file of the list does not say the version"
    set_version("3.4.5rc1", copy)
    assert version(copy) == "3.4.5rc1"
    for path, lines in before.items():
        assert says(path, VERSION) == []
        assert says(path, "3.4.5rc1") == [line.replace(VERSION, "3.4.5rc1") for line in lines]


def test_no_other_file_says_the_version() -> None:
    if not TRACKED:
        pytest.skip("not a git repository: a source archive")
    others = [path for path in TRACKED if str(path.relative_to(ROOT)) not in (PROJECT, CHART, *IN_TEXT)]
    assert {str(path): lines for path in others if (lines := says(path, VERSION))} == {}


@pytest.mark.parametrize("wrong", ["", "1.2", "v1.2.0", "1.2.0-rc.1", "1.2.0+local"])
def test_a_version_that_the_index_or_helm_refuses_is_refused(wrong: str, copy: Path) -> None:
    with pytest.raises(ValueError, match="use three numbers"):
        set_version(wrong, copy)
    assert version(copy) == VERSION


def test_the_chart_is_an_archive_that_renders(tmp_path: Path) -> None:
    [made] = parts.chart(tmp_path)
    assert made.name == f"modelglot-{VERSION}.tgz"
    checks.check_chart(made)


def test_every_component_of_the_bill_of_materials_has_a_licence() -> None:
    own: list[dict[str, object]] = [{"license": {"id": "MIT"}}]
    names = ("protobuf", "fastapi", "typing_extensions")
    components: list[dict[str, object]] = [{"name": name} for name in names]
    components[1]["licenses"] = own
    parts.add_licences({"components": components})
    bsd, psf = ([{"license": {"name": name}}] for name in ("3-Clause BSD License", "PSF-2.0"))
    assert [each["licenses"] for each in components] == [bsd, own, psf]


def test_a_file_that_was_changed_or_added_does_not_pass(tmp_path: Path) -> None:
    files = [tmp_path / "a.whl", tmp_path / "b.tgz"]
    for each in files:
        each.write_bytes(each.name.encode())
    parts.checksums(tmp_path, files)
    checks.check_sums(tmp_path)
    sums = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=False)
    assert sums.returncode == 0
    files[0].write_bytes(b"other")
    with pytest.raises(ReleaseError, match="content of a file"):
        checks.check_sums(tmp_path)
    files[0].write_bytes(b"a.whl")
    (tmp_path / "c.whl").write_bytes(b"")
    with pytest.raises(ReleaseError, match=r"c\.whl"):
        checks.check_sums(tmp_path)


def test_a_build_that_fails_says_what_the_program_printed() -> None:
    with pytest.raises(ReleaseError, match=r"ended with 3:\nwhy"):
        run(["sh", "-c", "echo why >&2; exit 3"])


# --- the workflow ---

TEXT = (ROOT / ".github/workflows/release.yml").read_text()
JOBS = yaml.safe_load(TEXT)["jobs"]


def test_only_a_tag_publishes_and_everything_waits_for_the_checks() -> None:
    assert yaml.safe_load(TEXT)[True] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+*"]}}  # YAML 1.1 reads `on` as true
    assert "make release" in [step.get("run") for step in JOBS["build"]["steps"]]
    needs = {name: job.get("needs") for name, job in JOBS.items()}
    assert needs == {"build": None, "package": "build", "image": "build", "notes": ["package", "image"]}


def test_each_job_may_do_what_it_is_for_and_nothing_more() -> None:
    assert yaml.safe_load(TEXT)["permissions"] == {"contents": "read"}
    assert {name: job.get("permissions") for name, job in JOBS.items()} == {
        "build": None,
        "package": {"id-token": "write"},
        "image": {"id-token": "write", "packages": "write"},
        "notes": {"contents": "write"},
    }


def test_no_secret_is_stored_and_no_registry_is_fixed() -> None:
    assert set(re.findall(r"secrets\.(\w+)", TEXT)) == {"GITHUB_TOKEN"}
    assert "vars.REGISTRY" in TEXT
