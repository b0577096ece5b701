"""What engines say of jobs."""

import pytest

from gateway.servers.engine import JobState


@pytest.mark.parametrize("state", list(JobState))
def test_only_a_job_that_waits_or_runs_can_still_serve(state: JobState) -> None:
    assert state.is_over == (state not in (JobState.WAITING, JobState.RUNNING))
