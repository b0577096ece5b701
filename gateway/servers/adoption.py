"""Adoption of jobs that an earlier gateway left: decides which jobs to adopt, and cancels jobs at another engine.
`jobs` uses it."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from enum import Enum

from gateway.core.frozen import frozen
from gateway.core.surviving import log_and_continue
from gateway.servers.asked_engine import AskedEngine
from gateway.servers.engine import EngineError, JobReport, JobState
from gateway.servers.log_lines import tell
from gateway.servers.settings import ServersSettings
from gateway.servers.sizing import back_off
from gateway.servers.state_file import SavedJob

LOST = JobReport(JobState.LOST)


class AdoptionDecision(Enum):
    """The decision about a job."""

    USED = "used"
    ENDED = "ended"
    FORGOTTEN = "forgotten"
    """The job has already ended."""


@frozen
class OrphanedJob:
    """A job of an earlier gateway: the saved data (with the job's id, if known) and the engine's report."""

    saved: SavedJob
    report: JobReport
    fate: AdoptionDecision


def decide(
    saved: Collection[SavedJob], reports: Mapping[str, JobReport], settings: ServersSettings, fits: str, most: int
) -> list[OrphanedJob]:
    """Return the decision about each job, based on the engine's reports. At most `most` jobs are adopted, all with the
    settings in `fits`."""
    left: list[OrphanedJob] = []
    for each in saved:
        report = reports.get(each.id, LOST) if each.id else LOST
        if report.state.is_over:
            fate = AdoptionDecision.FORGOTTEN
        elif each.fits != fits or each.backend != settings.backend or report.state is JobState.ENDING or most <= 0:
            fate = AdoptionDecision.ENDED
        else:
            fate, most = AdoptionDecision.USED, most - 1
        left.append(OrphanedJob(each, report, fate))
    return left


def is_here(job: SavedJob, settings: ServersSettings) -> bool:
    """Return whether the job is at the engine in these settings. A job that is known only by its folder counts too."""
    return job.engine in ("", settings.engine)


async def end_elsewhere(
    asked: AskedEngine, jobs: Collection[SavedJob], backend: str, over: Callable[[str], None]
) -> None:
    """Cancel jobs at the engine `asked`, which the backend no longer uses, and retry until the engine responds. `over`
    is called with the name of each job that has ended."""
    left = {each.name: each for each in jobs}
    tries = 0
    try:
        while left:
            try:
                with log_and_continue(f"ending jobs that an earlier gateway left of backend {backend!r}", EngineError):
                    await asked.open()
                    for each in await _ended(asked, list(left.values())):
                        over(left.pop(each.name).name)
            except EngineError as error:
                if not tries:
                    text = "backend %r: ending jobs of an earlier gateway failed so far: %s (%s)"
                    tell(backend, logging.ERROR, text, ", ".join(left), error)
            tries += 1
            if left:
                await asyncio.sleep(back_off(tries))
    finally:
        await asked.close()


async def _ended(asked: AskedEngine, jobs: Collection[SavedJob]) -> list[SavedJob]:
    """Cancel the jobs at the engine. Return the jobs that have ended."""
    ids = await ids_of(asked, jobs)
    await asked.ask(asked.engine.cancel(list(ids.values())))
    reports = await asked.ask(asked.engine.reports(list(ids.values())))
    return [each for each in jobs if each.name not in ids or reports.get(ids[each.name], LOST).state.is_over]


async def ids_of(asked: AskedEngine, jobs: Collection[SavedJob]) -> dict[str, str]:
    """Return the engine's job ids by job name, for jobs with a known id and jobs that the engine finds."""
    known = {each.name: each.id for each in jobs if each.id}
    unknown = [each.name for each in jobs if not each.id]
    return known | dict(await asked.ask(asked.engine.find(unknown)))
