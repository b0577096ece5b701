"""What the tests of the engines share: jobs, and looking at them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from gateway.servers.engine import Engine, Job, JobReport, JobState, Resources
from tests.limits import until


def job(
    folder: Path,
    script: str,
    *,
    lines: str = "",
    environment: Mapping[str, str] | None = None,
    resources: Resources | None = None,
) -> Job:
    """A job script in `folder`, with the directives `lines`. All its processes have the folder in their environment."""
    path = folder / "job.sh"
    path.write_text(f"#!/bin/bash\n{lines}\n{script}\n")
    path.chmod(0o755)
    return Job(
        name="model",
        command=(str(path),),
        is_script=True,
        folder=folder,
        output=folder / "output",
        environment={"MARK_OF_TEST": str(folder), **(environment or {})},
        resources=resources or Resources(),
    )


async def until_state(engine: Engine, id_: str, state: JobState) -> JobReport:
    while True:
        report = (await engine.reports([id_]))[id_]
        if report.state is state:
            return report
        assert not report.state.is_over, report
        await asyncio.sleep(0.05)


async def until_no_process_with(mark: str) -> None:
    await until(lambda: not processes_with(mark))


def processes_with(mark: str) -> list[str]:
    """The commands of all processes that have this text in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
