"""Tensors and questions that the tests of all forms of grps have in common."""

import numpy as np

from gateway.core.datatypes import Datatype
from gateway.core.errors import Reason
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import BytesForm, Request, Translate
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.grps import server
from gateway.protocols.grps.schema import GrpsMessage, Payload

LISTENER = ListenerSettings("any")
CODES = {
    Reason.INVALID_INPUT: 400,
    Reason.UNAUTHENTICATED: 401,
    Reason.MODEL_NOT_FOUND: 404,
    Reason.TOO_LARGE: 413,
    Reason.OVERLOADED: 429,
    Reason.MODEL_ERROR: 500,
    Reason.UNSUPPORTED: 501,
    Reason.INVALID_OUTPUT: 502,
    Reason.UNREACHABLE: 503,
    Reason.TIMEOUT: 504,
}
"""The code of a status by the reason of its error."""


def numbers(name: str, datatype: Datatype, *values: object) -> Tensor:
    """A vector."""
    return tensor(name, np.array(values, datatype.dtype), datatype)


def texts(name: str, *elements: str | bytes) -> Tensor:
    """A vector of BYTES."""
    return tensor(name, np.array(elements, object))


def inference(*inputs: Tensor, model: str = "m", payload: str = "", form: BytesForm = "text") -> Request:
    """What a client of another protocol asks, as a route's translate settings have it."""
    translate = Translate(payload=payload, bytes=form)
    return Request(Operation.INFER, model, inputs=inputs, translate=translate)


def asked(payload: Payload, *inputs: Tensor, returns_ndarray: bool = False) -> Request:
    """What a client of grps asks."""
    grps = GrpsMessage("m", payload=payload, tensors=inputs)
    return server.decode_request(grps, Operation.INFER, Message(), LISTENER.model, returns_ndarray=returns_ndarray)
