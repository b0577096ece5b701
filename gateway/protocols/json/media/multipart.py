"""Reads and writes form data, `multipart/form-data` (RFC 7578, RFC 2046 section 5.1): named parts that contain text or
a file.

The reader is strict. It rejects bytes before the first part or after the last part, parts without a name, duplicate
names, and transfer encodings. In names, quotes and line ends are written as `%22`, `%0D` and `%0A`, as in WHATWG's HTML
standard ("multipart/form-data encoding algorithm"), browsers, curl and Python clients.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.messages import Buffer
from gateway.protocols.json.media.media_types import check_charset, parse

_MOST_BOUNDARY = 70  # RFC 2046 section 5.1.1
_OWN_BOUNDARY = 32
"""Length of the boundaries that the gateway writes, in characters."""
_MOST_HEAD = 8192
"""Maximum size of the headers of one part, in bytes."""

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]*[0-9A-Za-z'()+_,./:=?-]")
_HEADER = re.compile(rf"({_TOKEN}):[ \t]*+([^\r\n]*+)\r\n")
_FORM_DATA = re.compile(r"form-data", re.IGNORECASE)
_PARAMETER = re.compile(rf'[ \t]*+;[ \t]*+({_TOKEN})=(?:"([^"]*+)"|([^";\s]++))')


@frozen
class FormPart:
    """One part. `content_type` is empty if the part specifies none. `filename` is None if the part is not a file."""

    name: str
    content: Buffer
    content_type: str = ""
    filename: str | None = None

    @property
    def text(self) -> str:
        """The content as text. Raises DecodeError if the content is not UTF-8, or if the part's headers specify another
        charset."""
        given = parse(self.content_type)
        if given is not None:
            check_charset(given)
        try:
            return bytes(self.content).decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"part {self.name!r} is not UTF-8") from error


def read(body: Buffer, content_type: str, *, parts: int) -> dict[str, FormPart]:
    """Return the parts of `body` by their names.

    The parts' contents are views of `body`. `content_type` is the message's Content-Type header. `parts`
    (`limits.json_values`) is the maximum number of parts.

    Raises:
        DecodeError: the boundary is missing, a part or the end is malformed, or a name occurs twice. The message says
            which part.
        GatewayError: RESOURCE_EXHAUSTED if the body has more parts.
    """
    data, mark = bytes(body), b"--" + _boundary(content_type)
    if not data.startswith(mark):
        raise DecodeError("form data does not begin with its boundary")
    found: dict[str, FormPart] = {}
    at, delimiter = len(mark), b"\r\n" + mark
    # RFC 2046, section 5.1.1: "it is sufficient that the boundary appear in its entirety following the CRLF"
    while not data.startswith(b"--", at):
        number = len(found) + 1
        if number > parts:
            text = f"form data with more than {parts} parts (limits.json_values); send fewer, or raise the limit"
            raise refusal(Reason.TOO_LARGE, text)
        end = data.find(delimiter, at)
        if end < 0 or not data.startswith(b"\r\n", at):
            raise DecodeError(f"part {number} of the form data does not begin or end with a boundary on its own line")
        part = _part(data, at + 2, end, number)
        if part.name in found:
            raise DecodeError(f"two parts of the form data have the name {part.name!r}; rename one")
        found[part.name] = part
        at = end + len(delimiter)
    if data[at + 2 :] not in (b"", b"\r\n"):
        raise DecodeError("bytes after the end of the form data")
    return found


def _boundary(content_type: str) -> bytes:
    given = parse(content_type)
    boundary = "" if given is None else given.parameters.get("boundary", "")
    if len(boundary) > _MOST_BOUNDARY or not _BOUNDARY.fullmatch(boundary):
        raise DecodeError(
            f"Content-Type is {content_type[:200]!r}, expected multipart/form-data with a boundary of 1 to "
            f"{_MOST_BOUNDARY} letters"
        )
    return boundary.encode()


def _part(data: bytes, start: int, end: int, number: int) -> FormPart:
    """Return the part between two boundaries."""
    # `start - 2` also finds the end of the headers in a part without headers, which begins with an empty line
    head_end = data.find(b"\r\n\r\n", start - 2, min(end, start + _MOST_HEAD))
    if head_end < 0:
        raise DecodeError(f"part {number} of the form data: its headers do not end within {_MOST_HEAD} bytes")
    headers = _headers(data[start : head_end + 2], number)
    disposition = _disposition(headers.get("content-disposition", ""), number)
    encoding = headers.get("content-transfer-encoding", "binary")
    if encoding.lower() not in ("binary", "8bit", "7bit"):
        raise DecodeError(
            f"part {disposition['name']!r} of the form data is in {encoding[:50]!r}, expected no encoding"
        )
    content = memoryview(data)[head_end + 4 : end]
    filename = disposition.get("filename", disposition.get("filename*"))
    return FormPart(disposition["name"], content, headers.get("content-type", ""), filename)


def _headers(head: bytes, number: int) -> Mapping[str, str]:
    """Return the headers of a part by name, in lower case."""
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"part {number} of the form data: its headers are not UTF-8") from error
    headers: dict[str, str] = {}
    at = 0
    while at < len(text):
        header = _HEADER.match(text, at)
        if header is None or header[1].lower() in headers:
            raise DecodeError(
                f"part {number} of the form data: {text[at : at + 40]!r} is not a header, or occurs twice"
            )
        headers[header[1].lower()] = header[2].rstrip(" \t")
        at = header.end()
    return headers


def _disposition(text: str, number: int) -> Mapping[str, str]:
    """Return the parameters of a Content-Disposition, which must include a `name`."""
    found: dict[str, str] = {}
    kind = _FORM_DATA.match(text)
    at = kind.end() if kind else -1
    while kind and at < len(text):
        parameter = _PARAMETER.match(text, at)
        if parameter is None or parameter[1].lower() in found:
            break
        found[parameter[1].lower()] = parameter[3] if parameter[2] is None else _unescaped(parameter[2])
        at = parameter.end()
    if at != len(text) or "name" not in found:
        expected = 'expected form-data; name="..."'
        raise DecodeError(f"part {number} of the form data: Content-Disposition is {text[:100]!r}, {expected}")
    return found


def _unescaped(text: str) -> str:
    return text.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")


def write(parts: Sequence[FormPart]) -> tuple[Buffer, ...]:
    """Return the form data of these parts, in pieces. The same parts always produce the same bytes."""
    heads = [_head(part) for part in parts]
    hashed = blake2b(digest_size=_OWN_BOUNDARY // 2)
    for head, part in zip(heads, parts, strict=True):
        hashed.update(head)
        hashed.update(part.content)
    # a text cannot contain a hash of itself
    boundary = hashed.hexdigest().encode()
    pieces: list[Buffer] = []
    for head, part in zip(heads, parts, strict=True):
        pieces += (b"--%b\r\n%b\r\n" % (boundary, head), part.content, b"\r\n")
    return (*pieces, b"--%b--\r\n" % boundary)


def content_type(pieces: Sequence[Buffer]) -> str:
    """Return the Content-Type for form data from `write`."""
    boundary = bytes(pieces[0][2 : 2 + _OWN_BOUNDARY])
    return f"multipart/form-data; boundary={boundary.decode()}"


def _head(part: FormPart) -> bytes:
    """Return the headers of a part, without the empty line after them."""
    lines = f'Content-Disposition: form-data; name="{_escaped(part.name)}"'
    if part.filename is not None:
        lines += f'; filename="{_escaped(part.filename)}"'
    if part.content_type:
        lines += f"\r\nContent-Type: {part.content_type}"
    return f"{lines}\r\n".encode()


def _escaped(text: str) -> str:
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
