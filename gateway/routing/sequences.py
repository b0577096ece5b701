"""Remembers which endpoint holds the state of a client's sequence of requests (Triton's stateful models)."""

from collections import OrderedDict
from collections.abc import Container
from typing import TypeAlias

from gateway.core.errors import invalid_input
from gateway.core.types import ParameterValue, Request
from gateway.routing.endpoint import Endpoint

MOST_SEQUENCES = 4096
"""The number of sequences remembered: clients choose their ids, and may never end them."""
LONGEST_SEQUENCE = 128
"""Characters of a `sequence_id` that is text: Triton takes no more."""

SequenceKey: TypeAlias = tuple[str, ParameterValue]
"""The model's name and the `sequence_id`, a number or a text."""


def sequence_of(request: Request) -> SequenceKey | None:
    """The sequence that `request` belongs to, or None.

    Raises:
        GatewayError: INVALID_ARGUMENT, the `sequence_id` is too long.
    """
    number = request.parameters.get("sequence_id")
    if not number:
        return None
    if isinstance(number, str) and len(number) > LONGEST_SEQUENCE:
        raise invalid_input(f"sequence_id has {len(number)} characters, at most {LONGEST_SEQUENCE} are allowed")
    return request.model, number


class Sequences:
    """The endpoints of the sequences used last."""

    def __init__(self) -> None:
        self._endpoints: OrderedDict[SequenceKey, Endpoint] = OrderedDict()

    def endpoint(self, key: SequenceKey) -> Endpoint | None:
        """The endpoint that has the sequence's state; None for a new sequence."""
        return self._endpoints.get(key)

    def forget(self, endpoint: Endpoint) -> None:
        """Forget the sequences whose state `endpoint` has: it gets no more calls."""
        for key in [key for key, each in self._endpoints.items() if each is endpoint]:
            del self._endpoints[key]

    def adopt(self, other: "Sequences", endpoints: Container[Endpoint]) -> None:
        """Take over the sequences of another backend whose state is at one of `endpoints`."""
        self._endpoints |= {key: each for key, each in other._endpoints.items() if each in endpoints}

    def note(self, request: Request, key: SequenceKey, endpoint: Endpoint) -> None:
        """Note that `endpoint` has the state from now on, or that `request` is the sequence's last."""
        self._endpoints.pop(key, None)
        if request.parameters.get("sequence_end"):
            return
        self._endpoints[key] = endpoint
        if len(self._endpoints) > MOST_SEQUENCES:
            self._endpoints.popitem(last=False)
