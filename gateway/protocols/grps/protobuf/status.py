"""`Status` in protobuf's form."""

from gateway.protobuf.wire import LENGTH, VARINT, fields, read_varint, varint
from gateway.protocols.grps.errors import OK
from gateway.protocols.grps.message import GrpsStatus
from gateway.protocols.grps.protobuf.fields import check_wire_type, read_text, write_field
from gateway.protocols.grps.schema import UNKNOWN

_CODE, _TEXT, _FLAG = 1, 2, 3


def read_status(message: memoryview) -> GrpsStatus:
    """The Status in `message`; flags that the schema does not have are kept. Raises DecodeError where it is none."""
    if message == _OK:
        return OK
    code, told, flag = 0, "", UNKNOWN
    for field in fields(message):
        if field.number == _CODE:
            check_wire_type(field, VARINT, "status: code")
            code = _int32(read_varint(message, field.value)[0])
        elif field.number == _TEXT:
            check_wire_type(field, LENGTH, "status: msg")
            told = read_text(message[field.value : field.end], "status: msg")
        elif field.number == _FLAG:
            check_wire_type(field, VARINT, "status: status")
            flag = _int32(read_varint(message, field.value)[0])
    return GrpsStatus(code, told, flag)


def _int32(number: int) -> int:
    """What protobuf takes a varint for: its lowest 32 bits, signed."""
    return (number + 2**31) % 2**32 - 2**31


def write_status(status: GrpsStatus) -> bytes:
    """`status` without what is 0 or empty, as protobuf leaves it out."""
    return _OK if status is OK else _write(status)


def _write(status: GrpsStatus) -> bytes:
    code = bytes((_CODE << 3,)) + varint(status.code % 2**64) if status.code else b""
    told = write_field(_TEXT, status.text.encode("utf-8", "replace")) if status.text else b""
    return code + told + (bytes((_FLAG << 3,)) + varint(status.flag % 2**64) if status.flag else b"")


_OK = _write(OK)
"""Nearly every reply's."""
