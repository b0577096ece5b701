"""The image: what its Dockerfile says, and what comes of doing it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy import lock, notices
from tests.cli.commands import ROOT
from tests.deploy.dockerfile import Machine, ignored, stages
from tests.interop.exchanges import post
from tests.interop.processes import eventually, free_port
from tests.limits import GENEROUS
from tests.packaging.index import PIP, require_index

DEPLOY = ROOT / "deploy"
STAGES = stages(DEPLOY / "Dockerfile")
FINAL = STAGES[-1]
USER = 65532
TAGS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
"""Of wheels that the base image's C library, 2.36, loads."""

CONFIG = """
listeners:
  - {{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest]}}
health: {{bind: "127.0.0.1:{health}"}}
reference: [{{protocol: umbridge, bind: "127.0.0.1:{model}", models: [posterior]}}]
backends: {{science: {{protocol: umbridge, endpoints: ["http://127.0.0.1:{model}"]}}}}
routes: [{{match: {{model: "*"}}, backend: science}}]
"""


def locked(name: str) -> dict[str, str]:
    """The packages of a lock file, with their versions."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (DEPLOY / name).read_text(), re.MULTILINE))


# --- what it says ---


def test_its_base_is_a_pinned_slim_one_of_the_python_that_the_lock_is_for() -> None:
    assert {stage.base for stage in STAGES} == {f"python:{lock.PYTHON}.15-slim-bookworm"}


def test_it_runs_as_a_user_without_rights() -> None:
    assert FINAL.last("USER") == f"{USER}:{USER}"


def test_nothing_is_installed_in_the_final_stage() -> None:
    """So no compiler either: all that it adds to the slim base is one folder of the stage before."""
    assert FINAL.values("RUN") == []
    assert FINAL.values("COPY") == ["--from=build /opt/gateway /opt/gateway"]


def test_nothing_is_compiled_and_nothing_unlocked_is_installed() -> None:
    installs = [run for run in STAGES[0].values("RUN") if re.search(r"\bpip\b.* (install|wheel) ", run)]
    assert len(installs) == 4
    for run in installs:
        from_lock = "--require-hashes --only-binary=:all: --requirement" in run
        own_alone = "--no-deps" in run and ("--no-index" in run or "--no-build-isolation" in run)
        assert from_lock or own_alone


def test_it_starts_the_gateway_on_the_mounted_configuration() -> None:
    assert FINAL.words("ENTRYPOINT") == ["gateway"]
    assert FINAL.words("CMD") == ["serve", "--config", "/etc/gateway/gateway.yaml"]


# --- the lock ---


def test_the_lock_has_what_pyproject_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [each for name, each in project["optional-dependencies"].items() if name not in lock.LEFT_OUT]
    asked = [*project["dependencies"], *(each for extra in extras for each in extra)]
    versions = locked("requirements.lock")
    for requirement in asked:
        name, lowest = re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
        assert _numbers(versions[name.lower()]) >= _numbers(lowest), f"{requirement}: `make lock` writes the lock anew"


def test_the_lock_has_nothing_of_the_extras_that_the_image_leaves_out() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    left_out = {re.split(r"[>=;]", each)[0].lower() for name in lock.LEFT_OUT for each in extras[name]}
    assert left_out
    assert not left_out & set(locked("requirements.lock"))


def test_the_licences_of_all_packages_are_told() -> None:
    """`make lock` writes them."""
    shown = re.findall(r"^\| ([a-z0-9-]+) \| (\d\S*) \| \S.* \|$", notices.NOTICES.read_text(), re.MULTILINE)
    assert dict(shown) == locked("requirements.lock")


def test_a_package_tells_its_licence_in_its_metadata() -> None:
    assert notices.licence("pytest") == "MIT"
    assert notices.licence("no-such-package") == ""


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


@pytest.mark.real
@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_every_locked_package_is_a_wheel_for(architecture: str, tmp_path: Path) -> None:
    require_index()
    platforms = [word for tag in TAGS for word in ("--platform", f"{tag}_{architecture}")]
    for name in ("requirements.lock", "build.lock"):
        command = [*PIP, "download", "--require-hashes", "--only-binary=:all:", "--no-deps", "--dest", str(tmp_path)]
        command += ["--python-version", lock.PYTHON, "--implementation", "cp", *platforms]
        done = subprocess.run([*command, "--requirement", str(DEPLOY / name)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    wheels = {path.name.partition("-")[0].lower().replace("_", "-") for path in tmp_path.glob("*.whl")}
    assert wheels == {*locked("requirements.lock"), *locked("build.lock")}


# --- what comes of it ---


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are for the one who runs it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def image(home: Path) -> Machine:
    """What the Dockerfile's steps make, in a folder."""
    require_index()
    if os.geteuid() != 0:
        pytest.skip("only root can become the image's user")
    base = _base(home / "base")
    machine = Machine(ROOT, ignored(DEPLOY / "Dockerfile.dockerignore"), home, base)
    machine.carry_out(STAGES)
    return machine


def _base(folder: Path) -> Path:
    """The programs of an environment with pip, of a Python of the image's version that its user may run."""
    named = f"python{lock.PYTHON}"
    for python in (f"{sys.base_prefix}/bin/{named}", shutil.which(named, path="/usr/local/bin:/usr/bin")):
        if python and Path(python).exists() and _may_run(python):
            subprocess.run([python, "-m", "venv", str(folder)], check=True)
            return folder / "bin"
    pytest.skip(f"user {USER}, whom the image runs as, may run no Python {lock.PYTHON} of this machine")


def _may_run(python: str) -> bool:
    try:
        done = subprocess.run([python, "-c", "import ensurepip, ssl"], cwd="/", capture_output=True, **AS_USER)
    except OSError:
        return False
    return bool(done.returncode == 0)


AS_USER: Any = {"user": USER, "group": USER, "extra_groups": ()}


@dataclass
class Served:
    """The container's process, and the ports of its configuration."""

    process: "subprocess.Popen[str]"
    http: int
    health: int
    environment: dict[str, str]
    before: dict[str, int]


def files(root: Path) -> dict[str, int]:
    """Every file, with the time of its last change."""
    return {str(path): path.lstat().st_mtime_ns for path in root.rglob("*")}


@pytest.fixture(scope="module")
def served(image: Machine) -> Iterator[Served]:
    """The image's command as its user, with a root that nobody writes to."""
    http, health, model = free_port(), free_port(), free_port()
    file = image.inside("/etc/gateway/gateway.yaml")
    file.parent.mkdir(parents=True)
    file.write_text(CONFIG.format(http=http, health=health, model=model))
    settled = FINAL.environment() | {"GATEWAY_HEALTH": f"http://127.0.0.1:{health}/healthz"}
    environment = image.environment(settled)
    command = [image.translated(word) for word in (*FINAL.words("ENTRYPOINT"), *FINAL.words("CMD"))]
    before = files(image.root)
    with subprocess.Popen(
        command, cwd="/", env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **AS_USER
    ) as process:
        try:
            assert process.stdout is not None
            lines = list(iter(process.stdout.readline, "ready\n"))
            assert lines[-1] != "", lines
            yield Served(process, http, health, environment, before)
        finally:
            process.kill()


@pytest.mark.real
@pytest.mark.timeout(1200)  # the image is made first, with packages from an index
def test_its_user_has_no_rights_and_owns_nothing(served: Served, image: Machine) -> None:
    status = dict(re.findall(r"^(\w+):\t(.*)$", Path(f"/proc/{served.process.pid}/status").read_text(), re.MULTILINE))
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(USER)}
    assert (status["Groups"].split(), int(status["CapEff"], 16)) == ([], 0)
    for path in image.root.rglob("*"):
        assert path.lstat().st_uid != USER
        assert path.is_symlink() or not path.lstat().st_mode & 0o022, f"{path} can be written by anyone"


@pytest.mark.real
def test_it_serves(served: Served) -> None:
    theta = {"name": "input0", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}
    status, answer = post(f"http://127.0.0.1:{served.http}", "/v2/models/posterior/infer", inputs=[theta])
    assert (status, answer["outputs"][0]["data"]) == (200, [-5.0])


@pytest.mark.real
def test_it_has_every_extra(served: Served) -> None:
    code = "import PIL, cramjam, google_crc32c"
    assert subprocess.run(["python", "-c", code], cwd="/", env=served.environment, **AS_USER).returncode == 0


def healthy(served: Served, **changes: str) -> bool:
    command = FINAL.healthcheck()
    done = subprocess.run(command, cwd="/", env=served.environment | changes, capture_output=True, **AS_USER)
    return bool(done.returncode == 0)


@pytest.mark.real
def test_its_healthcheck_asks_the_gateway(served: Served) -> None:
    assert healthy(served)
    assert not healthy(served, GATEWAY_HEALTH=f"http://127.0.0.1:{served.http}/healthz")
    assert not healthy(served, GATEWAY_HEALTH=f"http://127.0.0.1:{free_port()}/healthz")


def test_what_the_healthcheck_asks_without_change_is_the_port_that_is_exposed() -> None:
    port = FINAL.environment()["GATEWAY_HEALTH"].removeprefix("http://127.0.0.1:").removesuffix("/healthz")
    assert port in FINAL.last("EXPOSE").split()


@pytest.mark.real
def test_its_root_may_be_read_only(served: Served, image: Machine) -> None:
    """After all of the above, and a stop: no file is new, changed or gone."""
    with urllib.request.urlopen(f"http://127.0.0.1:{served.health}/readyz", timeout=GENEROUS) as reply:
        assert reply.status == 200
    served.process.terminate()
    assert eventually(lambda: served.process.poll() is not None, seconds=GENEROUS)
    assert served.process.returncode == 0
    assert files(image.root) == served.before
