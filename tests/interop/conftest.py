"""Fixtures for tests with real peers. A missing peer makes a test fail, not skip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop import processes, v2_fronts, v2_servers
from tests.interop.exchanges import Addresses, Listen, listening
from tests.interop.processes import Triton, V2Server
from tests.interop.tensorflow_serving import TensorFlowServing, start_tensorflow_serving
from tests.together import WITH_TRITON

HERE = Path(__file__).resolve().parent
SHARED = {"triton", "mlserver", "kserve"}
"""Fixtures with servers that take long to start."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder. The hook gets the tests of the whole session, so it selects them by path."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.real)
            if SHARED.intersection(getattr(item, "fixturenames", ())):
                assert item.path.stem in WITH_TRITON, f"{item.path.stem} uses {SHARED}: add it to WITH_TRITON"


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    with processes.start_triton(tmp_path_factory.mktemp("triton")) as server:
        yield server


@pytest.fixture(scope="session")
def mlserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[V2Server]:
    with v2_servers.start_mlserver(tmp_path_factory.mktemp("mlserver")) as server:
        yield server


@pytest.fixture(scope="session")
def kserve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[V2Server]:
    with v2_servers.start_kserve(tmp_path_factory.mktemp("kserve")) as server:
        yield server


@pytest.fixture(scope="session")
def tensorflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorFlowServing]:
    with start_tensorflow_serving(tmp_path_factory.mktemp("tensorflow")) as server:
        yield server


@pytest.fixture(scope="session")
def umbridge_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the real Python UM-Bridge server. All tests share it, and it serves one call at a time."""
    with processes.start_umbridge(tmp_path_factory.mktemp("umbridge")) as server:
        yield server.url


@pytest.fixture(scope="module")
def listen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listen]:
    """Start gateways that a whole module uses: see `exchanges.listening`."""
    with ExitStack() as running:

        def start(config: str, **values: object) -> Addresses:
            return running.enter_context(listening(config, tmp_path_factory.mktemp("gateway"), **values))

        yield start


@pytest.fixture(scope="module")
def in_front(listen: Listen, umbridge_server: str, triton: Triton, mlserver: V2Server, kserve: V2Server) -> Listen:
    """Start a gateway in front of all these servers (`v2_fronts`), with further `routes`."""
    servers = {"at_umbridge": umbridge_server, "at_triton": triton, "at_mlserver": mlserver, "at_kserve": kserve}
    return lambda routes="", message=2**26: listen(v2_fronts.CONFIG, routes=routes, message=message, **servers)


@pytest.fixture(params=["sync", "aio"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each of tritonclient's two clients."""
    found: str = request.param
    return found
