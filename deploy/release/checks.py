"""Checks the parts of a release as somebody has them who downloaded them: in empty environments, without the clone."""

import hashlib
import json
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import helm_python
import yaml

from deploy.release.parts import ReleaseError, environment, install, run, unpack
from deploy.release.version import version

TESTS = ("tests/core", "tests/specification")
"""Of the source archive: those that need no real clients and servers, and take seconds."""
START_SECONDS = 60
CONFIG = """\
listeners: [{{name: http, bind: "127.0.0.1:{http}", protocols: [v2-rest]}}]
reference: [{{protocol: umbridge, bind: "127.0.0.1:{model}", models: [posterior]}}]
backends: {{science: {{protocol: umbridge, endpoints: ["http://127.0.0.1:{model}"]}}}}
routes: [{{match: {{model: "*"}}, backend: science}}]
"""
BODY = {"inputs": [{"name": "input0", "datatype": "FP64", "shape": [1, 2], "data": [1.0, 2.0]}]}


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
    bare = [each["name"] for each in others if not each.get("version")]
    if bare or not {"numpy", "uvloop"} <= {each["name"] for each in others}:
        raise ReleaseError(f"{path.name}: {len(others)} packages, without a version: {bare}")


def check_installed(python: Path, folder: Path) -> None:
    """The installed gateway tells its version, and answers a V2 request with a UM-Bridge model."""
    program = python.parent / "gateway"
    told = run([str(program), "--version"], cwd=folder).strip()
    if told != f"gateway {version()}":
        raise ReleaseError(f"{program} --version says {told!r}")
    ports = dict(zip(("http", "model"), _free_ports(2), strict=True))
    (folder / "gateway.yaml").write_text(CONFIG.format(**ports))
    run([str(program), "check", "--config", "gateway.yaml"], cwd=folder)
    with _serving(program, folder):
        found = _answer(f"http://127.0.0.1:{ports['http']}/v2/models/posterior/infer")
    if found != [-5.0]:
        raise ReleaseError(f"the installed gateway answered {found}; expected [-5.0]")


@contextmanager
def _serving(program: Path, folder: Path) -> Iterator[None]:
    command = [str(program), "serve", "--config", "gateway.yaml"]
    with (
        (folder / "output.txt").open("w") as output,
        subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def _answer(url: str) -> list[float]:
    """The data of the first output, as soon as the gateway answers."""
    request = urllib.request.Request(url, json.dumps(BODY).encode(), {"content-type": "application/json"})
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                data: list[float] = json.load(reply)["outputs"][0]["data"]
                return data
        except OSError as error:
            if time.monotonic() > end:
                raise ReleaseError(f"{url} did not answer within {START_SECONDS} s: {error}") from error
            time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
