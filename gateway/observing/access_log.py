"""The access log: one line per request, as human-readable text or as a JSON object.

The log renders the lines of a batch of requests in one step (`finished`), collects them briefly, and passes them to a
thread that writes them. Whenever this thread wakes up, it takes the interpreter from the event loop, which costs as
much as rendering hundreds of lines. Therefore, the thread wakes up rarely, and does not render the lines itself."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from operator import add
from random import random
from time import monotonic, time
from typing import Any, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.core.record import OK
from gateway.observing.batches import (
    BYTES_IN,
    BYTES_OUT,
    ENDED,
    MOST_KINDS,
    QUEUED,
    SECONDS,
    UPSTREAM,
    Batch,
    RequestKind,
)
from gateway.observing.line_file import LineWriter

Render: TypeAlias = Callable[[Batch, float], bytes]
"""A function that renders the lines for a batch of requests. The second argument is the Unix time at which the Records'
clock was 0."""

GREEN, RED, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"

LONGEST_SHOWN_NAME = 256
"""Maximum number of characters of a model name in a line. The limit exists because clients choose model names."""


_THOUSANDTHS = [f".{number:03d}Z" for number in range(1000)]


def times(batch: Batch, since_1970: float) -> list[str]:
    """Return the time at which each request ended, in RFC 3339 format, in UTC, rounded down to milliseconds."""
    seconds, rest = np.divmod((1000 * (since_1970 + batch.numbers[ENDED])).astype(np.int64), 1000)
    thousandths = rest.tolist()
    if (seconds == seconds[0]).all():  # the usual case
        text = _date_and_time(int(seconds[0]))
        return list(map(text.__add__, map(_THOUSANDTHS.__getitem__, thousandths)))
    return list(map(add, map(_date_and_time, seconds.tolist()), map(_THOUSANDTHS.__getitem__, thousandths)))


@lru_cache(2)
def _date_and_time(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def json_lines(batch: Batch, since_1970: float) -> bytes:
    """Return lines that are JSON objects. Their names are encoded once and cached. Values that differ in every request
    (numbers, addresses and ids, see `request_ids`) contain only characters that JSON does not escape."""
    members = {kind: _json_members(kind) for kind in set(batch.kinds)}
    sizes = batch.numbers[BYTES_IN : BYTES_OUT + 1].astype(np.int64)
    queued, upstream, seconds = (np.rint(batch.numbers[row] * 1e6) / 1e3 for row in (QUEUED, UPSTREAM, SECONDS))
    columns = (
        times(batch, since_1970), batch.ids, batch.clients, map(members.__getitem__, batch.kinds), _texts(sizes[0]),
        _texts(sizes[1]), _texts(queued), _texts(upstream), _texts(seconds),
    )  # fmt: skip
    # Join all pieces of all lines, column by column, which takes fewer steps than a format string for each line.
    pieces, width = _LINE * len(batch), len(_LINE)
    for at, column in enumerate(columns):
        pieces[2 * at + 1 :: width] = column
    return "".join(pieces).encode()


_LINE = [
    '{"time":"', "", '","log":"access","id":"', "", '","client":"', "", '",', "", ',"bytes_in":', "",
    ',"bytes_out":', "", ',"queue_ms":', "", ',"upstream_ms":', "", ',"total_ms":', "", "}\n",
]  # fmt: skip
"""The pieces of a line. A column's value replaces every second piece."""


def _texts(numbers: NDArray[Any]) -> list[str]:
    """Return each number as JSON. orjson formats many numbers faster than Python formats one."""
    if (numbers == numbers[0]).all():  # such as queue times, which are nearly always 0, and often sizes
        return [orjson.dumps(numbers[0].item()).decode()] * len(numbers)
    written = orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY)
    return written[1:-1].decode().split(",")


@lru_cache(MOST_KINDS)
def _json_members(kind: RequestKind) -> str:
    """Return the JSON members whose values many lines share."""
    # An unpaired surrogate cannot be encoded.
    readable = kind.model[:LONGEST_SHOWN_NAME].encode("utf-8", "backslashreplace").decode()
    values = {name: getattr(kind, name) for name in _SHARED} | {"model": readable}
    if kind.cache:
        values["cache"] = kind.cache
    if kind.read_for:
        values["read_for"] = kind.read_for
    return orjson.dumps(values)[1:-1].decode()


_SHARED = (
    "principal", "listener", "in_protocol", "out_protocol", "operation", "model", "route", "backend", "endpoint",
    "status", "reason", "tries", "code",
)  # fmt: skip


def text_lines(batch: Batch, since_1970: float) -> bytes:
    """Return lines in the format `TIME access STATUS CODE KEY=VALUE ...`, without unknown values."""
    told = zip(times(batch, since_1970), batch.kinds, _formatted(batch), strict=True)
    return "".join([f"{time} access {kind.status} {rest}" for time, kind, rest in told]).encode()


def coloured_lines(batch: Batch, since_1970: float) -> bytes:
    """Return the same lines as `text_lines`, colored for a terminal: green for successful requests, red for others."""
    told = zip(times(batch, since_1970), batch.kinds, _formatted(batch), strict=True)
    lines = [f"{time} access {_colour(kind)}{kind.status}{PLAIN} {rest}" for time, kind, rest in told]
    return "".join(lines).encode()


def _colour(kind: RequestKind) -> str:
    return GREEN if kind.status == OK and kind.code < 400 else RED


def _formatted(batch: Batch) -> Iterator[str]:
    """Yield the part of each line that starts at the code."""
    sizes = batch.numbers[BYTES_IN : BYTES_OUT + 1].astype(np.int64).T.tolist()
    milliseconds = (1e3 * batch.numbers[[QUEUED, UPSTREAM, SECONDS]]).T.tolist()
    of_each = zip(batch.kinds, batch.ids, batch.clients, sizes, milliseconds, strict=True)
    for kind, id, client, (bytes_in, bytes_out), (queued, upstream, total) in of_each:
        in_queues = f" queue={queued:.1f}ms" if queued else ""
        asked = f" tries={kind.tries} upstream={upstream:.1f}ms" if kind.tries else ""
        cached = f" cache={kind.cache}" if kind.cache else ""
        cached += f" read_for={kind.read_for}" if kind.read_for else ""
        yield (
            f"{kind.code}{_names(kind)} client={client}{cached}{in_queues}{asked} total={total:.1f}ms "
            f"bytes={bytes_in}/{bytes_out} id={id}\n"
        )


@lru_cache(MOST_KINDS)
def _names(kind: RequestKind) -> str:
    """Return the fields of a line whose values many lines share."""
    told = {
        "reason": kind.reason, "operation": kind.operation, "model": kind.model[:LONGEST_SHOWN_NAME],
        "listener": kind.listener, "in": kind.in_protocol, "route": kind.route, "backend": kind.backend,
        "out": kind.out_protocol, "endpoint": kind.endpoint, "principal": kind.principal,
    }  # fmt: skip
    return "".join(f" {key}={_plain(name)}" for key, name in told.items() if name)


def _plain(name: str) -> str:
    """Return a name without characters that could look like another field, another line, or a terminal command."""
    is_plain = name.isprintable() and name.isascii() and not (" " in name or '"' in name)
    return name if is_plain else ascii(name)


PROBES = frozenset({"live", "ready", "health"})
"""The operations that clients call periodically to check the gateway's state, without a route."""
MOST_PROBES = 1024
"""Maximum number of combinations of client, listener and operation whose last probe result is stored."""


COLLECT_SECONDS = 0.1
"""Maximum time for which the log collects lines, in seconds."""
MOST_COLLECTED = 2**20
"""Maximum bytes of collected lines. The log passes larger amounts on immediately."""


class AccessLog:
    """Writes a line for each record.

    - `sample`: the fraction of successful requests that get a line. Each failed request gets a line.

    For a client that sends PROBES, only the first probe and each probe whose result differs from the previous result
    get a line.
    """

    def __init__(self, writer: LineWriter, render: Render, sample: float = 1.0) -> None:
        self.writer = writer
        self._render = render
        self._sample = sample
        self._collected: list[bytes] = []
        self._size = self._lines = 0
        """The bytes and the number of the collected lines."""
        self._probes: dict[tuple[str, ...], tuple[str, int, str]] = {}
        """The result of the last probe, by client, listener, protocol and operation."""

    def write(self, batch: Batch) -> None:
        """Write the lines of completed requests."""
        shown = self._shown(batch)
        if not len(shown):
            return
        if not self._collected:
            asyncio.get_running_loop().call_later(COLLECT_SECONDS, self.flush)
        text = self._render(shown, time() - monotonic())
        self._collected.append(text)
        self._size += len(text)
        self._lines += len(shown)
        if self._size >= MOST_COLLECTED:
            self.flush()

    def _shown(self, batch: Batch) -> Batch:
        """Return the requests of a batch that get a line."""
        probes = {kind for kind in set(batch.kinds) if is_probe(kind)}
        if not probes and self._sample == 1:
            return batch
        of_clients = enumerate(zip(batch.kinds, batch.clients, strict=True))
        places = [at for at, (kind, client) in of_clients if kind not in probes or self._is_news(kind, client)]
        if self._sample < 1:
            places = [at for at in places if batch.kinds[at] in probes or self._is_kept(batch.kinds[at])]
        return batch.only(places)

    def flush(self) -> None:
        """Pass the collected lines to the thread."""
        if self._collected:
            self.writer.write(b"".join(self._collected), self._lines)
        self._collected = []
        self._size = self._lines = 0

    def _is_kept(self, kind: RequestKind) -> bool:
        return kind.status != OK or kind.code >= 400 or random() < self._sample

    def _is_news(self, probe: RequestKind, client: str) -> bool:
        """Return True if the result of `probe` differs from the result of the client's previous probe."""
        host = client.rpartition(":")[0]
        key, outcome = (
            (host, probe.listener, probe.in_protocol, probe.operation),
            (probe.status, probe.code, probe.reason),
        )
        if self._probes.get(key) == outcome:
            return False
        if len(self._probes) >= MOST_PROBES:
            self._probes.clear()
        self._probes[key] = outcome
        return True

    def close(self) -> None:
        """Write all waiting lines."""
        self.flush()
        self.writer.close()


def is_probe(kind: RequestKind) -> bool:
    """Return True if requests of this kind only check the gateway's state."""
    return not kind.route and kind.operation in PROBES
