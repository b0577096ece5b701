"""Fixtures for tests with real peers. A missing peer makes a test fail, not skip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop import processes, v2_servers
from tests.interop.processes import Gateway, Triton, UmbridgeServer
from tests.interop.tensorflow_serving import TensorFlowServing, start_tensorflow_serving
from tests.interop.v2_servers import V2Server
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
    server = processes.start_triton(tmp_path_factory.mktemp("triton"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mlserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[V2Server]:
    server = v2_servers.start_mlserver(tmp_path_factory.mktemp("mlserver"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def kserve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[V2Server]:
    server = v2_servers.start_kserve(tmp_path_factory.mktemp("kserve"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def tensorflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorFlowServing]:
    server = start_tensorflow_serving(tmp_path_factory.mktemp("tensorflow"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def umbridge_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the real Python UM-Bridge server. All tests share it, and it serves one call at a time."""
    server = processes.start_umbridge(tmp_path_factory.mktemp("umbridge"))
    yield server.url
    server.stop()


@pytest.fixture
def own_umbridge(tmp_path: Path) -> Iterator[UmbridgeServer]:
    """A server for one test, which can block, stop or kill it."""
    server = processes.start_umbridge(tmp_path / "umbridge")
    yield server
    server.stop()


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[Callable[[str], Gateway]]:
    """Return a function that starts a gateway from YAML text. The gateways stop at the end of the test, the last one
    first."""
    with ExitStack() as running:

        def start(config: str) -> Gateway:
            number = len(list(tmp_path.glob("gateway-*")))
            gateway = processes.start_gateway(config, tmp_path / f"gateway-{number}")
            running.callback(gateway.stop)
            return gateway

        yield start
