"""What the payload log costs per request: two gateways with an access log and metrics before the same servers, one of
which logs a share of the calls into a file, in turns. The thread that writes them counts too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.measure import Generator
from tests.benchmarks.protection import Protection, compared, start
from tests.benchmarks.servers import own_address, reference_server

TITLES = {0.01: "what the payload log of 1% costs", 1.0: "what the payload log of all calls costs"}
"""By the share that is logged."""
AIMS = {0.01: "at most 2 us", 1.0: "at most 100 us"}

_OBSERVED = """
log: {{format: json, access: {{when: always, path: "{log}"}}{more}}}
health: {{bind: "{health}"}}
"""
_LOGGED = ', payloads: {{to: "{log}.payloads", sample: {share}}}'


def measure(folder: Path, rounds: int, load: Generator, *, share: float) -> Iterator[Protection]:
    """Each row of the protection's benchmark."""
    with ExitStack() as stack:
        servers = {
            "rest": reference_server("v2-rest", folder, stack).address,
            "grpc": reference_server("v2-grpc", folder, stack).address,
        }
        observed, logged = (
            start(
                name, "", servers, folder, stack,
                _OBSERVED.format(
                    log=folder / f"{name}.log", health=own_address(),
                    more=more.format(log=folder / f"{name}.log", share=share),
                ),
            )
            for name, more in {"observed": "", "logged": _LOGGED}.items()
        )  # fmt: skip
        yield from compared((observed, logged), rounds, load)
