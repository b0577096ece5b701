"""Tests are where one looks: in the folder that has the name of the part, or in one that tests/README.md tells of."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "tests/README.md").read_text("utf-8")
PARTS = sorted({file.parent.relative_to(ROOT / "gateway") for file in (ROOT / "gateway").rglob("[!_]*.py")} - {Path()})
"""The folders of the package that have modules."""
MODULES = [file.stem for file in sorted((ROOT / "gateway").glob("[a-z]*.py"))]


def has_tests(folder: Path) -> bool:
    return any(folder.glob("test_*.py"))


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_every_folder_of_the_package_has_tests_in_a_folder_of_its_name(part: Path) -> None:
    """A folder within one of these may be tested in the outer folder."""
    rooms = [part, *part.parents][:-1]
    assert any(has_tests(ROOT / "tests" / room) for room in rooms), f"there is no tests/{part}/test_*.py"


@pytest.mark.parametrize("module", MODULES)
def test_every_module_beside_them_has_a_test_of_its_name(module: str) -> None:
    assert (ROOT / "tests" / f"test_{module}.py").exists()


def test_the_readme_tells_of_every_other_folder_and_every_shared_file() -> None:
    folders = [path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name[0] not in "_."]
    others = {f"tests/{name}" for name in folders if not (ROOT / "gateway" / name).is_dir()}
    shared = {f"tests/{path.name}" for path in (ROOT / "tests").glob("[a-z]*.py") if not path.name.startswith("test_")}
    told = set(re.findall(r"`(tests/\w+(?:\.py)?)", README))
    assert (others | shared) - told - {"tests/conftest.py"} == set()
