from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attacks.attacked import Attacked, attacked, reference

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder. The hook gets the tests of the whole session, so it selects them by path."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.attack)


@pytest.fixture
def figure(request: pytest.FixtureRequest, show_at_the_end: Callable[[str, str], None]) -> Callable[[str], None]:
    """Return a function that records a measurement. pytest prints all of them at the end of the run."""
    name: str = request.node.nodeid.rpartition("/")[2]
    return lambda text: show_at_the_end("measured", f"{name}: {text}")


@pytest.fixture(scope="session")
def works(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a correct model server."""
    with reference(tmp_path_factory.mktemp("reference")) as address:
        yield address


@pytest.fixture
def gateway(tmp_path: Path, works: str) -> Iterator[Attacked]:
    """A gateway for one case, with a well-behaved client next to the attackers."""
    with attacked(tmp_path, works) as gateway:
        gateway.beside()
        yield gateway


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, works: str) -> Iterator[Attacked]:
    """A gateway for all cases of a module, with a well-behaved client next to the attackers."""
    with attacked(tmp_path_factory.mktemp("gateway"), works) as gateway:
        gateway.beside()
        yield gateway
