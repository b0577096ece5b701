"""Load reports in replies from a backend's servers: ORCA, Open Request Cost Aggregation.

| where | form |
|---|---|
| HTTP, `endpoint-load-metrics` | `TEXT cpu_utilization=0.3, named_metrics.queue=4`, `JSON {"cpu_utilization": 0.3}`, or `BIN` and base64 |
| HTTP, `endpoint-load-metrics-bin` | base64 of the protobuf message |
| gRPC, trailing metadata `endpoint-load-metrics-bin` | the protobuf message `xds.data.orca.v3.OrcaLoadReport` |

Triton and vLLM send the header if a request has `endpoint-load-metrics-format: text` (or `json`). The gateway reads a
report as one flat map: the keys of a nested map have the name of the map's field as a prefix, like in the text form.
"""  # noqa: E501

import base64
import binascii
import json
import logging
import math
import struct
from collections.abc import Callable, Iterator, Mapping

from gateway.core.errors import DecodeError
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.protobuf.fields import read_text
from gateway.core.protobuf.wire import I64, LENGTH, VARINT, fields, read_varint
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint
from gateway.routing.load.reported import Measure, ReportedLoads

log = logging.getLogger(__name__)


REQUEST_HEADER = (b"endpoint-load-metrics-format", b"text")
"""The request header that requests a report in the server's HTTP reply."""
HEADER, BINARY_HEADER = "endpoint-load-metrics", "endpoint-load-metrics-bin"
LONGEST = 8192
"""The maximum size of a report, in bytes."""

# xds/data/orca/v3/orca_load_report.proto
_DOUBLES = {1: "cpu_utilization", 2: "mem_utilization", 6: "rps_fractional", 7: "eps", 9: "application_utilization"}
_RPS = 3
_MAPS = {4: "request_cost", 5: "utilization", 8: "named_metrics"}
_SNAKE = {
    "cpuUtilization": "cpu_utilization", "memUtilization": "mem_utilization", "rpsFractional": "rps_fractional",
    "applicationUtilization": "application_utilization", "requestCost": "request_cost",
    "namedMetrics": "named_metrics",
}  # fmt: skip
"""The report's field names in the protobuf JSON mapping, with the names in the text form."""
_PREFERRED = ("application_utilization", "cpu_utilization", "named_metrics.kv_cache_utilization")


def report(headers: Headers, *, over_grpc: bool = False) -> Mapping[str, float]:
    """Return the report in the headers of a reply or, if `over_grpc` is True, in its trailing metadata, whose values
    are already bytes. The result has the keys of the text form. If the reply has no report, the result is empty.

    Raises:
        DecodeError: the report is malformed, contains a key twice, or is larger than LONGEST bytes.
    """
    text = headers.get(HEADER)
    binary = headers.first.get(BINARY_HEADER.encode())
    if len(text) > LONGEST or (binary is not None and len(binary) > LONGEST):
        raise DecodeError(f"the load report has more than {LONGEST} bytes")
    if text:
        form, _, rest = text.partition(" ")
        match form:
            case "TEXT":
                return _once(_text(rest))
            case "JSON":
                return _json(rest)
            case "BIN":
                return _once(_message(_decoded(rest.strip().encode("latin-1"))))
        raise DecodeError(f"{HEADER}: expected TEXT, JSON or BIN and a report, got {text[:40]!r}")
    if binary is None:
        return {}
    return _once(_message(binary if over_grpc else _decoded(binary)))


def load_in(found: Mapping[str, float], metric: str) -> float | None:
    """Return the load in a report: the value of `metric`.

    If `metric` is empty, return the first value above 0 among the application utilization, the CPU utilization (gRFC
    A58), and the cache utilization of a language model (Triton). Return None if all these values are 0 or missing;
    protobuf does not distinguish the two."""
    if metric:
        value = found.get(metric)
    else:
        value = next((found[each] for each in _PREFERRED if found.get(each, 0.0) > 0), None)
    return value if value is not None and value >= 0 else None


def _once(pairs: Iterator[tuple[str, float]]) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for name, value in pairs:
        if name in found:
            raise DecodeError(f"the load report has {name!r} twice")
        if not math.isfinite(value):
            raise DecodeError(f"the load report's {name!r} is {value}")
        found[name] = value
    return found


def _text(text: str) -> Iterator[tuple[str, float]]:
    for each in text.split(","):
        name, is_pair, value = each.strip().rpartition("=")
        try:
            yield name.strip(), float(value)
        except ValueError:
            is_pair = ""
        if not is_pair or not name:
            raise DecodeError(f"the load report has {each.strip()[:40]!r}, expected NAME=NUMBER")


def _json(text: str) -> Mapping[str, float]:
    try:
        document = json.loads(text, object_pairs_hook=_Object, parse_int=float)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"the load report is not JSON: {text[:40]!r}") from error
    if not isinstance(document, _Object):
        raise DecodeError(f"the load report is not a JSON object: {text[:40]!r}")
    return _once(_flat(document))


class _Object(list[tuple[str, object]]):
    """The members of a JSON object, including duplicate keys."""


def _flat(document: _Object, prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in document:
        name = prefix + key if prefix else _SNAKE.get(key, key)
        if isinstance(value, _Object) and not prefix:
            yield from _flat(value, f"{name}.")
        elif isinstance(value, float):
            yield name, value
        else:
            raise DecodeError(f"the load report's {name!r} is not a number")


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise DecodeError("the load report is not base64") from error


def _message(message: Buffer) -> Iterator[tuple[str, float]]:
    """Yield the fields of an OrcaLoadReport. Skip unknown fields."""
    for number, kind, _, value, end in fields(message):
        if number in _DOUBLES and kind == I64:
            yield _DOUBLES[number], _double(message, value)
        elif number in _MAPS and kind == LENGTH:
            name, amount = _entry(message[value:end])
            yield f"{_MAPS[number]}.{name}", amount
        elif number == _RPS and kind == VARINT:
            yield "rps", float(read_varint(message, value)[0])


def _entry(entry: Buffer) -> tuple[str, float]:
    """Return the key and the value of a map entry; missing parts are empty or 0."""
    name, amount = "", 0.0
    for number, kind, _, value, end in fields(entry):
        if number == 1 and kind == LENGTH:
            name = read_text(entry[value:end], "the key of a load report")
        elif number == 2 and kind == I64:
            amount = _double(entry, value)
    return name, amount


def _double(message: Buffer, at: int) -> float:
    (value,) = struct.unpack_from("<d", message, at)
    return float(value)


PAUSE = 60.0
"""The time for which the gateway ignores a server's reports after a malformed report, in seconds."""


class LoadReports:
    """Records the loads in the replies from all current endpoints of `choice`.

    The load is the value of `metric` in each report or, if `metric` is empty, the value that `load_in` prefers."""

    def __init__(
        self,
        choice: EndpointChoice,
        metric: str,
        measure: Measure,
        loads: ReportedLoads,
        clock: Callable[[], float],
        *,
        over_grpc: bool = False,
    ) -> None:
        self._choice = choice
        self._metric = metric
        self._measure = measure
        self._over_grpc = over_grpc
        self._loads = loads
        self._clock = clock
        self._endpoints: tuple[Endpoint, ...] = ()
        self._paused: dict[Endpoint, float] = {}
        """For each endpoint, the time until which its reports are ignored."""

    def start(self) -> None:
        """Start reading reports."""
        self._choice.on_change = self._among
        self._among((*self._choice.endpoints, *self._choice.drained))

    def cancel(self) -> None:
        """Stop reading reports."""
        self._choice.on_change = None
        self._among(())

    async def stop(self) -> None:
        """See `cancel`."""
        self.cancel()

    def _among(self, endpoints: tuple[Endpoint, ...]) -> None:
        before, self._endpoints = set(self._endpoints), endpoints
        for endpoint in endpoints:
            if endpoint not in before:
                endpoint.watch_replies(self.note)
        for endpoint in before.difference(endpoints):
            endpoint.unwatch_replies(self.note)
            self._paused.pop(endpoint, None)
            self._loads.forget(endpoint)

    def note(self, endpoint: Endpoint, reply: Message) -> None:
        """Record the load in a reply from `endpoint`, if the reply has a report. Log and ignore malformed reports."""
        if self._paused and self._paused.get(endpoint, 0.0) > self._clock():
            return
        try:
            load = load_in(report(reply.headers, over_grpc=self._over_grpc), self._metric)
        except DecodeError as error:
            if endpoint not in self._paused:
                text = "backend %r at %s: its load is unknown, its calls in flight count instead: %s"
                log.warning(text, self._choice.name, endpoint.address, error)
            self._paused[endpoint] = self._clock() + PAUSE
            return
        if load is not None:
            self._loads.note(endpoint, load, self._measure)
            if self._paused:
                self._paused.pop(endpoint, None)
