from pathlib import Path

import pytest

from protos import generate


@pytest.mark.parametrize("path", generate.generated(), ids=lambda path: path.parent.name)
def test_what_is_derived_is_up_to_date(path: Path) -> None:
    assert path.read_bytes() == generate.generated()[path], "run `make generate`"
