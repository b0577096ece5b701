"""The Redis server of the tests of shared limits and answers."""

import signal
from collections.abc import Iterator

import pytest

from gateway.policies import shared_server
from tests.policies.redis_server import RedisServer


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.process.signal(signal.SIGCONT)
    server.process.stop()


@pytest.fixture
def server(running: RedisServer, monkeypatch: pytest.MonkeyPatch) -> RedisServer:
    """The server; a loaded machine does not make it late."""
    monkeypatch.setattr(shared_server, "SECONDS", 10.0)
    return running
