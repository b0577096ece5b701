"""The JSON that Triton uses for a protobuf message. Model configurations and statistics are JSON over REST, and
messages over gRPC.

The format is protobuf's JSON mapping, with the schema's own field names, with all fields that cannot be absent, and
with 64-bit integers as numbers instead of strings.
"""

from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from gateway.core.errors import invalid_output
from gateway.core.protobuf.schema import Protobuf, ProtobufClass

_INT64 = frozenset({FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64})


def to_json(message: Protobuf) -> dict[str, Any]:
    """Return the JSON object of `message`."""
    document: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    _parse_integers(document, message.DESCRIPTOR)
    return document


def _parse_integers(document: dict[str, Any], kind: Descriptor) -> None:
    """Convert strings that contain 64-bit integers to numbers, in place."""
    for name, given in document.items():
        field = kind.fields_by_name[name]
        nested = field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            values = nested.fields_by_name["value"]
            if values.message_type is not None:
                for each in given.values():
                    _parse_integers(each, values.message_type)
            elif values.cpp_type in _INT64:
                document[name] = {key: int(each) for key, each in given.items()}
        elif nested is not None:
            for each in given if isinstance(given, list) else [given]:
                _parse_integers(each, nested)
        elif field.cpp_type in _INT64:
            document[name] = [int(each) for each in given] if isinstance(given, list) else int(given)


def from_json(document: object, kind: ProtobufClass, what: str) -> Protobuf:
    """Return the JSON object `document` as a message of this `kind`. Members that are not in the schema are ignored.

    Raises:
        GatewayError: INTERNAL if the type of a member differs from the schema. The message refers to the object as
            `what`.
    """
    try:
        return json_format.ParseDict(document, kind(), ignore_unknown_fields=True)
    except json_format.ParseError as error:
        raise invalid_output(f"{what} is no {kind.DESCRIPTOR.full_name}: {error}") from error
