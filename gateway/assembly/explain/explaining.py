"""Explanations in responses, for listeners with `allow_explain`.

If a request has the header or metadata `gateway-explain: 1`, the gateway records its spans and returns the header
`gateway-explanation`: compact JSON of at most LONGEST bytes, with these keys:

- `route`, `backend`, `model`, `version`: The matching route, its backend, and the backend's names for the model.
- `routes`: The names of the other routes in evaluation order, and the reasons why they do not match.
- `inputs`, `outputs`: `[before, after]` for each converted tensor, with the largest error of a `cast`.
- `spans`: The request's spans in start order, with `name`, `ms`, and attributes.
- `ms`: Milliseconds since the request arrived. `tries`, `status`, `reason`: The same values as in the access log.
- `shortened`: True if the gateway omitted parts because the explanation was too long.
"""

import json
from collections.abc import Mapping
from time import monotonic
from typing import Any

import orjson

from gateway.assembly.assembly import Assembly
from gateway.assembly.explain.decision import Decision, decide
from gateway.bridge.comparison import TensorChange, TensorShown
from gateway.config.listeners import ListenerConfig
from gateway.core.messages import Message
from gateway.core.principal import Permission
from gateway.core.protocol import Protocol
from gateway.core.record import Record
from gateway.core.requests import Request
from gateway.core.spans import Span
from gateway.core.transport import Destination, Select
from gateway.observing.recording import OnStart

ASKED, EXPLANATION = b"gateway-explain", b"gateway-explanation"
LONGEST = 4096
"""Maximum size of the header, in bytes. Clients and proxies often allow 8 KiB for all headers together."""
_MOST_ROUTES = 20
_FITTED = (("fit", "inputs"), ("fit reply", "outputs"))
"""The spans that record tensor changes, and the keys of these changes."""


class LiveExplanation:
    """The explanation of one request: the data that is not in the request's Record. The client must have the
    permissions `needed` to see the explanation."""

    def __init__(self, needed: tuple[Permission, ...]) -> None:
        self.decision: Decision | None = None
        self._needed = needed
        self._is_permitted = not needed

    def __call__(self, record: Record) -> list[tuple[bytes, bytes]]:
        """Return the response header, or no headers if the client does not have the permissions."""
        return [(EXPLANATION, compact(record, self.decision))] if self._is_permitted else []

    def routed(self, request: Request, decision: Decision) -> None:
        """Store the routing decision for the request, and whether the client has permission to see it."""
        self.decision = decision
        principal = request.principal
        if principal is not None:
            self._is_permitted = all(principal.has(each, request.model, request.listener) for each in self._needed)


def needed_to_explain(listener: ListenerConfig) -> tuple[Permission, ...]:
    """Return the permissions that explanations require. The permissions apply to listeners that require credentials,
    and to listeners whose errors do not reveal backends."""
    needed: tuple[Permission, ...] = () if listener.auth is None else ("explain",)
    return (*needed, "details") if listener.errors.detail == "brief" else needed


def on_start(needed: tuple[Permission, ...] = ()) -> OnStart:
    """Return a function that adds an explanation to a new Record if the client requests one and has the permissions
    `needed`."""

    def start(record: Record, message: Message, protocol: Protocol) -> None:
        if message.headers.get(ASKED.decode()) == "1":
            record.explain, record.tells = LiveExplanation(needed), True
            if record.events is None:
                record.events = []

    return start


def explaining_select(select: Select, assembly: Assembly, *, passthrough: bool = False) -> Select:
    """Wrap `select` to also store the routing decision of requests that require an explanation."""

    def selected(request: Request) -> Destination:
        explanation = request.record.explain
        if isinstance(explanation, LiveExplanation):
            explanation.routed(request, decide(request, assembly.config, assembly, passthrough=passthrough))
        return select(request)

    return selected


def compact(record: Record, decision: Decision | None) -> bytes:
    """Return the explanation as ASCII JSON of at most LONGEST bytes."""
    whole = _whole(record, decision)
    # Keys in the order in which they are dropped if the header is too long.
    for key in ("", "routes", "spans", "outputs", "inputs"):
        if key in whole:
            del whole[key]
            whole["shortened"] = True
        # Escape all non-ASCII characters, because many clients read headers as Latin-1.
        written = orjson.dumps(whole).decode()
        text = "".join(each if each.isascii() else json.dumps(each)[1:-1] for each in written).encode()
        if len(text) <= LONGEST:
            return text
    return b'{"shortened":true}'


def _whole(record: Record, decision: Decision | None) -> dict[str, Any]:
    found: dict[str, Any] = {"protocol": record.in_protocol, "operation": record.operation, "status": record.status}
    if record.reason:
        found["reason"] = record.reason
    if decision is not None:
        found |= {"route": decision.route, "routes": _routes(decision)}
        asked = next((each for each in decision.backends if each.backend == record.backend), None)
        if asked is not None:
            found |= {"backend": asked.backend, "model": asked.model, "version": asked.version}
    spans = record.events or []
    # In a graph, each step's span contains its own explanation.
    for name, key in () if decision is not None and decision.steps else _FITTED:
        changes = next((each.facts["tensors"] for each in spans if each.name == name and "tensors" in each.facts), ())
        assert isinstance(changes, tuple)
        if changes:
            found[key] = list(map(_change, changes))
    found |= {"tries": record.tries, "queued_ms": _milliseconds(record.queued)}
    found["spans"] = [_span(each) for each in spans if each.name != "request"]
    found["ms"] = _milliseconds(monotonic() - record.received)
    return found


def _routes(decision: Decision) -> list[list[str]]:
    tried: list[list[str]] = []
    for each in decision.routes:
        if each.taken or len(tried) == _MOST_ROUTES:
            break
        tried.append([each.route, "; ".join(each.unmet)])
    return tried


def _change(change: TensorChange) -> dict[str, Any]:
    found: dict[str, Any] = {"before": _tensor(change.before), "after": _tensor(change.after)}
    if change.cast is not None:
        found["cast_error"] = change.cast.error or 0
    return found


def _tensor(tensor: TensorShown | None) -> list[Any] | None:
    return None if tensor is None else [tensor.name, tensor.datatype, list(tensor.shape)]


def _span(span: Span) -> Mapping[str, Any]:
    ended = span.ended or monotonic()
    facts = {name: each for name, each in span.facts.items() if isinstance(each, str | int | float) and each != ""}
    error = {"error": span.error[:200]} if span.error else {}
    return {"name": span.name, "ms": _milliseconds(ended - span.began), **facts, **error}


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
