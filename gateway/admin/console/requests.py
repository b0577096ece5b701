"""The last requests in the format of the page's list: `/api/requests`."""

from datetime import UTC, datetime
from typing import Any, Literal

from msgspec.structs import asdict
from pydantic import BaseModel

from gateway.admin.console.reasons import ExplainedReason, explained
from gateway.admin.console.summary import fault_of, readable
from gateway.core.errors import Status
from gateway.core.frozen import frozen
from gateway.observing.recent import RecentRequest, RecentRequests, has_failed

FAILED = "failed"
"""The value that selects all failed requests, instead of a status."""
STATUSES = (FAILED, *(each.name for each in Status))
"""The possible statuses in a search."""


class ListedRequest(BaseModel):
    """A completed request, with the data of the access log, so without header values, keys and tensors."""

    id: str
    at: datetime
    """When the request ended, in UTC."""
    client: str
    """`host:port`; empty over unix sockets."""
    principal: str
    listener: str
    """Empty for a call of a graph's step, which has the id of the request for the graph."""
    in_protocol: str
    operation: str
    model: str
    """The first 256 characters of the model's name in the request; empty if the request could not be decoded."""
    route: str
    backend: str
    """The last called backend. `out_protocol` and `endpoint` also refer to the last call. Empty without a call,
    and for a graph, whose steps have their own backends."""
    out_protocol: str
    endpoint: str
    status: str
    reason: str
    """Empty for requests that succeeded."""
    fault: Literal["", "caller", "server"]
    """The party that caused the error; empty for requests that succeeded."""
    code: int
    """The protocol's own status of the response; 0 if the protocol has no such status."""
    cache: str
    """The result of the policy `cache`: `hit`, `shared` or `miss`; empty if the policy is not used."""
    read_for: str
    """The reason for decoding the request's content, such as `translate.cast`; `nothing` if it was not decoded; empty
    if no route matched."""
    tries: int
    retries: int
    bytes_in: int
    bytes_out: int
    queued: float
    """Seconds in queues of backends."""
    upstream: float
    """Total duration of all attempts, in seconds."""
    seconds: float
    """Seconds from the request's arrival to the end of the response."""
    losses: list[str]
    """The losses of a conversion."""


class ListedRequests(BaseModel):
    """The last requests that match, newest first, and the meaning of their errors' reasons."""

    requests: list[ListedRequest]
    matching: int
    """Number of all matching requests; `requests` can have fewer."""
    kept: int
    """Number of all stored requests."""
    reasons: dict[str, ExplainedReason]


@frozen
class Search:
    """Conditions of requests. Empty conditions match all requests. `id`, `model` and `principal` match parts of the
    request's values, ignoring case. The other conditions must be equal to the request's values, except for the status
    FAILED. If `exactly` is set, `model` and `principal` must also be equal."""

    id: str = ""
    model: str = ""
    principal: str = ""
    status: str = ""
    listener: str = ""
    route: str = ""
    backend: str = ""
    exactly: bool = False

    def matches(self, request: RecentRequest) -> bool:
        """Return True if the request meets all conditions."""
        kind = request.kind
        return (
            (has_failed(kind) if self.status == FAILED else self.status in ("", kind.status))
            and self.listener in ("", kind.listener)
            and self.route in ("", kind.route)
            and self.backend in ("", kind.backend)
            and self.id.casefold() in request.id.casefold()
            and self._has(self.model, request.model)
            and self._has(self.principal, kind.principal)
        )

    def _has(self, wanted: str, name: str) -> bool:
        if self.exactly:
            return wanted in ("", readable(name))
        return wanted.casefold() in name.casefold()


def listed(requests: RecentRequests, search: Search, most: int, since_1970: float) -> dict[str, Any]:
    """Return at most `most` of the matching requests as ListedRequests, a JSON object. A search for a backend also
    finds the calls of graph steps. `since_1970` is the Unix time at which the clock of the requests was 0."""
    kept = list(requests.with_steps() if search.backend else requests)
    matching = [each for each in kept if search.matches(each)]
    shown = matching[:most]
    return {
        "requests": [_listed(each, since_1970) for each in shown],
        "matching": len(matching),
        "kept": len(kept),
        "reasons": {name: each.model_dump() for name, each in explained({each.kind.reason for each in shown}).items()},
    }


def _listed(request: RecentRequest, since_1970: float) -> dict[str, Any]:
    found = {**asdict(request), **asdict(request.kind)}
    del found["kind"]
    at = datetime.fromtimestamp(found.pop("ended") + since_1970, UTC)
    found["at"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    found["model"] = readable(request.model)
    found["fault"] = fault_of(request.kind) if has_failed(request.kind) else ""
    found |= {name: round(found[name], 6) for name in ("queued", "upstream", "seconds")}
    return found
