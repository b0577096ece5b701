"""Container engines: building the image, saving it as an archive, and serving from what was saved."""

import shutil
import subprocess
from pathlib import Path

from deploy.release.commands import run
from deploy.release.version import ROOT, version

IMAGE = f"docker.io/library/modelglot:{version()}"
"""`docker load` shows it as `modelglot:V`. From a shorter name Podman and Buildah make `localhost/modelglot:V`."""
CONFIGURATION = "/etc/gateway/gateway.yaml"


class Docker:
    """Docker. Other engines differ from it in what their classes say."""

    program = "docker"
    build_options: tuple[str, ...] = ()

    def works(self) -> bool:
        """It is installed, and its daemon, if it has one, answers."""
        if shutil.which(self.program) is None:
            return False
        return subprocess.run([self.program, "info"], capture_output=True, check=False).returncode == 0

    def build(self) -> None:
        """Build the Dockerfile."""
        command = [self.program, "build", *self.build_options, "--file", "deploy/Dockerfile", "--tag", IMAGE, "."]
        run(command, cwd=ROOT)

    def save(self, to: Path) -> None:
        """Write the image as an archive in Docker's form, which is not compressed."""
        run([self.program, "save", "--output", str(to), IMAGE])

    def create(self, container: str, archive: Path, configuration: Path) -> None:
        """Make a container of the image in an archive, which is not compressed, with as few rights as can be given."""
        run([self.program, "load", "--input", str(archive)])
        rights = ["--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        run([self.program, "create", "--name", container, "--pull", "never", *rights, *mounted(configuration), IMAGE])

    def serve(self, container: str) -> list[str]:
        """The command that runs the image's default command, as long as that runs, and hands signals on to it."""
        return [self.program, "start", "--attach", container]

    def inside(self, container: str) -> list[str]:
        """What to put before a command to run it beside the gateway."""
        return [self.program, "exec", container]

    def remove(self, container: str) -> None:
        """Remove the container; the image stays."""
        run([self.program, "rm", "--force", container])


class Podman(Docker):
    """OCI's form of an image, its default, has no HEALTHCHECK."""

    program = "podman"
    build_options = ("--format", "docker")


class Buildah(Podman):
    """It runs commands in a container one by one: without the entrypoint, without a read-only root, and each with a
    network of its own unless they have the host's."""

    program = "buildah"

    def save(self, to: Path) -> None:
        run([self.program, "push", IMAGE, f"docker-archive:{to}"])

    def create(self, container: str, archive: Path, configuration: Path) -> None:
        rights = ["--network", "host", "--cap-drop", "ALL"]
        source = f"docker-archive:{archive}"
        run([self.program, "from", "--name", container, *rights, *mounted(configuration), source])

    def serve(self, container: str) -> list[str]:
        return [*self.inside(container), "gateway", "serve", "--config", CONFIGURATION]

    def inside(self, container: str) -> list[str]:
        return [self.program, "run", container, "--"]

    def remove(self, container: str) -> None:
        run([self.program, "rm", container])


def mounted(configuration: Path) -> list[str]:
    """The options that show a file of this machine as the gateway's configuration."""
    return ["--volume", f"{configuration}:{CONFIGURATION}:ro,z"]


ENGINES = (Docker(), Podman(), Buildah())


def working() -> Docker | None:
    """The first one that works here."""
    return next((each for each in ENGINES if each.works()), None)
