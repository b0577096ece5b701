"""What metrics cost per request: two gateways before the same servers, one that counts, in turns. Then the counting
alone, with the Record of a request that went well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from timeit import repeat

from gateway.observing.finished import BATCH
from gateway.observing.request_metrics import ModelLabels, RequestMetrics
from tests import records
from tests.benchmarks.measure import Generator
from tests.benchmarks.protection import Protection, compared, start
from tests.benchmarks.servers import own_address, reference_server

TITLE = "what metrics cost"
AIM = "at most 3 us for the counting; with the record of a request at most 5% or 6 us, whichever is more"

_SETTINGS = """
health: {{bind: "{health}"}}
metrics: {{enabled: {enabled}}}
log: {{access: {{when: never}}}}
request_ids: {{reply: false, forward: false}}
"""
_BATCHES = 200


def measure(folder: Path, rounds: int, load: Generator) -> Iterator[Protection]:
    """Each row of the protection's benchmark."""
    off = _SETTINGS.format(health=own_address(), enabled="false")
    on = _SETTINGS.format(health=own_address(), enabled="true")
    with ExitStack() as stack:
        servers = {
            "rest": reference_server("v2-rest", folder, stack).address,
            "grpc": reference_server("v2-grpc", folder, stack).address,
        }
        without = start("off", "", servers, folder, stack, off)
        yield from compared((without, start("on", "", servers, folder, stack, on)), rounds, load)


def counting() -> float:
    """Microseconds that counting one request takes; the least of some rounds."""
    metrics = RequestMetrics(ModelLabels(100, ["model"]), [0.001 * 2**at for at in range(16)])
    record = records.made((), "0af7651916cd43dd8448eb211c80319c", "http", "v2-rest", "127.0.0.1:4000", 1.0, 200)
    records.route(record, "route-0", "lab", "127.0.0.1:8001", "v2-grpc").model = "model"
    record.tries, record.upstream, record.decode, record.encode = 1, 0.0034, 0.00004, 0.00003
    record.end(200, 300)
    requests = [record] * BATCH
    return (
        1e6 * min(repeat(lambda: metrics.count(records.batch(*requests)), number=_BATCHES, repeat=7)) / _BATCHES / BATCH
    )
