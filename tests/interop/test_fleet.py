"""A gateway in front of three real Tritons that load models on demand, and of two MLServers: with kills and pauses
in the middle of a load, and a gateway that is killed itself."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from tests.interop.fleet_servers import FleetMlserver, FleetTriton, start_mlserver, write_triton_models
from tests.interop.processes import Gateway, eventually, free_port, start_gateway
from tests.limits import GENEROUS
from tests.peers.fleet_client import CLIENTS, CallFailed

MOST = 2
MODELS = [f"m{number}" for number in range(7)]
OUT_OF_MEMORY = "CUDA out of memory"
CONFIG = """
listeners:
  - {{name: http, bind: "{http}", protocols: [v2-rest]}}
  - {{name: grpc, bind: "{grpc}", protocols: [v2-grpc]}}
backends:
  fleet:
    protocol: {protocol}
    endpoints: {endpoints}
    safe: true
    health: {{probe: live, interval: 0.5, timeout: 1, unhealthy: 2}}
    placement: {{loading: on_demand, max_models: {most}, interval: 1}}
    policies: [{{timeout: {{seconds: 60}}}}]
routes:
  - {{match: {{model: paused}}, backend: fleet, policies: [{{timeout: {{seconds: 3}}}}]}}
  - {{match: {{model: "*"}}, backend: fleet}}
"""


class Front:
    """A gateway that can be killed and started again at the same addresses."""

    def __init__(self, folder: Path, protocol: str, endpoints: list[str]) -> None:
        self._folder = folder
        self._addresses = {wire: f"127.0.0.1:{free_port()}" for wire in CLIENTS}
        self._config = CONFIG.format(**self._addresses, protocol=protocol, endpoints=endpoints, most=MOST)
        self._gateway: Gateway | None = None

    def start(self) -> None:
        self._gateway = start_gateway(self._config, self._folder)

    def kill(self) -> None:
        assert self._gateway is not None
        self._gateway.process.signal(signal.SIGKILL)
        self._gateway.process.stop()

    def stop(self) -> None:
        if self._gateway is not None:
            self._gateway.stop()

    def answers(self, model: str) -> bool:
        return not self.ask(model)

    def ask(self, model: str, wire: str = "grpc", number: float = 1.0) -> str:
        """Empty if the model itself has answered; else the error, which says why."""
        client = CLIENTS[wire](self._addresses[wire])
        try:
            assert client.infer(model, [number]) == (model, [number])
        except CallFailed as error:
            return str(error)
        finally:
            client.close()
        return ""


@contextmanager
def in_front(folder: Path, protocol: str, endpoints: list[str]) -> Iterator[Front]:
    front = Front(folder, protocol, endpoints)
    front.start()
    try:
        yield front
    finally:
        front.stop()


@dataclass
class Tritons:
    all: list[FleetTriton]
    gates: Path
    journal: Path

    @property
    def grpc(self) -> list[str]:
        return [each.grpc for each in self.all]

    def held(self) -> list[list[str]]:
        """What each says that it holds or loads."""
        return [held_by(each) for each in self.all]

    def loads(self) -> Counter[str]:
        return Counter(self.journal.read_text().split())

    def loading(self, gate: str) -> list[FleetTriton]:
        """Those whose load waits for this gate."""
        waiting = {each.name for each in self.gates.glob(f"{gate}.*")}
        return [each for each in self.all if each.process and f"{gate}.{each.process.pid}" in waiting]

    def open(self, gate: str) -> None:
        (self.gates / gate).touch()


def held_by(server: FleetTriton | FleetMlserver) -> list[str]:
    client = CLIENTS["http"](server.http)
    try:
        return [each["name"] for each in client.index() if each.get("state") in ("READY", "LOADING")]
    finally:
        client.close()


@pytest.fixture(scope="module")
def tritons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tritons]:
    folder = tmp_path_factory.mktemp("fleet")
    journal, gates = folder / "journal", folder / "gates"
    journal.touch()
    gates.mkdir()
    faults = {name: {"journal": str(journal)} for name in MODELS}
    faults["broken"] = {"fails": OUT_OF_MEMORY, "journal": str(journal)}
    faults |= {name: {"gate": str(gates / name)} for name in ("killed", "paused", "orphan")}
    repository = write_triton_models(folder / "models", list(faults), faults)
    servers = [FleetTriton(repository, folder / f"triton-{number}") for number in range(3)]
    try:
        for each in servers:
            each.begin()
        for each in servers:
            each.wait()
        yield Tritons(servers, gates, journal)
    finally:
        for each in servers:
            each.kill()


@pytest.fixture(scope="module")
def front(tritons: Tritons, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with in_front(tmp_path_factory.mktemp("gateway"), "v2-grpc", tritons.grpc) as front:
        yield front


@pytest.fixture
def clients() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(6) as clients:
        yield clients


def test_more_models_than_places_over_both_wires(tritons: Tritons, front: Front, clients: ThreadPoolExecutor) -> None:
    asked = [*MODELS, *reversed(MODELS)]
    assert list(clients.map(front.ask, asked, cycle(CLIENTS), range(len(asked)))) == [""] * len(asked)
    assert [len(each) for each in tritons.held()] == [MOST] * 3
    assert set(tritons.loads()) == set(MODELS)


def test_a_load_that_fails_is_told_in_triton_s_words(tritons: Tritons, front: Front) -> None:
    for wire in CLIENTS:
        assert OUT_OF_MEMORY in front.ask("broken", wire)
    assert tritons.loads()["broken"] <= 3  # once on each server
    assert front.ask(MODELS[0]) == ""


def test_a_server_that_is_killed_during_a_load_and_comes_back(
    tritons: Tritons, front: Front, clients: ThreadPoolExecutor
) -> None:
    waiting = [clients.submit(front.ask, "killed") for _ in range(3)]
    assert eventually(lambda: bool(tritons.loading("killed")), GENEROUS)
    (server,) = tritons.loading("killed")
    server.kill()
    tritons.open("killed")
    assert [front.ask(model) for model in MODELS[:3]] == [""] * 3
    server.begin()
    for each in waiting:
        assert each.result() == "" or "killed" in each.result()
    server.wait()
    assert front.ask("killed") == ""
    assert max(map(len, tritons.held())) <= MOST


def test_a_server_that_is_paused_during_a_load(tritons: Tritons, front: Front, clients: ThreadPoolExecutor) -> None:
    waiting = clients.submit(front.ask, "paused")
    assert eventually(lambda: bool(tritons.loading("paused")), GENEROUS)
    (server,) = tritons.loading("paused")
    assert server.process is not None
    server.process.signal(signal.SIGSTOP)
    try:
        # What waits for it ends with its deadline, until the others have taken over.
        assert "no answer within 3 s" in waiting.result()
        tritons.open("paused")
        for model in (MODELS[0], "paused"):
            assert eventually(partial(front.answers, model), GENEROUS)
    finally:
        server.process.signal(signal.SIGCONT)
    assert front.ask("paused") == ""
    assert max(map(len, tritons.held())) <= MOST


def test_a_gateway_that_is_killed_during_a_load(tritons: Tritons, front: Front, clients: ThreadPoolExecutor) -> None:
    waiting = clients.submit(front.ask, "orphan")
    assert eventually(lambda: bool(tritons.loading("orphan")), GENEROUS)
    front.kill()
    assert waiting.result()
    loaded = [model for each in tritons.held() for model in each if model != "orphan"]
    before = tritons.loads()
    front.start()
    tritons.open("orphan")
    assert [front.ask(model) for model in (*loaded, "orphan")] == [""] * (len(loaded) + 1)
    assert tritons.loads() == before  # what was loaded was found
    assert max(map(len, tritons.held())) <= MOST


@pytest.fixture(scope="module")
def mlservers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[FleetMlserver]]:
    folder = tmp_path_factory.mktemp("mlservers")
    with ExitStack() as stack:
        failing = {"broken": OUT_OF_MEMORY}
        started = (start_mlserver(folder / str(number), [*MODELS, *failing], failing) for number in range(2))
        servers = [stack.enter_context(each) for each in started]
        for each in servers:
            each.wait()
        yield servers


def test_mlservers_load_models_on_demand(
    mlservers: list[FleetMlserver], clients: ThreadPoolExecutor, tmp_path: Path
) -> None:
    highest = [0, 0]
    stopped = threading.Event()

    def look() -> None:
        while not stopped.wait(0.01):
            for number, each in enumerate(mlservers):
                highest[number] = max(highest[number], len(held_by(each)))

    with in_front(tmp_path, "v2-rest", [each.http for each in mlservers]) as front:
        looking = threading.Thread(target=look)
        looking.start()
        try:
            asked = [*MODELS, *reversed(MODELS)]
            assert list(clients.map(front.ask, asked, cycle(CLIENTS), range(len(asked)))) == [""] * len(asked)
            assert "broken" in front.ask("broken")
            assert front.ask(MODELS[0]) == ""
        finally:
            stopped.set()
            looking.join()
    assert max(highest) == MOST
