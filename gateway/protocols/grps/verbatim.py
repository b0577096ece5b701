"""Which GrpsMessages can go on as they came: those that are the very message that the gateway would write.

A message is turned into a Request or an answer, and that into the message for the other side, as ever. What is compared
is the message that was read with the one to be written: the same model, status and payload, and tensors with the same
names, datatypes and shapes and the same data, by identity. Writing it as JSON or protobuf is what is saved.

That keeps the digits of JSON. Protobuf loses none when it is written anew. Whether the bytes of a message say nothing
else than the message is found out in `json/verbatim.py`. Only gtensors are looked at: servers get an ndarray as
gtensors.
"""

from collections.abc import Callable
from enum import Enum, auto

from gateway.core.original import Original
from gateway.core.types import Buffer, Parameters
from gateway.protocols.grps.schema import GrpsMessage, GrpsStatus, Payload


class MessageForm(Enum):
    """The encoding that a message is written in."""

    JSON = auto()


_NO_PARAMETERS: Parameters = {}


def of_message(form: MessageForm, body: bytes, grps: GrpsMessage, evidence: object = None) -> Original:
    """The Original of the gtensors `grps`, read from `body`."""
    known = grps.status, evidence
    return Original(form, (body,), grps.tensors, (), _NO_PARAMETERS, None, grps.model, None, known)


def as_it_came(
    original: Original, form: MessageForm, written: GrpsMessage, says_no_more: Callable[[Original], bool]
) -> tuple[Buffer, ...] | None:
    """The body of `original` if it is in `form`, the gateway would write the same message, and it `says_no_more`."""
    if (
        original.form is not form
        or written.payload is not Payload.GTENSORS
        or original.model != written.model
        or not original.has_data_of(written.tensors)
    ):
        return None
    status: GrpsStatus | None = original.evidence[0]
    if status is not written.status and status != written.status:
        return None
    for read, given in zip(original.tensors, written.tensors, strict=True):
        if read.name != given.name or read.shape != given.shape:
            return None
    return original.parts if says_no_more(original) else None
