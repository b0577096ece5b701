"""A Dockerfile, read and carried out without a container engine.

Each stage gets a folder for its root. COPY copies, RUN runs, and the paths in both that a stage makes are below that
folder; the base image's Python is stood in by one of this machine. A stage that ends is moved aside, so that the next
has its root at the same place, as in a container: what an environment says of its own path stays true.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from dockerfile_parse import DockerfileParser

MADE = ("/opt", "/src", "/etc/gateway")
"""Folders of the container that the Dockerfile or its user makes; all others are the base image's."""


@dataclass
class Stage:
    """A stage: its instructions as (name, value), and what they settled."""

    base: str
    name: str = ""
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def values(self, instruction: str) -> list[str]:
        return [value for name, value in self.instructions if name == instruction]

    def last(self, instruction: str) -> str:
        return self.values(instruction)[-1]

    def words(self, instruction: str) -> list[str]:
        """Of an instruction in JSON's form."""
        words: list[str] = json.loads(self.last(instruction))
        return words

    def environment(self) -> dict[str, str]:
        words = (word for value in self.values("ENV") for word in shlex.split(value))
        return {name: value for name, _, value in (word.partition("=") for word in words)}

    def healthcheck(self) -> list[str]:
        """The command, without the options before it."""
        words: list[str] = json.loads(self.last("HEALTHCHECK").partition("CMD ")[2])
        return words


def stages(path: Path) -> list[Stage]:
    """The stages of a Dockerfile, in order."""
    found: list[Stage] = []
    for each in DockerfileParser(str(path)).structure:
        name, value = each["instruction"], each["value"]
        if name == "FROM":
            base, _, alias = re.fullmatch(r"(\S+)( AS (\S+))?", value).groups()  # type: ignore[union-attr]
            found.append(Stage(base, alias or ""))
        elif name != "COMMENT":
            found[-1].instructions.append((name, value))
    return found


def ignored(path: Path) -> set[str]:
    """The patterns that a build may read, of an ignore file that begins by ignoring everything."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    return {line[1:] for line in lines if line.startswith("!")}


@dataclass
class Machine:
    """Carries out stages below `home`. `programs` is the folder of the Python that stands in for the base image's."""

    context: Path
    readable: set[str]
    home: Path
    programs: Path

    @property
    def root(self) -> Path:
        """That of the stage at hand."""
        return self.home / "root"

    def carry_out(self, all_stages: Sequence[Stage]) -> None:
        """Do what RUN, COPY and WORKDIR say; the root is that of the last stage afterwards."""
        for before, stage in zip([None, *all_stages], all_stages, strict=False):
            if before:
                self.root.rename(self.home / before.name)
            self.root.mkdir()
            folder = PurePosixPath("/")
            for name, value in stage.instructions:
                if name == "WORKDIR":
                    folder = folder / value
                    self.inside(folder).mkdir(parents=True, exist_ok=True)
                elif name == "COPY":
                    self._copy(folder, shlex.split(value))
                elif name == "RUN":
                    self._run(folder, value)

    def inside(self, path: PurePosixPath | str) -> Path:
        """Where a path of the container is."""
        return self.root / str(path).lstrip("/")

    def translated(self, text: str) -> str:
        """A text with the container's paths, with the real ones."""
        made = "|".join(map(re.escape, MADE))
        return re.sub(rf"(?<![\w/])({made})(?=[/:\s]|$)", lambda found: str(self.inside(found[0])), text)

    def environment(self, extra: dict[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))}
        return kept | {"PATH": f"{self.programs}:/usr/bin:/bin"} | {k: self.translated(v) for k, v in extra.items()}

    def _run(self, folder: PurePosixPath, command: str) -> None:
        done = subprocess.run(
            ["sh", "-c", self.translated(command)],
            cwd=self.inside(folder),
            env=self.environment({}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"RUN {command}\n{done.stdout}"

    def _copy(self, folder: PurePosixPath, words: list[str]) -> None:
        options = [word for word in words if word.startswith("--")]
        *sources, target = (word for word in words if not word.startswith("--"))
        into = self.inside(folder / target)
        for source in self._sources(options, sources):
            # A folder's content goes into the target, a file goes below it where it ends with a slash.
            to = into if source.is_dir() or not target.endswith("/") else into / source.name
            to.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, to, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, to)

    def _sources(self, options: Sequence[str], sources: Sequence[str]) -> Iterator[Path]:
        for source in sources:
            if options:
                [option] = options
                yield self.home / option.removeprefix("--from=") / source.lstrip("/")
            else:
                assert any(PurePosixPath(source).match(pattern) for pattern in self.readable), f"{source} is ignored"
                yield self.context / source
