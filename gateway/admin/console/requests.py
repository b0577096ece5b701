"""The last requests, as the page lists them: `/api/requests`."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import asdict
from pydantic import BaseModel

from gateway.admin.console.reasons import ExplainedReason, explained
from gateway.admin.console.summary import readable
from gateway.core.errors import Status
from gateway.core.frozen import frozen
from gateway.observing.recent import RecentRequest, has_failed

FAILED = "failed"
"""In place of a status: all but requests that succeeded."""
STATUSES = (FAILED, *(each.name for each in Status))
"""The statuses that can be searched for."""


class ListedRequest(BaseModel):
    """A request that has ended. It has what the access log tells: no values of headers, no keys, no tensors."""

    id: str
    at: datetime
    """When it ended, in UTC."""
    client: str
    """`host:port`; empty over unix sockets."""
    principal: str
    listener: str
    in_protocol: str
    operation: str
    model: str
    """As the client named it, its first 256 characters; empty if the request could not be read."""
    route: str
    backend: str
    """The one that was asked last, and so are `out_protocol` and `endpoint`; empty if none was."""
    out_protocol: str
    endpoint: str
    status: str
    reason: str
    """Empty for requests that succeeded."""
    code: int
    """The wire's own status of the reply; 0 where replies have none."""
    cache: str
    """What the policy `cache` did: `hit`, `shared` or `miss`; empty without it."""
    read_for: str
    """What its content was read for, such as `translate.cast`; `nothing` if it passed unread; empty without a route."""
    tries: int
    retries: int
    bytes_in: int
    bytes_out: int
    queued: float
    """Seconds in queues of backends."""
    upstream: float
    """Seconds of all tries together."""
    seconds: float
    """From its arrival to the end of the reply."""
    losses: list[str]
    """Of a translation."""


class ListedRequests(BaseModel):
    """The last requests that match, the newest first, and what the reasons of their errors mean."""

    requests: list[ListedRequest]
    matching: int
    """All that match; `requests` may have fewer."""
    kept: int
    """All that are kept."""
    reasons: dict[str, ExplainedReason]


@frozen
class Search:
    """Conditions of requests. Empty ones match all. `id`, `model` and `principal` are parts of those of the request, in
    any case of letters; the others are equal to them, but for the status FAILED. `exactly`: `model` and `principal` are
    equal to them, too."""

    id: str = ""
    model: str = ""
    principal: str = ""
    status: str = ""
    listener: str = ""
    route: str = ""
    backend: str = ""
    exactly: bool = False

    def matches(self, request: RecentRequest) -> bool:
        """Whether all conditions are met."""
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


def listed(requests: Iterable[RecentRequest], search: Search, most: int, since_1970: float) -> dict[str, Any]:
    """At most so many of the requests that match as ListedRequests, a JSON object. `since_1970`: the Unix time at which
    the clock of the requests was 0."""
    kept = list(requests)
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
    found |= {name: round(found[name], 6) for name in ("queued", "upstream", "seconds")}
    return found
