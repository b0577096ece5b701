"""The version stands in pyproject.toml. `make version V=1.2.0` sets it there, and in the files that repeat it."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "pyproject.toml"
CHART = "deploy/helm/modelglot/Chart.yaml"
CITATION = "CITATION.cff"
IN_TEXT = (
    "deploy/Dockerfile",
    "deploy/compose.yaml",
    "deploy/examples/servers.yaml",
    "deploy/examples/sidecar.yaml",
    "deploy/helm/modelglot/ci/keda-values.yaml",
    "deploy/kserve/front/kustomization.yaml",
    "deploy/kserve/sidecar/kustomization.yaml",
    "docs/console.md",
    "docs/deploy.md",
    "docs/openapi.md",
    "docs/record-and-replay.md",
)
"""Files with the version in a name of the image (`modelglot:V`, `newTag: V`), or in what the gateway prints."""
FORM = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+((a|b|rc)[0-9]+)?")
"""Versions that both an index of packages and Helm take."""


def version(root: Path = ROOT) -> str:
    """The version of the project in the folder `root`."""
    read: str = tomllib.loads((root / PROJECT).read_text())["project"]["version"]
    return read


def set_version(new: str, root: Path = ROOT) -> None:
    """Write `new` in all places of the project in the folder `root`.

    Raises:
        ValueError: it is no version such as 1.2.0 or 1.2.0rc1.
    """
    if not FORM.fullmatch(new):
        raise ValueError(f"{new!r} is no version: use three numbers, such as 1.2.0, or 1.2.0rc1")
    old = version(root)
    _replace(root / PROJECT, f'version = "{old}"', f'version = "{new}"')
    _replace(root / CHART, f"\nversion: {old}\n", f"\nversion: {new}\n")
    _replace(root / CITATION, f"\nversion: {old}\n", f"\nversion: {new}\n")
    _replace(root / CHART, f'appVersion: "{old}"', f'appVersion: "{new}"')
    for name in IN_TEXT:
        path = root / name
        path.write_text(re.sub(mentions(old), lambda found: found[0].replace(old, new), path.read_text()))


def mentions(of: str) -> re.Pattern[str]:
    """Finds where a text says a version as the project's own."""
    return re.compile(rf'(modelglot:|newTag: |"Modelglot[^"]*","version":"|modelglot ){re.escape(of)}(?![.\w])')


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if text.count(old) != 1:
        raise ValueError(f"{path}: {old.strip()!r} is expected once, and is there {text.count(old)} times")
    path.write_text(text.replace(old, new))


if __name__ == "__main__":
    set_version(sys.argv[1])
