"""Records which endpoint has the state of each client's sequence of requests (Triton's stateful models), for
`slots`."""

from collections import OrderedDict
from collections.abc import Container, Sequence
from typing import TypeAlias

from gateway.core.errors import Reason, invalid_input, refusal
from gateway.core.requests import Request
from gateway.core.tensors import ParameterValue
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import DrainState, Endpoint
from gateway.routing.waiting import WaitingCalls

MOST_SEQUENCES = 4096
"""The maximum number of recorded sequences. The limit is necessary because clients choose the ids, and might never end
their sequences."""
LONGEST_SEQUENCE = 128
"""The maximum length of a string `sequence_id`, in characters. Triton has the same limit."""

SequenceKey: TypeAlias = tuple[str, ParameterValue]
"""The model's name and the `sequence_id`, which is a number or a string."""


def sequence_of(request: Request) -> SequenceKey | None:
    """Return the sequence that `request` belongs to, or None.

    Raises:
        GatewayError: INVALID_ARGUMENT if the `sequence_id` is too long.
    """
    if request.unread is not None:  # a message with a sequence is always decoded
        return None
    number = request.parameters.get("sequence_id")
    if not number:
        return None
    if isinstance(number, str) and len(number) > LONGEST_SEQUENCE:
        raise invalid_input(f"sequence_id has {len(number)} characters, at most {LONGEST_SEQUENCE} are allowed")
    return request.model, number


class Sequences:
    """The endpoints of sequences: requests with the same `sequence_id` go to the endpoint that has the sequence's
    state."""

    def __init__(self) -> None:
        self._endpoints: OrderedDict[SequenceKey, Endpoint] = OrderedDict()

    def endpoint(self, key: SequenceKey) -> Endpoint | None:
        """Return the endpoint that has the sequence's state, or None for a new sequence."""
        return self._endpoints.get(key)

    def place(self, request: Request, key: SequenceKey, backend: str) -> Endpoint | None:
        """Return the endpoint for a request of the sequence, or None for a new sequence. While the endpoint is
        draining, the sequence can continue there for a limited time.

        Raises:
            GatewayError: FAILED_PRECONDITION if the endpoint is drained and the time for its sequences is over.
        """
        endpoint = self._endpoints.get(key)
        if endpoint is None or endpoint.takes_calls:
            return endpoint
        if request.parameters.get("sequence_start"):
            return None
        drain = endpoint.drain
        if drain is not None and drain.state is DrainState.DRAINING and drain.seconds_left:
            return endpoint
        text = f"the state of sequence {key[1]!r} was at endpoint {endpoint.address}, which is drained"
        text = f"backend {backend!r}: {text}; begin the sequence again (sequence_start)"
        raise refusal(Reason.FAILED_PRECONDITION, text)

    def take(
        self,
        request: Request,
        key: SequenceKey,
        choice: EndpointChoice,
        waiting: WaitingCalls,
        tried: Sequence[Endpoint],
    ) -> Endpoint | None:
        """Take a slot of the endpoint that has the sequence's state or, for a new sequence, of an endpoint from
        `choice`. Return the endpoint, or None if the request waits for the first endpoint.

        Raises:
            GatewayError: same as `place`; also RESOURCE_EXHAUSTED (overloaded) if the endpoint of the sequence has no
                free slot, and UNAVAILABLE if the backend has no endpoints.
        """
        endpoint = self.place(request, key, choice.name)
        if endpoint is None or endpoint in tried:
            endpoint = choice.choose(waiting.slots, tried)
        if endpoint is None or waiting.is_full(endpoint):
            if endpoint is None and not choice.endpoints:
                if waiting.waits_for_endpoint(request):
                    return None
                raise choice.none_there()
            # Keep the sequence where its state is, so the client's next attempt gets the same endpoint.
            text = f"backend {choice.name!r}: the endpoint of sequence {key[1]!r} is busy; try again later"
            raise refusal(Reason.OVERLOADED, text)
        self.note(request, key, endpoint)
        endpoint.take()
        return endpoint

    def count(self, endpoint: Endpoint) -> int:
        """Return the number of sequences whose state is on `endpoint`."""
        return sum(each is endpoint for each in self._endpoints.values())

    def forget(self, endpoint: Endpoint) -> None:
        """Forget the sequences whose state is on `endpoint`, because the endpoint receives no more calls."""
        for key in [key for key, each in self._endpoints.items() if each is endpoint]:
            del self._endpoints[key]

    def adopt(self, other: "Sequences", endpoints: Container[Endpoint]) -> None:
        """Take over the sequences of another backend whose state is on one of `endpoints`."""
        self._endpoints |= {key: each for key, each in other._endpoints.items() if each in endpoints}

    def note(self, request: Request, key: SequenceKey, endpoint: Endpoint) -> None:
        """Record that `endpoint` now has the sequence's state or, if `request` is the last one, that the sequence has
        ended."""
        self._endpoints.pop(key, None)
        if request.parameters.get("sequence_end"):
            return
        self._endpoints[key] = endpoint
        if len(self._endpoints) > MOST_SEQUENCES:
            self._endpoints.popitem(last=False)
