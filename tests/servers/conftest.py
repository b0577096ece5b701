import pytest

from gateway.servers import jobs
from tests.interop.processes import free_port


@pytest.fixture(autouse=True)
def ports_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give jobs ports that no other process of the tests takes. `jobs.free_port` returns a port on which a listener of
    another process (`127.0.0.1:0`) can begin before the job's server does."""
    monkeypatch.setattr(jobs, "free_port", free_port)
