"""Any message, against protobuf's own library: it reads what is written here, and what it writes is read here."""

from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core import datatypes
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.protobuf.wire import fields
from gateway.protocols.grps.gmap import MAPS
from gateway.protocols.grps.protobuf.message import read_message, write_message
from gateway.protocols.grps.schema import GrpsMessage, GrpsStatus, Payload
from tests.limits import examples
from tests.protocols.grps.protobuf.upb import DATA, GRPS, TEXTS, comparable, written

STATUSES = st.none() | st.builds(GrpsStatus, st.integers(-(2**31), 2**31 - 1), TEXTS, st.sampled_from([0, 1, 2]))
MESSAGES = st.builds(lambda model, status, data: GrpsMessage(model, status, *data), TEXTS, STATUSES, DATA)
SLOW = settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@SLOW
@given(MESSAGES)
def test_both_write_the_same_and_read_the_same(message: GrpsMessage) -> None:
    library, own = written(message), b"".join(write_message(message))
    assert GRPS.FromString(own) == library
    if message.payload is not Payload.GMAP:  # maps have no order
        assert own == library.SerializeToString(deterministic=True)
    for octets in (own, library.SerializeToString()):
        assert comparable(in_order(read_message(octets, 2**20))) == comparable(in_order(message))


def in_order(message: GrpsMessage) -> GrpsMessage:
    if message.payload is not Payload.GMAP:
        return message
    entries = tuple(sorted(message.tensors, key=lambda each: each.name))
    return GrpsMessage(message.model, message.status, message.payload, entries)


@SLOW
@given(MESSAGES, st.data())
def test_corrupt_bytes_are_refused_or_read_as_the_library_reads_them(message: GrpsMessage, data: st.DataObject) -> None:
    octets = bytearray(b"".join(write_message(message)))
    for _ in range(data.draw(st.integers(1, 3))):
        if octets:
            octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_message(octets, 2**20)
    except (DecodeError, GatewayError):
        return
    if sum(field.number > 2 for field in fields(octets)) > 1:
        return  # of the members of the oneof only the last is looked at, of a tensor in pieces the whole
    if found.payload is Payload.GMAP and has_entries_set_aside(bytes(octets)):
        return
    # the library quiets signalling NaNs, and has no FP16
    has_floats = any(each.datatype.kind is datatypes.Kind.FLOAT for each in found.tensors)
    if found.payload is not Payload.NDARRAY and not has_floats:
        assert written(found).SerializeToString(deterministic=True) == without_unknown(bytes(octets))


def has_entries_set_aside(octets: bytes) -> bool:
    """Of an entry of a map with a field that it does not know upb keeps the whole as unknown. C++ ignores the field
    alone, as it is done here: an entry is a message like any other."""
    return any(field.field_number <= len(MAPS) for field in UnknownFieldSet(GRPS.FromString(octets).gmap))


def without_unknown(octets: bytes) -> bytes:
    message = GRPS.FromString(octets)
    message.DiscardUnknownFields()
    whole: bytes = message.SerializeToString(deterministic=True)
    return whole
