"""How a request is fitted to a model's signature, and the response to it fitted back.

The client's tensors (left) are matched with the signature's specifications (right), in this order:

1. Names. A tensor with a name has the client's name: `rename` gives the backend's, `drop` removes it, `constants` are
   added. Tensors without names take the names of `order`, or those that are left, by position. (`names`)
2. Image files are decoded to pixels where the route has `images`. (`images`)
3. Shape. A first dimension of -1 before others is the batch: a tensor without it is one row, and its answer is
   returned without it. (`shapes`)
4. Datatype. Equal, or widened where every value is exact. Numbers that came without a datatype are checked by value.
   Everything else needs `cast`. (`datatypes`)
5. Rows. Where the backend computes one row per call, each row becomes a call, and the results are stacked. (`rows`)

The response goes back through the same steps in reverse. What does not fit in a request is a DecodeError, which is the
client's fault; in a response it becomes a GatewayError INTERNAL, which is the backend's fault. A signature that nobody
knows has no tensors: tensors then keep their datatypes and shapes.

Invariants: the backend's inputs have the names, datatypes, rank and order of its signature. All inputs with a batch
dimension have the same number of rows, and so have the outputs. The client gets the outputs that it asked for, in that
order, in datatypes that its protocol has.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from gateway.bridge import names, shapes
from gateway.bridge.backend import BackendSide
from gateway.bridge.known_fits import KnownFits
from gateway.bridge.settings import RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen, replace
from gateway.core.operations import INDEX_TENSORS
from gateway.core.protocol import Protocol, Rows
from gateway.core.types import Request, Signature

if TYPE_CHECKING:
    from gateway.bridge.images import ImageDecoder, ImageEncoder


@frozen
class Fitting:
    """Everything that a request is fitted with: both sides, the route's settings and the model's signature."""

    client: Protocol
    backend: BackendSide
    settings: RouteSettings
    decoders: "Mapping[str, ImageDecoder]"
    """Decoders of the inputs that are image files, by the backend's names."""
    encoders: "Mapping[str, ImageEncoder]"
    """Encoders of the outputs that are image files, by the backend's names."""
    of: Signature = Signature()
    """The model's signature as it is known."""
    signature: Signature = Signature()
    """The model's tensors under the backend's names, with the batch dimension that they are fitted to."""
    inputs: names.NamedSpecs = ()
    """The inputs that clients send, with their names for them."""
    has_bytes: bool = False
    """Whether the signature has BYTES."""
    row_by_row: bool = False
    """The backend is called once for each row of a batch."""
    has_images: bool = False
    """Whether images are decoded or encoded. That is done in a thread: a few bytes may be millions of pixels."""
    known: KnownFits | None = field(default=None, compare=False)
    """How requests for the model were fitted before; None if each is fitted anew."""

    def to(self, signature: Signature) -> "Fitting":
        """The Fitting for a model of this signature."""
        of, client, backend = signature, self.client.traits.wire.rows, self.backend.traits.wire.rows
        single = backend is Rows.ONE
        # Where one side counts rows on every tensor, a model without a batch dimension is given one: the backend's own,
        # or one that is made of a call for each row.
        if Rows.FIRST in (client, backend) and is_one_row(signature):
            signature, single = shapes.as_batches(signature), single or backend is Rows.FREE
        inputs = names.inputs_of(signature, self.settings)
        has_bytes = any(spec.datatype is Datatype.BYTES for spec in (*signature.inputs, *signature.outputs))
        has_indices = any(spec.name in INDEX_TENSORS for spec in signature.inputs)
        is_plain = not (self.settings.constants or self.has_images or has_indices)
        known = KnownFits() if is_plain else None
        return replace(
            self, of=of, signature=signature, inputs=inputs, has_bytes=has_bytes, row_by_row=single, known=known
        )


MOST_KEPT = 256
"""Fittings of one route."""


class Fittings:
    """The Fittings of one client protocol, backend and route."""

    def __init__(self, client: Protocol, backend: BackendSide, settings: RouteSettings) -> None:
        decoders: dict[str, ImageDecoder] = {}
        encoders: dict[str, ImageEncoder] = {}
        if settings.images is not None:
            from gateway.bridge import images  # needs Pillow, which other routes do without

            decoders = {image.name: images.ImageDecoder(image) for image in settings.images.inputs}
            encoders = {image.name: images.ImageEncoder(image) for image in settings.images.outputs}
        self._any_model = Fitting(client, backend, settings, decoders, encoders, has_images=bool(decoders or encoders))
        self._kept: dict[int, Fitting] = {}
        """By the identity of the signature, which the Fitting keeps alive as `of`."""

    def to(self, signature: Signature) -> Fitting:
        """The Fitting for a model of this signature."""
        kept = self._kept.get(id(signature))
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[id(signature)] = self._any_model.to(signature)
        return kept


@frozen
class FittedRequest:
    """A request as the backend gets it."""

    request: Request
    rows: int | None
    """The size of its batch; None without a batch dimension."""
    unbatched: bool
    """The client sent one row without a batch dimension and gets its outputs without it."""


def is_one_row(signature: Signature) -> bool:
    """Whether no tensor has a batch dimension. False with scalars: `[-1]` would be a free dimension and no batch."""
    specs = (*signature.inputs, *signature.outputs)
    return bool(signature.inputs) and all(spec.shape and not shapes.is_batch(spec.shape) for spec in specs)
