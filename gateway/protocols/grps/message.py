"""What every grps message holds, whichever wire form it has: the JSON and the protobuf codec make it and write it."""

from gateway.core.frozen import frozen
from gateway.core.types import Tensor
from gateway.protocols.grps.schema import UNKNOWN, Kind


@frozen
class GrpsStatus:
    """`Status`: a number of HTTP's, a text, and the flag that decides."""

    code: int = 0
    text: str = ""
    flag: int = UNKNOWN


@frozen
class GrpsMessage:
    """`GrpsMessage` of `grps.protos.v1`. `kind` is None where no member of `data_oneof` is set.

    `tensors` are the data, whatever the kind: those of gtensors; one unnamed BYTES `[1]` for str_data (content type
    `text`) and bin_data; one of numbers for ndarray (untyped where it was read; none where the wire cannot hold it);
    for gmap a named `[1]` for each entry, of the datatype that its map has in `words.MAPS`, where BYTES of `s_s` have
    the content type `text`.

    In a message that is to be written every element of BYTES is UTF-8, but for bin_data and `s_b`.
    """

    model: str = ""
    status: GrpsStatus | None = None
    kind: Kind | None = None
    tensors: tuple[Tensor, ...] = ()
