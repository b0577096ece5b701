"""Sends requests from a client of one protocol to a backend of another; the modules of the rows use it."""

from collections.abc import Awaitable, Callable

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Status
from gateway.core.frozen import frozen
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, RequestedOutput, Response
from gateway.core.tensors import Parameters, Tensor
from tests.contract import expectations as expect
from tests.contract.flavors import Dialect
from tests.contract.matrix import Matrix
from tests.contract.wire import LITERAL, or_error

FP64 = Datatype.FP64

NONE = ""
"""The client protocol cannot express the request."""
SAME, VALUE, ROUNDED, REFUSED = "same", "value", "rounded", "refused"

REFUSALS = (Status.INVALID_ARGUMENT, Status.UNIMPLEMENTED, Status.NOT_FOUND)
"""The errors that count as a refusal. Every other error makes the test fail."""


@frozen
class Asked:
    """A pair of client and server protocols in a running matrix."""

    matrix: Matrix
    front: Dialect
    back: Dialect

    async def infer(
        self, model: str, *inputs: Tensor, names: tuple[str, ...] = (), parameters: Parameters | None = None,
        version: str = "", id: str | None = None,
    ) -> Response | GatewayError | None:  # fmt: skip
        """Return the client's result of `model` for `inputs`, or None if the client cannot send them."""
        request = Request(
            Operation.INFER,
            model,
            version,
            id,
            inputs=expect.as_sent(inputs, self.front, self.back),
            outputs=tuple(map(RequestedOutput, names)),
            parameters=parameters or {},
            translate=LITERAL,
        )
        found = await self.tell(request)
        assert found is None or isinstance(found, Response | GatewayError)
        return found

    async def tell(self, request: Request) -> Answer | GatewayError | None:
        """Return the client's result, or None if the client cannot send the request."""
        if isinstance(or_error(lambda: self.front.asked(request)), GatewayError):
            return None
        try:
            return await self.matrix.ask(self.front, self.back, request)
        except GatewayError as error:
            return error


Observe = Callable[[Asked], Awaitable[str]]
"""Returns the result of one row, as a short text."""

POINT = expect.array("x", FP64, [1, 2, 3])


def word(found: Answer | GatewayError | None, describe: Callable[[Response], str]) -> str:
    """Return NONE, REFUSED, or the description of a Response."""
    if found is None:
        return NONE
    if isinstance(found, GatewayError):
        assert found.status in REFUSALS, found
        return REFUSED
    assert isinstance(found, Response)
    return describe(found)
