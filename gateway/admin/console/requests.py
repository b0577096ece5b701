"""The last requests in the format of the console's list: `/api/requests`."""

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
    """A completed request, with the data of the access log, which excludes header values, keys and tensors."""

    id: str
    at: datetime
    """When the request ended, in UTC."""
    client: str
    """`host:port`; empty over unix sockets."""
    principal: str
    listener: str
    """Empty for the call of a graph step, which has the same id as the request for the graph."""
    in_protocol: str
    operation: str
    model: str
    """The first 256 characters of the model's name in the request; empty if the request could not be decoded."""
    route: str
    backend: str
    """The backend that was called last. `out_protocol` and `endpoint` also describe the last call. Empty if no backend
    was called, and for a graph, because its steps have their own backends."""
    out_protocol: str
    endpoint: str
    status: str
    reason: str
    """Empty for requests that succeeded."""
    fault: Literal["", "caller", "server"]
    """The party that caused the error; empty for requests that succeeded."""
    code: int
    """The response status in the client's protocol; 0 if the protocol has no status codes."""
    cache: str
    """The result of the policy `cache`: `hit`, `shared` or `miss`; empty if the policy did not handle the request."""
    read_for: str
    """The reason why the gateway decoded the request's content, such as `translate.cast`; `nothing` if it did not
    decode the content; empty if no route matched."""
    tries: int
    retries: int
    bytes_in: int
    bytes_out: int
    queued: float
    """Seconds that the request waited in backend queues."""
    upstream: float
    """Total duration of all attempts, in seconds."""
    seconds: float
    """Seconds from the request's arrival to the end of the response."""
    losses: list[str]
    """The information that was lost in the conversion between protocols."""


class ListedRequests(BaseModel):
    """The last requests that match, newest first, and explanations of their error reasons."""

    requests: list[ListedRequest]
    matching: int
    """Total number of matching requests; `requests` can contain fewer."""
    kept: int
    """Total number of stored requests."""
    reasons: dict[str, ExplainedReason]


@frozen
class Search:
    """Conditions that a request must meet. An empty condition matches every request. `id`, `model` and `principal`
    match parts of the values, ignoring case; with `exactly`, `model` and `principal` must be equal. The other
    conditions must be equal to the request's values, except that the status FAILED matches every failed request."""

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
    """Return up to `most` of the matching requests as a JSON object, a ListedRequests. A search for a backend also
    finds the calls of graph steps. `since_1970` is the Unix time at which the requests' clock was 0."""
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
