"""What request ids and the access log cost per request: a gateway without them, and one with request ids alone or with
both, before the same servers, in turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.measure import Generator
from tests.benchmarks.protection import Protection, compared, start
from tests.benchmarks.servers import reference_server

TITLE = "what the access log costs"
IDS_TITLE = "what request ids cost"
AIM = "at most 6% or 6 us, whichever is more, with metrics and keys"

_BARE = """
log: {access: {when: never}}
"""
_IDS = """
log: {access: {when: never}}
request_ids: {}
"""
_ACCESS = """
log: {format: json, access: {when: always, path: "%s"}}
"""


def measure(folder: Path, rounds: int, load: Generator, *, ids: bool = False) -> Iterator[Protection]:
    """Each of the rows of `protection`: what the access log and request ids cost, or the ids
    alone."""
    with ExitStack() as stack:
        servers = {
            "rest": reference_server("v2-rest", folder, stack).address,
            "grpc": reference_server("v2-grpc", folder, stack).address,
        }
        more = _IDS if ids else _ACCESS % (folder / "access.log")
        gateways = (
            start("bare", "", servers, folder, stack, _BARE),
            start("observed", "", servers, folder, stack, more),
        )
        yield from compared(gateways, rounds, load)
