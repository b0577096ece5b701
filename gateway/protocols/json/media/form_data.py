"""Converts the parts of form data, or the fields of a web form, to the JSON text of an object with one member for each
part or field, and back.

The JSON form determines the kind of each part, which is a text, a JSON document (as in BentoML), or a file. The bytes
of a file become base64 in the JSON.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping

import numpy as np

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.json import write as write_json
from gateway.core.messages import Buffer
from gateway.protocols.json.media.json_texts import check_document, members
from gateway.protocols.json.media.multipart import FormPart

_FILE_TYPE, _JSON_TYPE = "application/octet-stream", "application/json"


@frozen
class FormFields:
    """The parts that a form describes, by name.

    `documents` are JSON. Parts that are in none of the three sets are files or text, depending on their contents."""

    files: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    documents: frozenset[str] = frozenset()

    def read(self, found: Mapping[str, FormPart], *, limit: int) -> bytes:
        """Return the JSON text of these parts. `limit` (`limits.message`) is the maximum size of the text, in bytes.

        Raises:
            DecodeError: a text is not UTF-8, or a document is not JSON. The message says which part.
            GatewayError: RESOURCE_EXHAUSTED if the JSON text would be larger.
        """
        if _MOST_A_BYTE * sum(len(part.content) for part in found.values()) > limit:
            self._check_size(found.values(), limit)
        return b"{%b}" % b",".join([b"%b:%b" % (write_json(part.name), self._value(part)) for part in found.values()])

    def _check_size(self, parts: Iterable[FormPart], limit: int) -> None:
        size = 0
        for part in parts:
            size += len(part.content) if part.name in self.documents else _size_as_json(part.content)
            if size > limit:
                text = f"as JSON the form data has more than {limit} bytes (limits.message) with part {part.name!r}"
                raise refusal(Reason.TOO_LARGE, f"{text}; send less, or raise the limit")

    def _value(self, part: FormPart) -> bytes:
        if part.name in self.documents:
            document = bytes(part.content)
            check_document(document, f"part {part.name!r}")
            return document
        if part.name in self.texts:
            return write_json(part.text)
        if part.name in self.files:
            return b'"%b"' % b64encode(part.content)
        try:
            return write_json(part.text)  # the reader rejects the part by name, or ignores it
        except DecodeError:
            return b'"%b"' % b64encode(part.content)

    def write(self, text: bytes) -> list[FormPart]:
        """Return the parts of the object in the compact JSON `text`."""
        return [self._part(name, value) for name, value in members(text).items()]

    def _part(self, name: str, value: bytes) -> FormPart:
        if name in self.files:
            # servers treat parts with a file name as files
            return FormPart(name, b64decode(value[1:-1]), _FILE_TYPE, name)
        if name in self.documents:
            return FormPart(name, value, _JSON_TYPE)
        given = json.loads(value)
        return FormPart(name, given.encode() if isinstance(given, str) else value)


_MOST_A_BYTE = 6
"""Maximum number of bytes in JSON for one byte of content. JSON strings represent a control character as `\\u0000`."""
_PIECE = 2**18

_SIZES = np.ones(256, np.uint8)
_SIZES[:32] = _MOST_A_BYTE
_SIZES[[*b'\b\t\n\f\r"\\']] = 2


def _size_as_json(content: Buffer) -> int:
    """Return the size of `content` as a JSON string, in bytes. UTF-8 counts as text with escapes, because a file can
    become text in a response. All other content counts as base64."""
    sizes = (
        int(_SIZES[np.frombuffer(content[at : at + _PIECE], np.uint8)].sum()) for at in range(0, len(content), _PIECE)
    )
    return sum(sizes) if _is_utf8(content) else len(content) * 4 // 3


def _is_utf8(content: Buffer) -> bool:
    try:
        str(content, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
