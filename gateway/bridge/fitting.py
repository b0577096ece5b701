"""Defines the conversion of requests to a model's signature, and of responses back for the client.

The Bridge matches the client's tensors with the signature's specifications in this order:

1. Names. A named tensor has the client's name. `rename` determines the backend's name, `drop` removes inputs, and
   `constants` adds inputs. Unnamed tensors get the names in `order` or the remaining names, by position. (`names`)
2. If the route has `images`, image files become pixels. (`images`)
3. Shape. A first dimension of -1 before other dimensions is the batch dimension. A tensor without a batch dimension is
   one row, and the response then has no batch dimension either. (`shapes`)
4. Datatype. The datatypes must be equal, or the specified datatype must be able to represent every value of the
   tensor's datatype. Numbers without a datatype are checked by value. All other conversions require `cast`.
   (`datatypes`)
5. Rows. If the backend accepts one row per call, each row becomes a call, and the results are stacked. (`rows`)

The response goes through the same steps in reverse. A mismatch in a request raises a DecodeError, because the client
caused it. A mismatch in a response raises a GatewayError (INTERNAL), because the backend caused it. An unknown
signature contains no tensors; in this case, tensors keep their datatypes and shapes.

Invariants: the backend's inputs have the names, datatypes, ranks and order of its signature. All inputs with a batch
dimension have the same number of rows. The same applies to all outputs with a batch dimension. The client receives the
requested outputs, in the requested order, in datatypes that its protocol supports.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.bridge import names, shapes
from gateway.bridge.backend import BackendSide
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signatures import is_unknown
from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen, replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import INDEX_TENSORS
from gateway.core.protocol import Protocol, Rows, Wire
from gateway.core.requests import Request
from gateway.core.tensors import Shape

if TYPE_CHECKING:
    from gateway.bridge.images import ImageDecoder, ImageEncoder


@frozen
class Expected:
    """An input or output in the signature, with values that are precomputed for all requests."""

    name: str
    """The tensor's name for clients. The name in `spec` is the backend's name."""
    spec: TensorSpec
    what: str
    """The tensor's name in errors."""
    is_batch: bool
    """True if the first dimension is the batch dimension."""
    row: Shape
    """The shape without the batch dimension."""
    is_column: bool = False
    """True for an output that the route or the backend's protocol declares as `[-1]` for inputs in batches. The output
    has one element per row, unless the model reduces the rows to a vector of another length."""

    @classmethod
    def of(cls, role: str, name: str, spec: TensorSpec, *, is_batch: bool) -> "Expected":
        """Return the Expected for this specification; `role` is `input` or `output`."""
        called = name if role == "input" else spec.name
        return cls(name, spec, f"{role} {called!r}", is_batch, spec.shape[1:] if is_batch else spec.shape)


@frozen
class Fitting:
    """The data for converting tensors between one client protocol and one model: the client's protocol, the backend,
    the route's settings, and the model's signature."""

    client: Protocol
    backend: BackendSide
    settings: RouteSettings
    decoders: "Mapping[str, ImageDecoder]"
    """Decoders for the inputs that are image files, by the backend's names."""
    encoders: "Mapping[str, ImageEncoder]"
    """Encoders for the outputs that are image files, by the backend's names."""
    of: Signature = Signature()
    """The model's signature, as fetched or declared."""
    signature: Signature = Signature()
    """The model's tensors with the backend's names, and with the batch dimension that the conversion uses."""
    inputs: names.NamedSpecs = ()
    """The inputs that clients send, with the clients' names."""
    expected: tuple[Expected, ...] = ()
    """`inputs` without index tensors (INDEX_TENSORS)."""
    orders: tuple[list[str], ...] = ()
    """Lists of input names (the clients' names, or only empty names). If a request's list is one of these, its inputs
    are already in the order of `expected`. Otherwise, they must be looked up by name."""
    outputs: Mapping[str, Expected] = field(default_factory=dict)
    """The outputs, by the backend's names."""
    output_names: list[str] = field(default_factory=list)
    """The backend's names of the outputs."""
    output_orders: tuple[list[str], ...] = ()
    """Lists of output names (the backend's names, or only empty names). If a response's list is one of these, its
    outputs are already in order."""
    is_unknown: bool = True
    """True if the signature is unknown."""
    lacks_bytes: bool = False
    """True if the signature contains BYTES and the client's protocol does not support BYTES."""
    row_by_row: bool = False
    """True if the backend is called once for each row of a batch."""
    has_images: bool = False
    """True if images are decoded or encoded. The codecs run in a thread, because a few bytes can become millions of
    pixels."""

    def to(self, signature: Signature) -> "Fitting":
        """Return the Fitting for a model with this signature."""
        of, backend = signature, self.backend.traits.wire.rows
        single = backend is Rows.ONE
        # If the client's or the backend's protocol has rows in every tensor, a model without a batch dimension gets
        # one: the dimension exists at the backend, or the gateway makes a call for each row.
        if (_counts_rows(self.client.traits.wire) or backend is Rows.FIRST) and self._is_one_row(signature):
            signature, single = shapes.as_batches(signature), single or backend is Rows.FREE
        inputs = names.inputs_of(signature, self.settings)
        expected = [
            Expected.of("input", name, spec, is_batch=self.is_batch(spec))
            for name, spec in inputs
            if spec.name not in INDEX_TENSORS
        ]
        outputs = names.all_outputs(signature, self.settings)
        output_names = [spec.name for _, spec in outputs]
        has_columns = (
            not single and self._declares_outputs and bool(expected) and all(each.is_batch for each in expected)
        )
        has_bytes = any(spec.datatype is Datatype.BYTES for spec in (*signature.inputs, *signature.outputs))
        return replace(
            self,
            of=of,
            signature=signature,
            inputs=inputs,
            expected=tuple(expected),
            orders=self._orders([name for name, _ in inputs], [each.name for each in expected]),
            outputs={
                spec.name: self._output(name, spec, is_column=has_columns and spec.shape == (-1,))
                for name, spec in outputs
            },
            output_names=output_names,
            output_orders=(output_names, [""] * len(outputs)) if len(set(output_names)) == len(outputs) else (),
            is_unknown=is_unknown(signature),
            lacks_bytes=has_bytes and Datatype.BYTES not in self.client.traits.wire.datatypes,
            row_by_row=single,
        )

    def _output(self, name: str, spec: TensorSpec, *, is_column: bool) -> Expected:
        expected = Expected.of("output", name, spec, is_batch=self.is_batch(spec))
        return replace(expected, is_column=True) if is_column and not expected.is_batch else expected

    @property
    def _declares_outputs(self) -> bool:
        """True if the outputs are declared. In a server's metadata, `[-1]` can also mean a vector of any length."""
        declared = self.settings.signature
        return bool(declared and declared.outputs) or self.backend.traits.models.signature is not None

    def is_batch(self, spec: TensorSpec) -> bool:
        """Return True if the first dimension of a tensor in the signature is the batch dimension."""
        return shapes.is_batch(spec.shape, scalars=self.backend.traits.wire.scalars_in_rows)

    def _is_one_row(self, signature: Signature) -> bool:
        return is_one_row(signature, scalars=self.backend.traits.wire.scalars_in_rows)

    def lacks_inputs(self, request: Request) -> bool:
        """Return True if the request might contain fewer inputs than the signature."""
        if request.schemaless:
            given = {*request.parameters, *[each.name for each in request.inputs]}
            return any(each.name not in given for each in self.expected)
        drop = self.settings.drop
        count = sum([each.name not in drop for each in request.inputs]) if drop else len(request.inputs)
        return count < len(self.expected)

    def _orders(self, every: Sequence[str], expected: list[str]) -> tuple[list[str], ...]:
        if len(set(every)) < len(every) or not set(expected).isdisjoint(self.settings.drop):
            return ()
        takes_unnamed = not self.settings.order and len(expected) == len(every)
        return (expected, [""] * len(expected)) if takes_unnamed else (expected,)


def _counts_rows(client: Wire) -> bool:
    """Return True if the first dimension of a client's tensors is the number of rows for every model, even if the
    number can only be 1."""
    return client.rows is Rows.FIRST or (client.rows is Rows.ONE and not client.points)


MOST_KEPT = 256
"""The maximum number of cached Fittings per client protocol, backend and route."""


class Fittings:
    """A cache of the Fittings for one client protocol, backend and route."""

    def __init__(self, client: Protocol, backend: BackendSide, settings: RouteSettings) -> None:
        decoders: dict[str, ImageDecoder] = {}
        encoders: dict[str, ImageEncoder] = {}
        if settings.images is not None:
            from gateway.bridge import images  # imported here because it needs Pillow, which other routes do not need

            decoders = {image.name: images.ImageDecoder(image) for image in settings.images.inputs}
            encoders = {image.name: images.ImageEncoder(image) for image in settings.images.outputs}
        self._any_model = Fitting(client, backend, settings, decoders, encoders, has_images=bool(decoders or encoders))
        self._kept: dict[int, Fitting] = {}
        """The Fittings by the identity of the signature. Each Fitting keeps its signature alive in `of`."""

    def to(self, signature: Signature) -> Fitting:
        """Return the Fitting for a model with this signature."""
        kept = self._kept.get(id(signature))
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[id(signature)] = self._any_model.to(signature)
        return kept


class FittedRequest(Struct, frozen=True):
    """A request, adapted for the backend."""

    request: Request
    rows: int | None
    """The number of rows in the batch; None if the request has no batch dimension."""
    unbatched: bool
    """True if the client sent one row without a batch dimension. The outputs for the client then have no batch
    dimension either."""
    is_point: bool = False
    """True if the request is one row for a backend that accepts vectors. The call's inputs and outputs then have no
    batch dimension."""


def is_one_row(signature: Signature, *, scalars: bool = False) -> bool:
    """Return True if no tensor has a batch dimension.

    Return False if a tensor has the shape [], because `[-1]` would then be a free dimension instead of a batch."""
    specs = (*signature.inputs, *signature.outputs)
    return bool(signature.inputs) and all(
        spec.shape and not shapes.is_batch(spec.shape, scalars=scalars) for spec in specs
    )
