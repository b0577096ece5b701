"""Texts that are passed on byte for byte: those that say the gtensors that the gateway would write, and nothing else.

Numbers then keep their digits: `1e3` and `0.10` are not written as `1000.0` and `0.1`. A message is turned into a
Request or an answer, and that into the message for the other side, as ever; the message that was read is compared with
the one to be written. Only what was read by its type (`types`) goes on, without blanks around the document, except the
newline with which the C++ server ends its replies. str_data and gmap are written as fast, and servers get an ndarray as
gtensors.
"""

from gateway.core.original import Original
from gateway.core.types import Buffer
from gateway.protocols.grps.json.types import GtensorsMessage
from gateway.protocols.grps.schema import GrpsMessage, Payload

_ENDS = (b"}", b"}\n")
_OPENING = b"{"


def original_of(text: bytes, grps: GrpsMessage) -> Original | None:
    """The Original of `grps`, which was read by its type from `text`."""
    if not (text.startswith(_OPENING) and text.endswith(_ENDS)):
        return None
    return Original(GtensorsMessage, (text,), grps.tensors, (), {}, None, grps.model, evidence=grps.status)


def text_of(original: Original | None, written: GrpsMessage) -> tuple[Buffer, ...] | None:
    """The text of `original`, if it says what the gateway would write for `written`."""
    if (
        original is None
        or original.form is not GtensorsMessage
        or written.payload is not Payload.GTENSORS
        or original.model != written.model
        or original.evidence != written.status
        or not original.has_data_of(written.tensors)
    ):
        return None
    for read, given in zip(original.tensors, written.tensors, strict=True):
        if read.name != given.name or read.shape != given.shape:
            return None
    return original.parts
