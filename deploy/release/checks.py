"""Checks the parts of a release as somebody has them who downloaded them: in empty environments, without the clone."""

import gzip
import hashlib
import json
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar, cast

import helm_python
import yaml

from deploy.release import engines
from deploy.release.commands import ReleaseError, run
from deploy.release.parts import environment, install, unpack
from deploy.release.version import version

TESTS = ("tests/core", "tests/specification")
"""Of the source archive: those that need no real clients and servers, and take seconds."""
START_SECONDS = 60
CONFIG = """\
listeners: [{{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest]}}]
health: {{bind: "127.0.0.1:{health}"}}
reference: [{{protocol: umbridge, bind: "127.0.0.1:{model}", models: [posterior]}}]
backends: {{science: {{protocol: umbridge, endpoints: ["http://127.0.0.1:{model}"]}}}}
routes: [{{match: {{model: "*"}}, backend: science}}]
"""
BODY = {"inputs": [{"name": "input0", "datatype": "FP64", "shape": [1, 2], "data": [1.0, 2.0]}]}
USER = "65532"
"""Of the image, and its group."""
Answer = TypeVar("Answer")


def check(to: Path) -> None:
    """Check all that a release folder has.

    Raises:
        ReleaseError: a part is missing, broken, or does not do what it is for.
    """
    check_sums(to)
    stem = f"modelglot-{version()}"
    check_wheel(to / f"{stem}-py3-none-any.whl")
    check_source(to / f"{stem}.tar.gz")
    check_chart(to / f"{stem}.tgz")
    check_bill_of_materials(to / f"{stem}.cdx.json")
    if (engine := engines.working()) is not None:
        check_image(to / f"{stem}-image.tar.gz", engine)


def check_sums(to: Path) -> None:
    """SHA256SUMS names every other file of the folder, with its sum."""
    lines = [line.partition("  ") for line in (to / "SHA256SUMS").read_text().splitlines()]
    told = {name: digest for digest, _, name in lines}
    found = {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in to.iterdir() if each.name != "SHA256SUMS"
    }
    if told != found:
        raise ReleaseError(f"SHA256SUMS does not fit {sorted(set(told) ^ set(found)) or 'the content of a file'}")


def check_wheel(wheel: Path) -> None:
    """Installed by itself it tells its version, serves, and its client calls."""
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder, "venv"))
        install(python, str(wheel))
        check_installed(python, Path(folder))


def check_source(archive: Path) -> None:
    """It can be installed, and the tests in it pass with the gateway in it."""
    with tempfile.TemporaryDirectory() as folder:
        source = unpack(archive, Path(folder, "source"))
        python = environment(Path(folder, "venv"))
        install(python, "--upgrade", "pip>=25.1")  # the first one that knows groups
        install(python, str(archive), "--group", f"{source / 'pyproject.toml'}:dev")
        check_installed(python, Path(folder))
        run([str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS], cwd=source)


def check_chart(archive: Path) -> None:
    """It has the version, and renders objects with its default values."""
    chart = helm_python.Chart.load(archive)
    rendered = chart.render({}, name="models", namespace="inference")
    objects = [
        each for name, text in rendered.items() if not name.endswith(".txt") for each in yaml.safe_load_all(text)
    ]
    kinds = {each["kind"] for each in objects if each}
    if not {"Deployment", "Service", "ConfigMap"} <= kinds:
        raise ReleaseError(f"{archive.name} renders only {sorted(kinds)}")
    with tempfile.TemporaryDirectory() as folder:
        about = yaml.safe_load((unpack(archive, Path(folder)) / "Chart.yaml").read_text())
    if (about["version"], about["appVersion"]) != (version(), version()):
        raise ReleaseError(f"{archive.name} says version {about['version']}, appVersion {about['appVersion']}")


def check_bill_of_materials(path: Path) -> None:
    """It names the gateway and its version, and a version and a licence of each package."""
    document = json.loads(path.read_text())
    about = document["metadata"]["component"]
    if (about["name"], about["version"]) != ("modelglot", version()):
        raise ReleaseError(f"{path.name} is of {about['name']} {about['version']}")
    others = [each for each in document["components"] if each["name"] != "modelglot"]
    bare = [each["name"] for each in others if not (each.get("version") and each.get("licenses"))]
    if bare or not {"numpy", "uvloop"} <= {each["name"] for each in others}:
        raise ReleaseError(f"{path.name}: {len(others)} packages, without a version or a licence: {bare}")


def check_image(archive: Path, engine: engines.Docker) -> None:
    """Loaded into the engine, it serves as a user without rights, from a root that is read-only where the engine has
    that; its health check passes, and it answers a V2 request with a UM-Bridge model."""
    container = f"modelglot-release-{os.getpid()}"
    with tempfile.TemporaryDirectory() as name:
        folder, plain = Path(name), Path(name, "image.tar")
        # Unpacked here, because Podman 4.3 and Buildah 1.28 of Debian 12 take a compressed archive for a broken one.
        with gzip.open(archive) as packed, plain.open("wb") as to:
            shutil.copyfileobj(packed, to)
        health = _health_check(plain)
        ports = _configured(folder)
        (folder / "gateway.yaml").chmod(0o644)  # for the image's user, whatever the umask
        engine.create(container, plain, folder / "gateway.yaml")
        inside = engine.inside(container)
        try:
            with _serving(engine.serve(container), folder):
                url = f"GATEWAY_HEALTH=http://127.0.0.1:{ports['health']}/healthz"
                _eventually(lambda: run([*inside, "env", url, *health]))
                _check_inside(inside, ports["http"])
        finally:
            engine.remove(container)


def _health_check(image: Path) -> list[str]:
    """The command of HEALTHCHECK in an archive of Docker's form. Its image must have the name that we tell users."""
    with tarfile.open(image) as opened:
        [manifest] = json.load(cast(IO[bytes], opened.extractfile("manifest.json")))
        config = json.load(cast(IO[bytes], opened.extractfile(manifest["Config"])))["config"]
    names = [each.removeprefix("docker.io/library/") for each in manifest["RepoTags"]]
    if names != [f"modelglot:{version()}"]:
        raise ReleaseError(f"the image is called {names}; expected modelglot:{version()}")
    command: list[str]
    kind, *command = config.get("Healthcheck", {}).get("Test", ["NONE"])
    if kind != "CMD":
        raise ReleaseError(f"the image's health check is {kind}; the Dockerfile has one of the kind CMD")
    return command


def _check_inside(inside: list[str], http: int) -> None:
    """By commands in the container: the version, `check`, the process's rights, and an answer."""
    told = run([*inside, "gateway", "--version"]).strip()
    if told != f"gateway {version()}":
        raise ReleaseError(f"gateway --version in the image says {told!r}")
    run([*inside, "gateway", "check", "--config", engines.CONFIGURATION])
    rights = run([*inside, "grep", "-E", "^(Uid|Gid|CapEff):", "/proc/self/status"]).split()
    if rights != ["Uid:", *[USER] * 4, "Gid:", *[USER] * 4, "CapEff:", "0" * 16]:
        raise ReleaseError(f"the image runs with {' '.join(rights)}; expected user {USER} without capabilities")
    call = ["gateway", "call", f"v2-rest://127.0.0.1:{http}", "posterior", "--set", "input0=[[1,2]]"]
    found = json.loads(run([*inside, *call]))["outputs"][0]["data"]
    if found != [-5.0]:
        raise ReleaseError(f"the gateway in the image answered {found}; expected [-5.0]")


def check_installed(python: Path, folder: Path) -> None:
    """The installed gateway tells its version, and answers a V2 request with a UM-Bridge model."""
    program = python.parent / "gateway"
    told = run([str(program), "--version"], cwd=folder).strip()
    if told != f"gateway {version()}":
        raise ReleaseError(f"{program} --version says {told!r}")
    ports = _configured(folder)
    run([str(program), "check", "--config", "gateway.yaml"], cwd=folder)
    with _serving([str(program), "serve", "--config", "gateway.yaml"], folder):
        found = _answer(f"http://127.0.0.1:{ports['http']}/v2/models/posterior/infer")
    if found != [-5.0]:
        raise ReleaseError(f"the installed gateway answered {found}; expected [-5.0]")


def _configured(folder: Path) -> dict[str, int]:
    """Write gateway.yaml with free ports: those of the listener, of its model and of the health pages."""
    ports = dict(zip(("http", "model", "health"), _free_ports(3), strict=True))
    (folder / "gateway.yaml").write_text(CONFIG.format(**ports))
    return ports


@contextmanager
def _serving(command: list[str], folder: Path) -> Iterator[None]:
    """While a gateway runs. What it printed goes with the error of a check that fails meanwhile."""
    printed = folder / "output.txt"
    with (
        printed.open("w") as output,
        subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield
        except ReleaseError as error:
            raise ReleaseError(f"{error}\nThe gateway printed:\n{printed.read_text()}") from error
        finally:
            process.terminate()


def _answer(url: str) -> list[float]:
    """The data of the first output, as soon as the gateway answers."""
    request = urllib.request.Request(url, json.dumps(BODY).encode(), {"content-type": "application/json"})

    def ask() -> list[float]:
        with urllib.request.urlopen(request, timeout=10) as reply:
            data: list[float] = json.load(reply)["outputs"][0]["data"]
            return data

    return _eventually(ask)


def _eventually(ask: Callable[[], Answer]) -> Answer:
    """The answer, as soon as asking succeeds."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            return ask()
        except (OSError, ReleaseError) as error:
            if time.monotonic() > end:
                raise ReleaseError(f"no success within {START_SECONDS} s: {error}") from error
            time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
