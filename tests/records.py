"""Records of requests, made as those who work on a request make them."""

from itertools import chain
from types import SimpleNamespace

from gateway.core.record import ListenerRecords, Observer, Record, Telling
from gateway.observing.batches import Batch, read


def made(
    observers: "tuple[Observer, ...] | list[Observer]" = (),
    id: str = "id",
    listener: str = "",
    in_protocol: str = "",
    client: str = "",
    received: float = 0.0,
    bytes_in: int = 0,
    telling: Telling | None = None,
    traceparent: bytes = b"",
) -> Record:
    """The Record of a request that has just arrived."""
    telling = telling or Telling()
    of_listener = ListenerRecords(listener, tuple(observers), telling, telling.forwards)
    return Record(of_listener, telling.id or telling.route, id, traceparent, in_protocol, client, bytes_in, received)


def batch(*ended: Record) -> Batch:
    """What readers get of these, whose requests have ended."""
    return Batch(list(chain.from_iterable(map(read, ended))))


def route(record: Record, route: str = "", backend: str = "", endpoint: str = "", out_protocol: str = "") -> Record:
    """`record`, of a request that took this way."""
    record.destination = SimpleNamespace(route=route, backend=backend)
    if endpoint or out_protocol:
        record.asked = SimpleNamespace(name=backend, protocol=SimpleNamespace(name=out_protocol))
        record.server = SimpleNamespace(address=endpoint)
    return record
