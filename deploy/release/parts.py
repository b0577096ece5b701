"""Builds the parts of a release into a folder. Each function returns the files that it wrote."""

import gzip
import hashlib
import json
import re
import shutil
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import helm_python

from deploy import notices
from deploy.lock import LEFT_OUT
from deploy.release import engines
from deploy.release.commands import run
from deploy.release.version import ROOT, version

PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
COMPRESSION = 6
"""Of the image: 9 takes four times as long, for 1 % less."""


def archives(to: Path) -> list[Path]:
    """The source archive, and the wheel that is built from it. Both have the time of the last commit, so that the same
    commit gives the same bytes."""
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(to), "."], cwd=ROOT, epoch=True)
    stem = f"modelglot-{version()}"
    return [to / f"{stem}.tar.gz", to / f"{stem}-py3-none-any.whl"]


def chart(to: Path) -> list[Path]:
    """The chart as an archive that `helm install` takes."""
    made = Path(helm_python.package(ROOT / "deploy/helm/modelglot", destination=to))
    return [made]


def image(to: Path) -> list[Path]:
    """The image as `docker load` takes it; no file where no container engine runs."""
    engine = engines.working()
    if engine is None:
        print(f"no image: none of {', '.join(each.program for each in engines.ENGINES)} runs here")
        return []
    engine.build()
    packed = to / f"modelglot-{version()}-image.tar.gz"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "image.tar")
        engine.save(made)
        with made.open("rb") as plain, gzip.GzipFile(packed, "wb", COMPRESSION, mtime=0) as compressed:
            shutil.copyfileobj(plain, compressed)
    return [packed]


def bill_of_materials(to: Path, wheel: Path) -> list[Path]:
    """The packages of the image with versions and licences, in CycloneDX's JSON: those of an environment in which the
    wheel is installed with the exact versions of `deploy/requirements.lock`. Their licences as a table, too."""
    extras = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    chosen = ",".join(each for each in extras if each not in LEFT_OUT)
    made = to / f"modelglot-{version()}.cdx.json"
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder))
        install(python, "--requirement", str(ROOT / "deploy/requirements.lock"), "--require-hashes")
        install(python, "--no-deps", f"{wheel}[{chosen}]")
        run([str(python), *PIP, "uninstall", "--yes", "pip", "setuptools"])
        command = [str(Path(sys.executable).parent / "cyclonedx-py"), "environment", str(python)]
        command += ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--output-file", str(made)]
        run(command, epoch=True)
    document = json.loads(made.read_text())
    add_licences(document)
    made.write_text(json.dumps(document, indent=2) + "\n")
    table = to / notices.NOTICES.name
    shutil.copyfile(notices.NOTICES, table)
    return [made, table]


def add_licences(document: dict[str, Any]) -> None:
    """Give the components of a bill of materials that have no licence that of the table: some packages tell theirs in
    a way that the program which writes the bill does not read."""
    told = notices.told()
    for component in document["components"]:
        if not component.get("licenses"):
            name = re.sub(r"[-_.]+", "-", component["name"]).lower()
            component["licenses"] = [{"license": {"name": told[name]}}]


def checksums(to: Path, files: list[Path]) -> Path:
    """SHA256SUMS, as `sha256sum --check` reads it."""
    made = to / "SHA256SUMS"
    made.write_text(
        "".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in sorted(files))
    )
    return made


def environment(folder: Path) -> Path:
    """The Python of a new environment in `folder`."""
    run([sys.executable, "-m", "venv", str(folder)])
    return folder / "bin/python"


def install(python: Path, *what: str) -> None:
    """Install packages with pip into the environment of `python`."""
    run([str(python), *PIP, "install", *what])


def unpack(archive: Path, to: Path) -> Path:
    """The only folder in an archive, unpacked below `to`."""
    with tarfile.open(archive) as opened:
        opened.extractall(to, filter="data")
    [folder] = to.iterdir()
    return folder
