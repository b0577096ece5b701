"""docs/matrix.md matches a new run of the matrix."""

import pytest

from tests.contract.document import FILE, document, run

pytestmark = pytest.mark.long


async def test_the_page_tells_what_a_run_of_the_matrix_sees() -> None:
    assert FILE.read_text("utf-8") == document(await run()), "`make matrix` writes it anew"
