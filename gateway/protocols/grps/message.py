"""What every grps message holds, whichever wire form it has: the JSON and the protobuf codec make it and write it."""

from gateway.core.types import Tensor
from gateway.core.values import value
from gateway.protocols.grps.words import UNKNOWN, Kind


@value
class GrpsStatus:
    """`Status`: a number of HTTP's, a text, and the flag that decides."""

    code: int = 0
    text: str = ""
    flag: int = UNKNOWN


@value
class GrpsMessage:
    """`GrpsMessage` of `grps.protos.v1`. `kind` is None where no member of `data_oneof` is set.

    `tensors` are the data, whatever the kind: those of gtensors; one unnamed BYTES `[1]` for str_data (content type
    `text`) and bin_data; one untyped for ndarray; for gmap a named `[1]` for each entry, BYTES of `s_s` with the
    content type `text`.
    """

    model: str = ""
    status: GrpsStatus | None = None
    kind: Kind | None = None
    tensors: tuple[Tensor, ...] = ()
