"""Access lines: one for each request that has ended, as text for people or as a JSON object. Pure."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeAlias

import orjson

from gateway.core.record import OK, Record

Render: TypeAlias = Callable[[Iterable[Record], float], bytes]
"""Makes the lines of Records. The number is the Unix time at which the clock of the Records was 0."""

GREEN, RED, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"

LONGEST_NAME = 256
"""Characters of a model's name that are written. Clients choose it."""


class Times(dict[int, str]):
    """Times in milliseconds since 1970 as RFC 3339 in UTC. Those asked for are kept: under load many requests end in
    the same millisecond."""

    def __missing__(self, milliseconds: int) -> str:
        second, rest = divmod(milliseconds, 1000)
        text = self[milliseconds] = f"{_date_and_time(second)}.{rest:03d}Z"
        return text


@lru_cache(2)
def _date_and_time(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def json_lines(records: Iterable[Record], since_1970: float) -> bytes:
    """JSON objects. The names in them are written once and kept; what differs in every request has characters only that
    JSON takes as they are: numbers, addresses and ids (`request_ids`)."""
    times, members = Times(), _json_members
    lines = []
    for record in records:
        shared = members[
            record.principal, record.listener, record.in_protocol, record.out_protocol, record.operation, record.model,
            record.route, record.backend, record.endpoint, record.status, record.reason, record.tries, record.code,
        ]  # fmt: skip
        lines.append(
            f'{{"time":"{times[int(1000 * (since_1970 + record.ended))]}","log":"access","id":"{record.id}",'
            f'"client":"{record.client}",{shared},"bytes_in":{record.bytes_in},"bytes_out":{record.bytes_out},'
            f'"queue_ms":{record.queued * 1e3:.3f},"upstream_ms":{record.upstream * 1e3:.3f},'
            f'"total_ms":{(record.ended - record.received) * 1e3:.3f}}}\n'
        )
    return "".join(lines).encode()


Shared: TypeAlias = tuple[str, str, str, str, str, str, str, str, str, str, str, int, int]


class _JsonMembers(dict[Shared, str]):
    """The members of a line that have the same values in many lines."""

    def __missing__(self, shared: Shared) -> str:
        if len(self) >= _MOST_SHARED:
            self.clear()
        *before, model, route, backend, endpoint, status, reason, tries, code = shared
        # Half of a surrogate pair cannot be written.
        readable = model[:LONGEST_NAME].encode("utf-8", "backslashreplace").decode()
        values = (*before, readable, route, backend, endpoint, status, reason, tries, code)
        text = self[shared] = orjson.dumps(dict(zip(_SHARED, values, strict=True)))[1:-1].decode()
        return text


_MOST_SHARED = 4096
_SHARED = (
    "principal", "listener", "in_protocol", "out_protocol", "operation", "model", "route", "backend", "endpoint",
    "status", "reason", "tries", "code",
)  # fmt: skip
_json_members = _JsonMembers()


def text_lines(records: Iterable[Record], since_1970: float) -> bytes:
    """`TIME access STATUS CODE KEY=VALUE ...`; what is unknown is left out."""
    times = Times()
    ended = [(times[int(1000 * (since_1970 + record.ended))], record) for record in records]
    return "".join([f"{time} access {record.status} {_told(record)}" for time, record in ended]).encode()


def coloured_lines(records: Iterable[Record], since_1970: float) -> bytes:
    """As `text_lines`, for a terminal: green for requests that succeeded, red for others."""
    times = Times()
    ended = [(times[int(1000 * (since_1970 + record.ended))], record) for record in records]
    lines = [f"{time} access {_colour(record)}{record.status}{PLAIN} {_told(record)}" for time, record in ended]
    return "".join(lines).encode()


def _colour(record: Record) -> str:
    return GREEN if record.status == OK and record.code < 400 else RED


def _told(record: Record) -> str:
    names = _text_names(
        record.principal, record.listener, record.in_protocol, record.out_protocol, record.operation,
        record.model[:LONGEST_NAME], record.route, record.backend, record.endpoint, record.reason,
    )  # fmt: skip
    queued = f" queue={record.queued * 1e3:.1f}ms" if record.queued else ""
    asked = f" tries={record.tries} upstream={record.upstream * 1e3:.1f}ms" if record.tries else ""
    return (
        f"{record.code}{names} client={record.client}{queued}{asked} "
        f"total={(record.ended - record.received) * 1e3:.1f}ms bytes={record.bytes_in}/{record.bytes_out} "
        f"id={record.id}\n"
    )


@lru_cache(4096)
def _text_names(
    principal: str, listener: str, in_protocol: str, out_protocol: str, operation: str, model: str, route: str,
    backend: str, endpoint: str, reason: str,
) -> str:  # fmt: skip
    told = {
        "reason": reason, "operation": operation, "model": model, "listener": listener, "in": in_protocol,
        "route": route, "backend": backend, "out": out_protocol, "endpoint": endpoint, "principal": principal,
    }  # fmt: skip
    return "".join(f" {key}={_plain(name)}" for key, name in told.items() if name)


def _plain(name: str) -> str:
    """A name without anything that could be taken for another field, another line, or a terminal's command."""
    is_plain = name.isprintable() and name.isascii() and not (" " in name or '"' in name)
    return name if is_plain else ascii(name)
