"""The bytes that a Request or a Response was read from, for sending them on as they came.

Between two sides of the same wire form a body can go on without being written again, if it says what the value says and
nothing else: no unknown member, none that the gateway keeps for itself, nothing that is accepted but would be written
otherwise. The codec that read the body finds that out, then or when it is to write the value; nobody else has to.

Whoever changes a Request or a Response makes a new one with other tensors, outputs or parameters in it, and does not
have to know of this: the objects that were read are compared by identity, so a body is never sent for a value that it
does not say. Where fitting makes new tensors of the same data, the data is compared instead, by identity as well.
"""

from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from gateway.core.types import Buffer, Parameters, Request, RequestedOutput, Response, Tensor


class Original(Struct, frozen=True):
    """The body that a request or a response was read from, which goes on as it came if nothing has changed.

    - `form`: what the body is written in, known to the codec that set it.
    - `parts`: the body.
    - `tensors`, `outputs`, `parameters`: the objects in the value; `outputs` are those that a request asks for.
    - `id`, `model`, `version`: as they are in the body; None where it has none.
    - `evidence`: what the codec needs to find out whether the body says nothing else.
    """

    form: object
    parts: "tuple[Buffer, ...]"
    tensors: "tuple[Tensor, ...]"
    outputs: "tuple[RequestedOutput, ...]"
    parameters: "Parameters"
    id: object = None
    model: object = None
    version: object = None
    evidence: Any = None

    def is_of_request(self, request: "Request") -> bool:
        """Whether the request's tensors, outputs, parameters and id are still those that were read from the body. Model
        and version are not compared: some wires have them in the path."""
        return (
            self.tensors is request.inputs
            and self.outputs is request.outputs
            and self.parameters is request.parameters
            and self.id == request.id
        )

    def is_of_response(self, response: "Response") -> bool:
        """As `is_of_request`, of tensors and parameters. A reply has the names and the id of the client's request."""
        return self.tensors is response.outputs and self.parameters is response.parameters

    def has_data_of(self, tensors: "tuple[Tensor, ...]") -> bool:
        """Whether `tensors` hold the data that was read from the body, in the body's order: the very buffers, in the
        same datatypes. For wires that leave names or shapes out: those may be others, as fitting sets them."""
        own = self.tensors
        if len(own) != len(tensors):
            return False
        for read, given in zip(own, tensors, strict=True):
            if read.data is not given.data or read.datatype is not given.datatype:
                return False
        return True
