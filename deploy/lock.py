"""`make lock`: the exact packages of the image, each with the hashes of its files.

`requirements.lock` is what runs, `build.lock` what builds the gateway's wheel. uv writes them, because it resolves for
platforms other than its own; pip-tools and `pip lock` resolve for the machine that they run on.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
PYTHON = "3.11"
"""That of the image, and of `make test`."""
LEFT_OUT = {"conformance", "hpc", "progress"}
"""Extras that the image does not have: `gateway conformance` is for those who write a server, and its grpcio takes
19 MB; HyperQueue is for clusters without containers, and there is no wheel of it for ARM; bars are for
notebooks."""
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")


def main() -> None:
    """Write both files anew, with the newest versions that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = sorted(project["project"]["optional-dependencies"].keys() - LEFT_OUT)
    lock("requirements.lock", "pyproject.toml", *(f"--extra={each}" for each in extras))
    lock("build.lock", "-", given="\n".join(project["build-system"]["requires"]))


def lock(name: str, source: str, *options: str, given: str = "") -> None:
    """Write what `source` asks for, `-` being `given`: one list that holds on every platform."""
    lists = {resolved(platform, source, *options, given=given) for platform in PLATFORMS}
    if len(lists) > 1:
        raise SystemExit(f"{name}: {' and '.join(PLATFORMS)} need different packages; one list cannot hold for both")
    (DEPLOY / name).write_text(lists.pop())


def resolved(platform: str, source: str, *options: str, given: str) -> str:
    """The packages that `platform` needs, as wheels only, in the form of pip's requirements with hashes."""
    command = [sys.executable, "-m", "uv", "pip", "compile", source, *options, "--python-version", PYTHON]
    command += ["--python-platform", platform, "--only-binary", ":all:", "--upgrade"]
    command += ["--generate-hashes", "--no-header", "--quiet"]
    return subprocess.run(command, cwd=ROOT, input=given, text=True, stdout=subprocess.PIPE, check=True).stdout


if __name__ == "__main__":
    main()
