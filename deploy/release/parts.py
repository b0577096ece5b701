"""Builds the parts of a release into a folder. Each function returns the files that it wrote."""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import helm_python

from deploy import notices
from deploy.lock import LEFT_OUT
from deploy.release.version import ROOT, version

ENGINES = ("docker", "podman", "buildah")
"""Programs that build the Dockerfile, the first one that works is taken."""
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")


class ReleaseError(Exception):
    """A part could not be built, or is not as it should be."""


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
    engine = next((each for each in ENGINES if _works(each)), None)
    if engine is None:
        print(f"no image: none of {', '.join(ENGINES)} runs here")
        return []
    tag, made = f"modelglot:{version()}", to / f"modelglot-{version()}-image.tar"
    build = [engine, "build", "--file", "deploy/Dockerfile", "--tag", tag]
    if engine != "docker":
        build += ["--format", "docker"]  # OCI's form has no HEALTHCHECK
    run([*build, "."], cwd=ROOT)
    save = (
        [engine, "push", tag, f"docker-archive:{made}"]
        if engine == "buildah"
        else [engine, "save", "-o", str(made), tag]
    )
    run(save, cwd=ROOT)
    packed = made.with_suffix(".tar.gz")
    with made.open("rb") as plain, gzip.GzipFile(packed, "wb", mtime=0) as compressed:
        shutil.copyfileobj(plain, compressed)
    made.unlink()
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
    table = to / notices.NOTICES.name
    shutil.copyfile(notices.NOTICES, table)
    return [made, table]


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


def run(command: list[str], cwd: Path | None = None, *, epoch: bool = False) -> str:
    """What a command prints. `epoch`: it writes the time of the last commit, not the time of the build.

    Raises:
        ReleaseError: it failed; the text has all that it printed.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    if epoch:
        environment.setdefault("SOURCE_DATE_EPOCH", _last_commit())
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def _last_commit() -> str:
    """Seconds since 1970; 315532800, the first time that a zip file can have, outside a repository."""
    try:
        return subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "315532800"


def _works(engine: str) -> bool:
    if shutil.which(engine) is None:
        return False
    return subprocess.run([engine, "info"], capture_output=True, check=False).returncode == 0
