"""Records of requests, made as those who work on a request make them."""

from itertools import chain

from gateway.core.record import ListenerRecords, Observer, Record, RecordDisclosure
from gateway.observing.batches import KIND, OWN, Batch, kind_with, read


def made(
    observers: "tuple[Observer, ...] | list[Observer]" = (),
    id: str = "id",
    listener: str = "",
    in_protocol: str = "",
    client: str = "",
    received: float = 0.0,
    bytes_in: int = 0,
    telling: RecordDisclosure | None = None,
    traceparent: bytes = b"",
) -> Record:
    """The Record of a request that has just arrived."""
    telling = telling or RecordDisclosure()
    of_listener = ListenerRecords(tuple(observers), telling, telling.forwards)
    return Record(
        listener, in_protocol, received=received, bytes_in=bytes_in, id=id, client=client, of_listener=of_listener,
        tells=telling.id or telling.route, traceparent=traceparent,
    )  # fmt: skip


def batch(*ended: Record) -> Batch:
    """What readers get of these, whose requests have ended."""
    fields = [read(each) for each in ended]
    return Batch([kind_with[each[KIND]] for each in fields], list(chain.from_iterable(each[OWN] for each in fields)))


def route(record: Record, route: str = "", backend: str = "", endpoint: str = "", out_protocol: str = "") -> Record:
    """`record`, of a request that took this way."""
    record.route, record.backend, record.endpoint, record.out_protocol = route, backend, endpoint, out_protocol
    return record
