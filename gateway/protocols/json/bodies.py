"""Reads and writes the bodies of one template in one media type. A MessageBody reads bodies into BodyContents, and
writes bodies from tensors, words and parameters.

The media type determines how the template's document is written. JSON, CSV, JSON lines and form data are all converted
to JSON text, and share one reader. A body of any other type is one tensor or one string. `compiled` creates a
MessageBody for each template of a form.
"""

from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from typing import Protocol

from gateway.core import bytes_elements, npy
from gateway.core.datatypes import BYTES, Kind
from gateway.core.errors import DecodeError, ElementError, GatewayError, invalid_input
from gateway.core.frozen import replace
from gateway.core.json.writing import REFUSED
from gateway.core.messages import Buffer, Headers, as_bytes
from gateway.core.models import TensorSpec
from gateway.core.protocol import Limits
from gateway.core.tensors import Shape, Tensor
from gateway.protocols.json.arrangement import Arrangement
from gateway.protocols.json.form import ABSENT, FormError, Place, Template
from gateway.protocols.json.media import csv, lines, media_types, multipart, web_forms
from gateway.protocols.json.media.form_data import FormFields
from gateway.protocols.json.media.media_types import MediaType
from gateway.protocols.json.media.multipart import FormPart
from gateway.protocols.json.misfit import Fit, MisfitError, UnwrittenError, better, explained, without_frames
from gateway.protocols.json.places import BodyContents
from gateway.protocols.json.reading import BodyReader
from gateway.protocols.json.templates import (
    Anything,
    Constant,
    FixedList,
    Member,
    Node,
    Object,
    ParameterPlace,
    Role,
    RowList,
    Slot,
    Spelling,
    TensorPlace,
    Word,
    children,
    parse_body,
    walk_all,
)
from gateway.protocols.json.tensor_form import TensorForm, filled
from gateway.protocols.json.tensor_reading import in_declared_shape, read_tensor
from gateway.protocols.json.tensor_writing import write_tensor
from gateway.protocols.json.writing import BodyWriter, MessageContents


class MessageBody(ABC):
    """The bodies of one template. `nodes` are the template's alternatives, and `words` are the words in them."""

    nodes: tuple[Node, ...] = ()
    words: frozenset[Word] = frozenset()

    @abstractmethod
    def read(self, body: Buffer, headers: Headers, limits: Limits) -> BodyContents:
        """Return the contents of a body. `headers` are the headers of the message.

        Raises:
            DecodeError: the body does not match the template. The message gives the reason.
            GatewayError: RESOURCE_EXHAUSTED if the body exceeds a limit.
        """

    @abstractmethod
    def write(self, said: MessageContents) -> tuple[Buffer, ...]:
        """Return the body that contains the values in `said`, in parts.

        Raises:
            GatewayError: INVALID_ARGUMENT if a value has no placeholder, or a placeholder has no value. The message
                says which.
        """

    def headers(self, declared: Headers, parts: tuple[Buffer, ...]) -> Headers:
        """Return the headers of a message whose body is `parts`. `declared` are the headers that the form declares."""
        return declared


class NoBody(MessageBody):
    """A message without a body, for which the form declares no template."""

    def read(self, body: Buffer, headers: Headers, limits: Limits) -> BodyContents:
        if bytes(body).strip():
            raise MisfitError("unexpected body; the form has no body, so send none")
        return BodyContents()

    def write(self, said: MessageContents) -> tuple[Buffer, ...]:
        if said.tensors:
            raise invalid_input(
                f"tensor {said.tensors[0].name!r} has no place in the form, which has no body; leave it out"
            )
        _refuse_parameters(said)
        return ()


def _refuse_parameters(said: MessageContents) -> None:
    for name in said.parameters:
        if name not in said.elsewhere:
            raise invalid_input(f"parameter {name!r} has no place in the form; leave it out")


class JsonBody(MessageBody):
    """Bodies in JSON, or in a format that is converted to JSON. Reading and writing use the first alternative that
    matches."""

    nan = ""
    """The form of NaN and infinities if the route and the form set none.

    Empty means that NaN and infinities are errors."""
    spelling = "JSON"
    """The name of the format in error messages."""

    def __init__(
        self,
        nodes: tuple[Node, ...],
        specs: Mapping[str, TensorSpec],
        label: str,
        *,
        ignore_unknown: bool,
        nan: str = "",
    ) -> None:
        self.nodes = nodes
        self.nan = nan or self.nan
        self.words = frozenset(each.word for each in walk_all(nodes) if isinstance(each, Slot))
        self._readers = [BodyReader(each, specs, label, ignore_unknown=ignore_unknown) for each in nodes]
        self._only = self._readers[0] if len(nodes) == 1 else None
        self._writers = [BodyWriter(each, specs, label) for each in nodes]

    def to_json(self, body: Buffer, headers: Headers, limits: Limits) -> bytes:
        """Return the JSON text of a body."""
        return (body if isinstance(body, bytes) else as_bytes(body)).removeprefix(BOM_UTF8)

    def from_json(self, parts: tuple[bytes, ...]) -> tuple[Buffer, ...]:
        """Return the body for a JSON text."""
        return parts

    def read(self, body: Buffer, headers: Headers, limits: Limits) -> BodyContents:
        text = self.to_json(body, headers, limits)
        if not text or text.isspace():
            raise MisfitError(f"an empty body, expected {self.spelling}")
        if self._only is not None:
            return self._only.read(text, limits)
        errors: list[DecodeError] = []
        too_large: GatewayError | None = None
        unequal: BodyContents | None = None
        for at, reader in enumerate(self._readers):
            try:
                found = reader.read(text, limits)
                if found.unequal is None:
                    return replace(found, alternative=at) if at else found
                unequal = unequal or found  # another alternative might match the entire body
            except DecodeError as error:
                errors.append(without_frames(error))
            except GatewayError as error:
                too_large = too_large or error  # another alternative might have no rows
        if unequal is not None:
            return unequal
        if too_large is not None:
            raise too_large
        raise explained(errors, "alternatives")

    def write(self, said: MessageContents) -> tuple[Buffer, ...]:
        best: UnwrittenError | None = None
        if self.nan:
            said = self.with_nan(said)
        for writer in (self._writers[said.alternative], *self._writers) if said.alternative else self._writers:
            fit = Fit.PLACES
            try:
                if said.parameters:
                    writer.check_parameters(said.parameters, said.elsewhere)
                placed = writer.arrangement.arrange(said.tensors)
                fit = Fit.SHAPES
                return self.from_json(writer.write(placed, said))
            except ElementError as error:
                best = better(best, ElementError(error.message.replace("which JSON", f"which {self.spelling}")), fit)
            except GatewayError as error:
                best = better(best, error, fit)
        assert best is not None
        raise best

    def with_nan(self, said: MessageContents) -> MessageContents:
        """Return the contents with the `nan` setting that applies to this body."""
        return said if said.nan else replace(said, nan=self.nan)


class JsonLines(JsonBody):
    """JSON lines, one document for each element of the list."""

    spelling = "JSON lines"

    def to_json(self, body: Buffer, headers: Headers, limits: Limits) -> bytes:
        return lines.read(body)

    def from_json(self, parts: tuple[bytes, ...]) -> tuple[Buffer, ...]:
        return (lines.write(b"".join(parts)),)


class CsvBody(JsonBody):
    """CSV, one row for each element of the list. Unlike JSON, CSV can represent NaN and infinities."""

    nan = "literal"

    spelling = "CSV"

    def __init__(
        self,
        nodes: tuple[Node, ...],
        specs: Mapping[str, TensorSpec],
        label: str,
        *,
        ignore_unknown: bool,
        nan: str,
        has_header: bool,
    ) -> None:
        super().__init__(nodes, specs, label, ignore_unknown=ignore_unknown, nan=nan)
        self._has_header = has_header
        self._kinds = {name: kind for node in nodes for name, kind in _kinds(node, specs).items()}
        self._is_flat = all(_is_flat(node, specs) for node in nodes)

    def to_json(self, body: Buffer, headers: Headers, limits: Limits) -> bytes:
        return csv.read(
            body,
            header=self._has_header,
            kind_of=self._kind_of,
            columns=limits.json_values,
            limit=limits.message,
            flat=self._is_flat,
        )

    def from_json(self, parts: tuple[bytes, ...]) -> tuple[Buffer, ...]:
        return (csv.write(b"".join(parts), header=self._has_header),)

    def with_nan(self, said: MessageContents) -> MessageContents:
        # "" would mean CSV's default, so rejection has its own value
        return replace(said, nan=REFUSED) if said.nan == "error" else super().with_nan(said)

    def _kind_of(self, column: str) -> Kind | None:
        return self._kinds.get(column, self._kinds.get(""))


def _is_flat(node: Node, specs: Mapping[str, TensorSpec]) -> bool:
    """Return True if the table is a tensor that is known to have one dimension."""
    place = node.row if isinstance(node, RowList) else node
    return isinstance(place, TensorPlace) and place.name in specs and len(specs[place.name].shape) == 1


def _kinds(node: Node, specs: Mapping[str, TensorSpec]) -> dict[str, Kind]:
    """Return a map to the kinds of the declared columns from their names or positions. The empty name stands for all
    columns."""
    if isinstance(node, TensorPlace):
        return {"": specs[node.name].datatype.kind} if node.name in specs else {}
    row = node.row if isinstance(node, RowList) else node
    if isinstance(row, TensorPlace):
        return _kinds(row, specs)
    named: Sequence[tuple[str, Node]] = ()
    if isinstance(row, Object):
        named = [(each.key, each.node) for each in row.members]
    elif isinstance(row, FixedList):
        named = [(str(at), each) for at, each in enumerate(row.nodes)]
    return {
        name: specs[each.name].datatype.kind
        for name, each in named
        if isinstance(each, TensorPlace) and each.name in specs
    }


class PartsCodec(Protocol):
    """Converts named parts to a body and back. The modules `multipart` and `web_forms` implement this interface."""

    def read(self, body: Buffer, content_type: str, *, parts: int) -> dict[str, FormPart]: ...

    def write(self, parts: Sequence[FormPart]) -> tuple[Buffer, ...]: ...

    def content_type(self, pieces: Sequence[Buffer]) -> str: ...


class FormData(JsonBody):
    """Form data, one part for each member of the object.

    `$x` with the datatype BYTES is a file, other strings are plain text, and everything else is JSON."""

    spelling = "form data"

    def __init__(
        self, node: Object, specs: Mapping[str, TensorSpec], label: str, codec: PartsCodec, *, ignore_unknown: bool
    ) -> None:
        members, files, texts = [], [], []
        for each in node.members:
            inner = each.node
            if isinstance(inner, TensorPlace) and _is_file(inner, specs):
                files.append(each.key)
                inner = TensorPlace(inner.name, Spelling.BYTES)
            elif _is_text(inner):
                texts.append(each.key)
            members.append(Member(each.key, inner, each.optional))
        super().__init__((Object(tuple(members)),), specs, label, ignore_unknown=ignore_unknown)
        documents = {each.key for each in members if not isinstance(each.node, Anything)}.difference(files, texts)
        self._fields = FormFields(frozenset(files), frozenset(texts), frozenset(documents))
        self._codec = codec

    def to_json(self, body: Buffer, headers: Headers, limits: Limits) -> bytes:
        found = self._codec.read(body, headers.get("content-type"), parts=limits.json_values)
        return self._fields.read(found, limit=limits.message)

    def from_json(self, parts: tuple[bytes, ...]) -> tuple[Buffer, ...]:
        return self._codec.write(self._fields.write(b"".join(parts)))

    def headers(self, declared: Headers, parts: tuple[Buffer, ...]) -> Headers:
        """Return the declared headers. If the format needs a boundary, Content-Type states the boundary of `parts`."""
        told = (b"content-type", self._codec.content_type(parts).encode())
        return Headers([told if name == b"content-type" else (name, value) for name, value in declared.raw])


def _is_file(place: TensorPlace, specs: Mapping[str, TensorSpec]) -> bool:
    spec = specs.get(place.name)
    return place.spelling is Spelling.NESTED and (spec is None or spec.datatype is BYTES)


def _is_text(node: Node) -> bool:
    """Return True if a part is plain text and not JSON. Words and parameters are plain text, as in a query."""
    match node:
        case TensorPlace(_, spelling):
            return spelling in (Spelling.TEXT, Spelling.BYTES, Spelling.BASE64, Spelling.NPY, Spelling.COMMAS)
        case Constant(value):
            return isinstance(value, str)
        case Slot() | ParameterPlace():
            return True
    return False


class OneTensor(MessageBody):
    """Bodies that are one tensor."""

    def __init__(self, node: TensorPlace, specs: Mapping[str, TensorSpec], label: str) -> None:
        self.nodes = (node,)
        spec = specs.get(node.name)
        self._form = TensorForm(node, node.name if spec else "", f"{label} {node.name!r}", spec, 0)
        self._arrangement = Arrangement(node, label, declared=bool(specs))


class TypedBytes(OneTensor):
    """Bodies whose bytes are one tensor."""

    @abstractmethod
    def tensor(self, body: Buffer, label: str) -> Tensor:
        """Return the tensor in a body. Raise DecodeError, with the tensor's label in the message, if the body is
        invalid."""

    @abstractmethod
    def body(self, tensor: Tensor, label: str) -> tuple[Buffer, ...]:
        """Return the body of a tensor. Raise GatewayError (INVALID_ARGUMENT) if a body cannot represent the tensor."""

    def read(self, body: Buffer, headers: Headers, limits: Limits) -> BodyContents:
        form = self._form
        tensor = self.tensor(body, form.label)
        found = Tensor(form.name, tensor.datatype, tensor.shape, tensor.data, tensor.content_type)
        return BodyContents((in_declared_shape(form, found),))

    def write(self, said: MessageContents) -> tuple[Buffer, ...]:
        _refuse_parameters(said)
        [tensor] = self._arrangement.arrange(said.tensors).values()
        return self.body(tensor, self._form.label)


class NumpyFile(TypedBytes):
    """`.npy` files, without pickles."""

    def tensor(self, body: Buffer, label: str) -> Tensor:
        return npy.decode(body, label)

    def body(self, tensor: Tensor, label: str) -> tuple[Buffer, ...]:
        if tensor.datatype is BYTES:
            raise invalid_input(f"{label} is BYTES, which a .npy file can hold as pickles only")
        return npy.encode(npy.storable(tensor))


class RawBytes(TypedBytes):
    """Bodies of bytes in any media type, such as images. Each body is one BYTES element."""

    def __init__(self, node: TensorPlace, specs: Mapping[str, TensorSpec], label: str) -> None:
        super().__init__(node, specs, label)
        shape = filled(specs[node.name].shape, 1) if node.name in specs else None
        self._shape: Shape = (1,) if shape is None else shape

    def tensor(self, body: Buffer, label: str) -> Tensor:
        return Tensor("", BYTES, self._shape, bytes_elements.pack([bytes(body)]))

    def body(self, tensor: Tensor, label: str) -> tuple[Buffer, ...]:
        if tensor.datatype is not BYTES or tensor.elements != 1:
            raise invalid_input(f"{label} is {tensor.datatype} {list(tensor.shape)}, expected one element of BYTES")
        return (memoryview(tensor.data)[4:],)  # without the length of the element


class TextTensor(RawBytes):
    """Bodies of UTF-8 text. Each body is one BYTES element."""

    def tensor(self, body: Buffer, label: str) -> Tensor:
        _decoded(body)
        return super().tensor(body, label)

    def body(self, tensor: Tensor, label: str) -> tuple[Buffer, ...]:
        parts = super().body(tensor, label)
        try:
            _decoded(parts[0])
        except DecodeError as error:
            raise invalid_input(f"{label} is no text: {error}") from error
        return parts


class NumberText(OneTensor):
    """Text bodies that contain numbers. `$x|numbers` stands for one number, and `$x|commas` for any number of
    numbers."""

    def read(self, body: Buffer, headers: Headers, limits: Limits) -> BodyContents:
        text = bytes(body).strip()
        if not text or b'"' in text:
            found = "a text with quotes" if text else "an empty body"
            raise MisfitError(f"{self._form.label}: {found}, expected numbers")
        return BodyContents((read_tensor(self._form, b'"%b"' % text, None, limits),))

    def write(self, said: MessageContents) -> tuple[Buffer, ...]:
        _refuse_parameters(said)
        [tensor] = self._arrangement.arrange(said.tensors).values()
        text = b"".join(write_tensor(self._form, tensor, said))
        if not tensor.elements:
            raise invalid_input(f"{self._form.label} has no elements: an empty body would be no numbers")
        if not text.startswith(b'"'):
            label, shape = self._form.label, list(tensor.shape)
            raise invalid_input(
                f"{label} has the shape {shape}, expected one number; `|commas` in the form has several"
            )
        return (text[1:-1],)


class TextWord(MessageBody):
    """Text bodies that contain one Word, such as an error message."""

    def __init__(self, node: Slot) -> None:
        self.nodes = (node,)
        self._word = node.word

    def read(self, body: Buffer, headers: Headers, limits: Limits) -> BodyContents:
        return BodyContents(words={self._word: _decoded(body).strip()})

    def write(self, said: MessageContents) -> tuple[Buffer, ...]:
        word = said.words.get(self._word)
        if word is None:
            raise invalid_input(f"nothing in the message is {self._word.value}")
        return (str(word).encode("utf-8", "replace"),)


def _decoded(body: Buffer) -> str:
    try:
        return bytes(body).decode()
    except UnicodeDecodeError as error:
        raise MisfitError("not UTF-8, expected a text") from error


# --- making bodies ---

_PARTS: Mapping[str, PartsCodec] = {"multipart/form-data": multipart, web_forms.CONTENT_TYPE: web_forms}
_LINES = frozenset({"application/jsonlines", "application/x-ndjson", "application/x-jsonlines", "application/jsonl"})


def make_body(
    template: Template,
    media_type: str,
    role: Role,
    place: Place,
    specs: Mapping[str, TensorSpec],
    *,
    ignore_unknown: bool,
    nan: str = "",
) -> MessageBody:
    """Return the bodies of a template in a media type. `place` is the position of the template in its form.

    Raises:
        FormError: the template cannot be used, or the media type cannot represent it.
    """
    if template is ABSENT:
        return NoBody()
    nodes = parse_body(template, role, place)
    declared = media_types.declared(media_type)
    if declared is None:
        raise FormError(place, f"{media_type!r} is no media type, expected such as application/json")
    label = "input" if role is Role.REQUEST else "output"
    if is_json(declared):
        return JsonBody(nodes, specs, label, ignore_unknown=ignore_unknown, nan=nan)
    if declared.essence in _LINES:
        _check_lists(nodes, place, declared)
        return JsonLines(nodes, specs, label, ignore_unknown=ignore_unknown, nan=nan)
    if declared.essence == "text/csv":
        _check_lists(nodes, place, declared)
        has_header = declared.parameters.get("header") == "present"
        return CsvBody(nodes, specs, label, ignore_unknown=ignore_unknown, nan=nan, has_header=has_header)
    if declared.essence in _PARTS:
        node = nodes[0]
        if len(nodes) > 1 or not isinstance(node, Object) or node.every:
            raise FormError(place, "form data is one object of named parts: expected such as `{image: $x}`")
        return FormData(node, specs, label, _PARTS[declared.essence], ignore_unknown=ignore_unknown)
    return _single(nodes, declared, specs, label, place)


def is_json(media_type: MediaType) -> bool:
    """Return True if the media type is JSON. (RFC 6839 defines media types that end in `+json`.)"""
    return media_type.essence == "application/json" or media_type.subtype.endswith("+json")


_OF_BYTES = frozenset({Spelling.NESTED})
_OF_TEXT = frozenset({Spelling.NESTED, Spelling.NUMBERS, Spelling.COMMAS})


def _single(
    nodes: tuple[Node, ...], media_type: MediaType, specs: Mapping[str, TensorSpec], label: str, place: Place
) -> MessageBody:
    node = nodes[0]
    is_text = media_type.essence == "text/plain"
    if len(nodes) == 1 and is_text and isinstance(node, Slot):
        return TextWord(node)
    spellings = _OF_TEXT if media_type.type == "text" else _OF_BYTES
    if len(nodes) > 1 or not isinstance(node, TensorPlace) or node.spelling not in spellings:
        also = ", or of numbers `$x|numbers` and `$x|commas`" if spellings is _OF_TEXT else ""
        raise FormError(place, f"a body of {media_type.essence} is one tensor: expected such as `$x`{also}")
    if node.spelling is not Spelling.NESTED:
        return NumberText(node, specs, label)
    if media_type.essence == "application/x-npy":
        return NumpyFile(node, specs, label)
    return TextTensor(node, specs, label) if is_text else RawBytes(node, specs, label)


def _check_lists(nodes: tuple[Node, ...], place: Place, media_type: MediaType) -> None:
    for node in nodes:
        if not isinstance(node, RowList) and not (isinstance(node, TensorPlace) and node.spelling is Spelling.NESTED):
            raise FormError(place, f"a body of {media_type.essence} is a list: expected `[T, ...]` or such as `$x`")
        row = node.row if isinstance(node, RowList) else node
        if media_type.essence == "text/csv" and isinstance(row, Object):
            if media_type.parameters.get("header") != "present":
                raise FormError(place, "rows of CSV have names only with a header: text/csv; header=present")
            if any(children(each.node) for each in row.members):
                raise FormError(
                    place, "a CSV cell cannot hold a list or an object; write one placeholder for each cell"
                )
