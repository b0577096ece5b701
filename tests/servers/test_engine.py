"""What engines say of jobs."""

import pytest

from gateway.servers.engine import JobState


@pytest.mark.parametrize("state", list(JobState))
def test_a_job_is_over_when_none_of_its_processes_is_there(state: JobState) -> None:
    assert state.is_over == (state not in (JobState.WAITING, JobState.RUNNING, JobState.ENDING))
