from collections.abc import Iterator

import pytest

from tests.contract.installed import toys


@pytest.fixture(autouse=True, scope="module")
def toys_are_installed() -> Iterator[None]:
    with toys():
        yield
