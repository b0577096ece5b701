"""docs/matrix.md matches a new run of the matrix."""

import pytest

from gateway.routing.readiness import BackendReadiness
from tests.contract.document import FILE, document, run
from tests.limits import GENEROUS

pytestmark = pytest.mark.long


async def test_the_page_tells_what_a_run_of_the_matrix_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine, a server may not say in 2 s that it is ready.
    monkeypatch.setattr(BackendReadiness.__init__, "__defaults__", (GENEROUS,))
    assert FILE.read_text("utf-8") == document(await run()), "`make matrix` writes it anew"
