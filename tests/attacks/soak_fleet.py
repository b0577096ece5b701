"""`python -m tests.attacks.soak_fleet --minutes N` sends requests for 200 models to a gateway in front of three real
Triton servers, which hold 8 models each. It kills a server every 30 s. At the end, it prints the wrong and missing
answers, the number of model loads, and the number by the rules of `fleet_optimum` for the same requests and kills."""

from __future__ import annotations

import argparse
import itertools
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.attacks.fleet_optimum import Restart, least_loads, loads_of_lru, zipf
from tests.interop.fleet_servers import FleetTriton, write_triton_models
from tests.interop.processes import Gateway, free_port, start_gateway
from tests.peers.fleet_client import CLIENTS, CallFailed, Client

CONFIG = """
listeners:
  - {{name: http, bind: "{http}", protocols: [v2-rest]}}
  - {{name: grpc, bind: "{grpc}", protocols: [v2-grpc]}}
backends:
  fleet:
    protocol: v2-grpc
    endpoints: {endpoints}
    safe: true
    health: {{probe: live, interval: 2}}
    placement: {{loading: on_demand, max_models: {most}, copies: {copies}, interval: 5}}
    policies: [{{timeout: {{seconds: 30}}}}, {{retry: {{attempts: 3}}}}]
routes: [{{match: {{model: "*"}}, backend: fleet}}]
"""
PAUSE = 0.25
"""Seconds between two queries of the models that each server holds."""
ASK = 5.0
"""Timeout of such a query. A server that was just killed does not answer."""


@dataclass(frozen=True)
class Plan:
    """The parameters of the soak test."""

    minutes: float
    servers: int
    models: int
    most: int
    copies: str
    exponent: float
    clients: int
    seconds_between_kills: float
    seed: int


class Requests:
    """The sequence of requests that all clients share. `asked` contains the models in the order of their requests."""

    def __init__(self, plan: Plan) -> None:
        self.asked: list[int] = []
        self._next = zipf(plan.models, plan.exponent, plan.seed)
        self._guard = threading.Lock()

    def take(self) -> tuple[int, int]:
        """Return the number of the next request, and its model."""
        with self._guard:
            self.asked.append(next(self._next))
            return len(self.asked) - 1, self.asked[-1]


class Clients:
    """Clients of both protocols, each in its own thread, that send one request after the other."""

    def __init__(self, addresses: dict[str, str], requests: Requests, count: int) -> None:
        self.answered = 0
        self.wrong: list[str] = []
        self.errors: Counter[str] = Counter()
        self.unexplained: list[str] = []
        self.slowest = 0.0
        self._addresses = addresses
        self._requests = requests
        self._guard = threading.Lock()
        self._stopped = threading.Event()
        wires = itertools.islice(itertools.cycle(addresses), count)
        self._threads = [threading.Thread(target=self._run, args=(wire,)) for wire in wires]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, wire: str) -> None:
        client = CLIENTS[wire](self._addresses[wire], seconds=120)
        while not self._stopped.is_set():
            number, model = self._requests.take()
            begun = time.monotonic()
            self._ask(client, number, name_of(model))
            self.slowest = max(self.slowest, time.monotonic() - begun)
        client.close()

    def _ask(self, client: Client, number: int, model: str) -> None:
        sent = [float(number), 0.5]
        try:
            found = client.infer(model, sent)
        except CallFailed as error:
            with self._guard:
                self.errors[kind_of(error)] += 1
                if not error.status or len(error.text) < 10:
                    self.unexplained.append(f"{model}: {error}")
            return
        with self._guard:
            self.answered += 1
            if found != (model, sent):
                self.wrong.append(f"{model} {sent}: answered by {found}")


class Servers:
    """The Triton servers. `highest` contains the maximum number of models on each server, `restarts` the kills and
    their times."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.journal = folder / "journal"
        self.journal.touch()
        self.restarts: list[Restart] = []
        self.highest = [0] * plan.servers
        parameters = {"journal": str(self.journal)}
        names = [name_of(number) for number in range(plan.models)]
        repository = write_triton_models(folder / "models", names, dict.fromkeys(names, parameters))
        self.all = [FleetTriton(repository, folder / f"triton-{number}") for number in range(plan.servers)]

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            for each in self.all:
                stack.callback(each.stop)
                each.begin()
            for each in self.all:
                each.wait()
            yield

    @property
    def loads(self) -> Counter[str]:
        """Return the number of loads of each model, from the files that the models write."""
        return Counter(self.journal.read_text().split())

    def look(self, stopped: threading.Event) -> None:
        """Query the models on the servers repeatedly, until `stopped`."""
        clients = [CLIENTS["grpc"](each.grpc, ASK) for each in self.all]
        while not stopped.wait(PAUSE):
            for number, client in enumerate(clients):
                try:
                    held = [each for each in client.index() if each.get("state") in ("READY", "LOADING")]
                except CallFailed:
                    continue
                self.highest[number] = max(self.highest[number], len(held))
        for client in clients:
            client.close()

    def kill(self, number: int, requests: Requests) -> None:
        """Kill a server and start it again, without waiting until it is ready."""
        self.restarts.append((len(requests.asked), number))
        self.all[number].kill()
        self.all[number].begin()


def name_of(number: int) -> str:
    return f"model-{number:03}"


def kind_of(error: CallFailed) -> str:
    """Return the error without its variable parts: models, addresses and durations."""
    text = re.sub(r"model-\d+", "MODEL", error.text)
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    return re.sub(r"\d+(\.\d+)?", "N", f"{error.status or 'no answer'}: {text}")[:300]


def soak(plan: Plan, folder: Path) -> tuple[Clients, Servers, Requests, Gateway]:
    """Run the soak test and return all results. All processes have ended on return."""
    requests, servers, source = Requests(plan), Servers(plan, folder), random.Random(plan.seed)
    addresses = {wire: f"127.0.0.1:{free_port()}" for wire in CLIENTS}
    with ExitStack() as stack:
        stack.enter_context(servers.running())
        endpoints = [each.grpc for each in servers.all]
        config = CONFIG.format(**addresses, endpoints=endpoints, most=plan.most, copies=plan.copies)
        gateway = start_gateway(config, folder / "gateway")
        stack.callback(gateway.stop)
        stopped = threading.Event()
        looking = threading.Thread(target=servers.look, args=(stopped,))
        looking.start()
        stack.callback(looking.join)
        stack.callback(stopped.set)
        clients = stack.enter_context(Clients(addresses, requests, plan.clients))
        ends = time.monotonic() + 60 * plan.minutes
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, plan.seconds_between_kills))
            print(
                f"{60 * plan.minutes - max(0, ends - time.monotonic()):6.0f} s  {clients.answered} answered, "
                f"{clients.errors.total()} errors, {len(clients.wrong)} wrong, {servers.loads.total()} loads",
                flush=True,
            )
            if ends - time.monotonic() > plan.seconds_between_kills / 2:
                servers.kill(source.randrange(plan.servers), requests)
    return clients, servers, requests, gateway


def rows_of(plan: Plan, loads: int, asked: Sequence[int], restarts: Sequence[Restart]) -> Iterator[str]:
    """Return the loads of the gateway, and the loads by the other rules."""
    fleet = plan.servers, plan.most
    rows = {
        "the gateway": loads,
        "an LRU of the fleet, with the same kills": loads_of_lru(asked, *fleet, restarts),
        "an LRU of the fleet, without kills": loads_of_lru(asked, *fleet),
        "Belady's bound, without kills": least_loads(asked, plan.servers * plan.most),
    }
    yield f"{'':42}{'loads':>8}{'hit rate':>10}"
    for name, count in rows.items():
        yield f"{name:42}{count:8}{1 - count / max(1, len(asked)):10.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.soak_fleet", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--copies", default="1", help="copies of a model, such as 1..2")
    parser.add_argument("--exponent", type=float, default=1.0, help="of the zipf distribution")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kill-every", type=float, default=30, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    plan = Plan(given.minutes, 3, 200, 8, given.copies, given.exponent, given.clients, given.kill_every, given.seed)
    with tempfile.TemporaryDirectory() as folder:
        clients, servers, requests, gateway = soak(plan, Path(folder))
        loads = servers.loads.total()
        log = gateway.output()
    print(f"{len(requests.asked)} requests, {clients.answered} answered, the slowest after {clients.slowest:.1f} s;")
    print(f"{len(servers.restarts)} kills; the servers were seen to hold at most {servers.highest} models")
    print("\n".join(rows_of(plan, loads, requests.asked, servers.restarts)))
    for kind, count in clients.errors.most_common():
        print(f"{count:6}  {kind}")
    faults = [f"wrong: {each}" for each in clients.wrong]
    faults += [f"unexplained: {each}" for each in clients.unexplained]
    faults += [f"a server held {each}" for each in servers.highest if each > plan.most]
    faults += [f"the log: {line}" for line in log.splitlines() if "Traceback" in line]
    print("\n".join(faults[:40]))
    sys.exit(f"{len(faults)} faults" if faults else 0)


if __name__ == "__main__":
    main()
