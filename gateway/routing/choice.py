"""Chooses the endpoint of a call on behalf of `slots`: the endpoint that the strategy selects, or another one if the
selected endpoint is down.

Endpoints that are down are left out, up to a maximum fraction of all endpoints. If more endpoints are down, the ones
that failed least recently still receive calls. All endpoints can be left out only if the fraction is 1; in this case,
calls fail immediately.
"""

import math
from collections.abc import Callable, Sequence

from gateway.core.errors import Reason, Status, TransportError
from gateway.routing.balancing import LeastInFlight, Strategy
from gateway.routing.endpoint import Endpoint
from gateway.routing.health import Ejection


class EndpointChoice:
    """Chooses among the endpoints of the backend `name` that are not drained. `most_left_out` is the maximum fraction
    of these endpoints to leave out."""

    def __init__(self, strategy: Strategy | None = None, most_left_out: float = Ejection().max_ejected_share) -> None:
        self.strategy = strategy or LeastInFlight()
        self.name = ""
        self.endpoints: tuple[Endpoint, ...] = ()
        self.on_change: Callable[[tuple[Endpoint, ...]], None] | None = None
        """A callback that receives the endpoints after they have changed."""
        self.drained: tuple[Endpoint, ...] = ()
        """The endpoints that receive no calls because they are drained."""
        self._share = most_left_out
        self._most_left_out = 0
        self._only: Endpoint | None = None

    def among(self, endpoints: tuple[Endpoint, ...]) -> None:
        """From now on, choose among these endpoints, except drained ones."""
        self.endpoints = tuple(each for each in endpoints if each.takes_calls)
        self.drained = tuple(each for each in endpoints if not each.takes_calls)
        count = len(self.endpoints)
        self._only = self.endpoints[0] if count == 1 else None
        # Keep at least one endpoint, unless the fraction is 1.
        self._most_left_out = count if self._share >= 1 else max(0, min(math.ceil(self._share * count), count - 1))
        if self.on_change is not None:
            self.on_change(endpoints)

    def choose(self, limit: int, tried: Sequence[Endpoint]) -> Endpoint | None:
        """Return the endpoint that the strategy chooses among endpoints that are not in `tried` and have fewer than
        `limit` calls in flight (0: no limit). If that endpoint is down, return another one. Return None if all
        endpoints are busy or in `tried`.

        Raises:
            TransportError: UNAVAILABLE (unreachable) if all endpoints are left out.
        """
        if (only := self._only) is not None and only.health.is_up and not tried and not 0 < limit <= only.in_flight:
            return only  # there is only one endpoint
        endpoint = self.strategy.choose(self.endpoints, limit, tried)
        if endpoint is None or endpoint.health.is_up:
            return endpoint
        return self._instead_of(endpoint, limit, tried)

    def left_out(self) -> list[Endpoint]:
        """Return the endpoints to leave out: the endpoints that are down, latest failure first, up to the maximum
        number."""
        out = [each for each in self.endpoints if each.health.is_left_out]
        out.sort(key=lambda each: -each.health.failed_at)
        return out[: self._most_left_out]

    def none_there(self, waited: float | None = None) -> TransportError:
        """Return the error for a call when the backend has no endpoints.

        `waited` is the time that the call waited for an endpoint, in seconds."""
        text = f"backend {self.name!r} has no endpoint at the moment"
        if self.drained:
            text = (
                f"backend {self.name!r}: all endpoints are drained "
                f"({', '.join(each.address for each in self.drained)}); undo a drain"
            )
        if waited is not None:
            text += f"; waited {waited:g} s for one (queue.wait_for_endpoints)"
        return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, sent=False)

    def _instead_of(self, chosen: Endpoint, limit: int, tried: Sequence[Endpoint]) -> Endpoint | None:
        """Return the endpoint to use when `chosen` is down: `chosen` itself if it is not left out, otherwise another
        endpoint. If all endpoints that are not left out are busy, return None, because the call can wait for a slot. If
        the call has already tried all of them, return the endpoint that failed least recently."""
        left_out = self.left_out()
        if len(left_out) == len(self.endpoints):
            raise self._all_down()
        unused = (*tried, *left_out)
        if chosen not in left_out:
            best: Endpoint | None = chosen
        elif any(each not in unused for each in self.endpoints):
            best = self.strategy.choose(self.endpoints, limit, unused)
        else:
            free = [each for each in self.endpoints if each not in tried and (not limit or each.in_flight < limit)]
            best = min(free, key=lambda each: each.health.failed_at, default=None)
        if best is not None and not best.health.is_up:
            best.health.try_again()
        return best

    def _all_down(self) -> TransportError:
        last = max(self.endpoints, key=lambda each: each.health.failed_at).health.last
        assert last is not None
        text = f"all endpoints of backend {self.name!r} are down: {last.text}"
        return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, sent=False)
