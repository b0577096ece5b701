"""The image of a release, with a script as container engine: it notes how it is called, and gives prepared answers."""

import gzip
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.release import checks, engines, parts
from deploy.release.commands import ReleaseError
from deploy.release.version import version

SCRIPT = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  save*|push*) /bin/cp {archive} "${{3#docker-archive:}}" ;;
  *"gateway --version") echo "{told}" ;;
  *grep*) printf '{rights}' ;;
  *"gateway call"*) echo '{{"outputs": [{{"data": [{answer}]}}]}}' ;;
esac
"""
GOOD = {
    "told": f"gateway {version()}",
    "rights": "Uid:\t65532\t65532\t65532\t65532\nGid:\t65532\t65532\t65532\t65532\nCapEff:\t0000000000000000\n",
    "answer": "-5.0",
}
NAME = f"modelglot:{version()}"
HEALTHY = {"Healthcheck": {"Test": ["CMD", "python", "-c", "ask"]}}


def archive(config: dict[str, Any], name: str) -> bytes:
    """An image in Docker's form without layers."""
    made = io.BytesIO()
    manifest = [{"Config": "abc.json", "RepoTags": [name], "Layers": []}]
    with tarfile.open(fileobj=made, mode="w") as opened:
        for path, document in {"manifest.json": manifest, "abc.json": {"config": config}}.items():
            content = json.dumps(document).encode()
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            opened.addfile(entry, io.BytesIO(content))
    return made.getvalue()


@dataclass
class Engines:
    """The only programs of the search path are scripts in `folder`."""

    folder: Path

    def install(
        self, program: str, *, config: dict[str, Any] = HEALTHY, name: str = f"docker.io/library/{NAME}", **answers: str
    ) -> None:
        saved = self.folder / "saved.tar"
        saved.write_bytes(archive(config, name))
        script = self.folder / program
        script.write_text(SCRIPT.format(log=f"{script}.log", archive=saved, **(GOOD | answers)))
        script.chmod(0o755)

    def break_(self, program: str) -> None:
        """Installed, but its daemon does not run."""
        self.install(program)
        (self.folder / program).write_text("#!/bin/sh\nexit 1\n")

    def calls(self, program: str) -> list[str]:
        return (self.folder / f"{program}.log").read_text().splitlines()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engines:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return Engines(folder)


def released(to: Path) -> None:
    """Build the image, and check it."""
    [made] = parts.image(to)
    engine = engines.working()
    assert engine is not None
    checks.check_image(made, engine)


def test_without_an_engine_a_line_says_that_there_is_no_image(
    programs: Engines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs.break_("docker")
    assert parts.image(tmp_path) == []
    assert capsys.readouterr().out == "no image: none of docker, podman, buildah runs here\n"


@pytest.mark.parametrize(
    ("program", "build", "save", "create"),
    [
        ("docker", "build --file", "save --output", "create --name"),
        ("podman", "build --format docker --file", "save --output", "create --name"),
        ("buildah", "build --format docker --file", f"push docker.io/library/{NAME} docker-archive:", "from --name"),
    ],
)
def test_each_engine_builds_saves_and_serves(
    program: str, build: str, save: str, create: str, programs: Engines, tmp_path: Path
) -> None:
    programs.break_("docker")
    programs.install(program)
    released(tmp_path)
    made = tmp_path / f"modelglot-{version()}-image.tar.gz"
    assert gzip.decompress(made.read_bytes()) == (programs.folder / "saved.tar").read_bytes()
    calls = programs.calls(program)
    for start in (build, save, create):
        assert [each for each in calls if each.startswith(start)], calls
    [created] = [each for each in calls if each.startswith(create)]
    assert "--cap-drop ALL" in created
    assert "/gateway.yaml:/etc/gateway/gateway.yaml:ro" in created
    assert [each for each in calls if each.endswith("/healthz python -c ask")], calls
    assert calls[-1].startswith("rm ")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": f"localhost/{NAME}"}, f"called ['localhost/{NAME}']; expected {NAME}"),
        ({"config": {}}, "health check is NONE"),
        ({"told": "gateway 0.0.9"}, "'gateway 0.0.9'"),
        ({"rights": GOOD["rights"].replace("65532", "0")}, "expected user 65532"),
        ({"rights": GOOD["rights"].replace("0000\n", "0400\n")}, "without capabilities"),
        ({"answer": "5.0"}, "answered [5.0]; expected [-5.0]"),
    ],
)
def test_an_image_that_is_not_as_promised_is_no_release(
    wrong: dict[str, Any], message: str, programs: Engines, tmp_path: Path
) -> None:
    programs.install("docker", **wrong)
    with pytest.raises(ReleaseError) as error:
        released(tmp_path)
    assert message in str(error.value)
    calls = programs.calls("docker")
    assert any(each.startswith("create") for each in calls) == any(each.startswith("rm ") for each in calls)
