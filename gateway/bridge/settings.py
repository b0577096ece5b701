"""What a route says about fitting."""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from gateway.core.frozen import frozen, replace
from gateway.core.operations import Operation
from gateway.core.types import DEFAULT_TRANSLATE, Signature, Tensor, Translate

if TYPE_CHECKING:
    from gateway.bridge.images import ImageInput, ImageOutput


@frozen
class Renames:
    """Pairs of (client's name, backend's name)."""

    inputs: tuple[tuple[str, str], ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()


@frozen
class RouteSettings:
    """`rewrite`, `signature` and `translate` of one route. A `model` or `version` of None is left as the client wrote
    it; a `version` of "" drops it. `select` are client outputs, in order; `order` backend inputs; `drop` client inputs;
    `constants` inputs with backend names."""

    model: str | None = None
    version: str | None = None
    signature: Signature | None = None
    cast: str = "refuse"
    max_rows: int = 4096
    carry_config: bool = False
    """The parameter `config` goes as an input to backends whose protocol has no parameters, and comes as one from
    such clients."""
    stream: str = "error"
    """What a client that wants one response gets of a backend that streams several: `error` (the backend is not asked
    for a stream), `last`, or `collect` (concatenated on axis 0)."""
    operations: Mapping[Operation, str] = field(default_factory=dict)
    rename: Renames = field(default_factory=Renames)
    constants: tuple[Tensor, ...] = ()
    select: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    drop: frozenset[str] = frozenset()
    translate: Translate = DEFAULT_TRANSLATE
    image_inputs: "Mapping[str, ImageInput]" = field(default_factory=dict)
    """By the backend's names: image files of clients that it takes as pixels."""
    image_outputs: "Mapping[str, ImageOutput]" = field(default_factory=dict)
    """By the backend's names: pixels that clients get as image files."""

    @property
    def leaves_tensors(self) -> bool:
        """Tensors may pass as they are: the route says nothing about them."""
        return not (
            self.signature
            or self.constants
            or self.select
            or self.order
            or self.drop
            or self.rename.inputs
            or self.rename.outputs
            or self.cast != "refuse"
            or self.images
        )

    @property
    def images(self) -> bool:
        """Whether images are decoded or encoded."""
        return bool(self.image_inputs or self.image_outputs)

    @property
    def of_derivatives(self) -> "RouteSettings":
        """A companion's one output is not among those that the route says something of."""
        return replace(self, select=(), image_outputs={})
