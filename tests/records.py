"""Records of requests, made as those who work on a request make them."""

from types import SimpleNamespace

from gateway.core.record import Observer, Record, Telling


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
    record = Record(listener, observers, telling or Telling())
    record.id, record.in_protocol, record.client = id, in_protocol, client
    record.received, record.bytes_in, record.traceparent = received, bytes_in, traceparent
    return record


def route(record: Record, route: str = "", backend: str = "", endpoint: str = "", out_protocol: str = "") -> Record:
    """`record`, of a request that took this way."""
    record.destination = SimpleNamespace(route=route, backend=backend)
    if endpoint or out_protocol:
        record.asked = SimpleNamespace(name=backend, protocol=SimpleNamespace(name=out_protocol))
        record.server = SimpleNamespace(address=endpoint)
    return record
