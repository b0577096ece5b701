"""Converts JSON lines (`application/jsonlines`, `application/x-ndjson`), one JSON document per line, to the JSON text
of the list of these documents, and back.

`in_pieces` also splits CSV into pieces of complete lines. One call into C processes each piece, and no other thread
runs during this call.
"""

from codecs import BOM_UTF8
from collections.abc import Iterator

import msgspec

from gateway.core.errors import DecodeError
from gateway.core.json import BLANKS
from gateway.core.messages import Buffer
from gateway.protocols.json.media.json_texts import DOCUMENTS, check_document, elements

_PIECE = (
    2**17
)  # bytes; for this size, the patterns of `csv` take less than a millisecond, and the Python values a few megabytes


def read(body: Buffer) -> bytes:
    """Return the JSON text of the list of documents in `body`.

    The last line can be blank. A body without lines is an empty list.

    Raises:
        DecodeError: a line is blank, or is not exactly one document. The message contains the line number. The list's
            reader checks for duplicate members and invalid characters in strings.
    """
    text = bytes(body).removeprefix(BOM_UTF8).replace(b"\r\n", b"\n")
    *_, last = text.rpartition(b"\n")
    text = text.removesuffix(last) if not last.strip(BLANKS) else text + b"\n"  # now empty, or ends with a line feed
    number = 1
    for piece in in_pieces(text):
        _check_lines(piece[:-1], number)
        number += piece.count(b"\n")
    return b"[%b]" % text[:-1].replace(b"\n", b",")


def _check_lines(lines: bytes, first: int) -> None:
    """Raise DecodeError unless each line is one document. `first` is the number of the first line."""
    # Other text on a line with a document could become a second document in the list. msgspec accepts any blanks
    # between documents. Therefore, the documents' texts, each on its own line, must equal the lines.
    try:
        documents = DOCUMENTS.decode_lines(lines)
        if len(documents) == lines.count(b"\n") + 1 and b"\n".join(documents) == lines:
            return
    except (msgspec.DecodeError, RecursionError):
        pass  # NaN, or an error
    for number, line in enumerate(lines.split(b"\n"), first):
        if not line.strip(BLANKS):
            raise DecodeError(f"line {number} is empty, expected a JSON document")
        check_document(line, f"line {number}")


def write(text: bytes) -> bytes:
    """Return a body with a line for each element of the list in the compact JSON `text`.

    Without elements, the body is empty."""
    return b"".join([b"%b\n" % b"\n".join(documents) for documents in elements(text)])


def in_pieces(text: bytes, start: int = 0) -> Iterator[bytes]:
    """Yield the lines of `text` from `start` on, in pieces of _PIECE bytes or of one line. `text` ends with a line
    feed."""
    at = start
    while at < len(text):
        # after the last line feed within _PIECE, or after a longer line
        end = text.rfind(b"\n", at, at + _PIECE) + 1 or text.find(b"\n", at) + 1
        yield text[at:end]
        at = end
