"""The settings of one route, from its keys `rewrite`, `signature` and `translate`.

Each key of `translate` is declared in one place: in `core.requests.Translate` if codecs read it, otherwise in this
module. `gateway.config` derives the YAML key from the field: the field's name, type, default and docstring become the
key's name, check, default and description in docs/configuration. To add a key, add a field.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from gateway.core.frozen import frozen, replace
from gateway.core.globs import Rewritten
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.requests import Translate
from gateway.core.tensors import Tensor

Cast: TypeAlias = Literal["refuse", "round", "saturate"]
Layout: TypeAlias = Literal["hwc", "chw"]
Channels: TypeAlias = Literal["rgb", "bgr", "rgba", "gray"]
DifferenceMethod: TypeAlias = Literal["forward", "central"]
DIFFERENCE_ORDERS: dict[DifferenceMethod, tuple[int, ...]] = {"forward": (1, 2), "central": (2, 4)}
"""The orders that each method supports, with the default first."""


@frozen
class Renaming:
    """The two names of a tensor."""

    client: str
    """Name that clients use."""
    backend: str
    """Name in the backend."""


@frozen
class Renames:
    """The renamed tensors of a model."""

    inputs: tuple[Renaming, ...] = ()
    """Inputs whose names differ."""
    outputs: tuple[Renaming, ...] = ()
    """Outputs whose names differ."""


@frozen
class ImageInput:
    """An input whose elements are image files (PNG, JPEG, WebP, GIF or BMP)."""

    name: str
    """Name of the input in the backend."""
    layout: Layout = "hwc"
    """Order of the dimensions after the batch dimension: height, width, channels (`hwc`) or channels, height, width
    (`chw`)."""
    channels: Channels = "rgb"
    """Channels of each pixel. `gray` is one channel, the luma of ITU-R 601. Images with transparent pixels require
    `rgba`."""
    resize: tuple[int, int] | None = None
    """`[HEIGHT, WIDTH]`: resize every image to this size (bilinear; loses detail). By default, all images of a request
    must have the same size."""
    scale: Literal["none", "unit"] = "none"
    """`none`: UINT8 from 0 to 255. `unit`: FP32 from 0 to 1."""
    max_pixels: int = 2**24
    """Maximum total number of pixels in all images of one input, according to the sizes in the file headers."""


@frozen
class ImageOutput:
    """An output with UINT8 pixels that clients receive as image files."""

    name: str
    """Name of the output in the backend."""
    format: Literal["png", "webp", "jpeg"]
    """Format of the files. `jpeg` requires `lossy: true`."""
    lossy: bool = False
    """Allow compression that changes pixels. Required for `jpeg`. Without `lossy`, `webp` is lossless."""
    layout: Layout = "hwc"
    """Order of the dimensions after the batch dimension, like in `inputs`."""
    channels: Channels = "rgb"
    """Channels of each pixel, like in `inputs`."""


@frozen
class Images:
    """Tensors that are image files for clients and pixels for the backend. Requires Pillow: `pip install
    "modelglot[images]"`."""

    inputs: tuple[ImageInput, ...] = ()
    """Inputs whose image files the gateway decodes."""
    outputs: tuple[ImageOutput, ...] = ()
    """Outputs whose pixels the gateway encodes as image files."""


@frozen
class Derivatives:
    """Derivatives by finite differences, for models that do not provide derivatives. The gateway computes UM-Bridge's
    Gradient, ApplyJacobian and ApplyHessian, and the derivative models of other protocols, by evaluating the model at
    nearby points. If the model has an operation itself, the gateway replaces it only if `replace` contains the
    operation."""

    method: DifferenceMethod = "central"
    """Position of the points: on one side (`forward`: n + 1 points for the gradient of an input with n elements) or on
    both sides (`central`: 2 n points, far more accurate)."""
    order: Literal[1, 2, 4] | None = None
    """Order of the error, which decreases with this power of the step. 1 (the default) or 2 for `forward`, 2 (the
    default) or 4 for `central`. The higher order needs twice as many points."""
    step: float | None = None
    """Distance between the points, relative to the element's size. The default, `eps^(1/(order + 1))`, or
    `eps^(1/(order + 2))` for the Hessian, assumes a model that is exact to the last digit of its datatype. For a model
    that is exact to 6 digits, use eps = 1e-6 in this formula, for any datatype."""
    typical: float = 1.0
    """Minimum size of an element in the calculation of the step: for a smaller element, the step is `step` times
    `typical`."""
    replace: tuple[Operation, ...] = ()
    """Operations that the gateway computes by finite differences even if the model has them."""
    error: bool = False
    """Estimate the error of every result, with twice as many evaluations. Listeners with `reply_headers` return the
    estimate in the response header `gateway-derivative-error`. By default, the gateway estimates errors only for
    requests with the header `gateway-derivative-error: 1`."""
    batch: int | None = None
    """Maximum number of points per request to a model that accepts batches. Default: all points of a derivative in one
    batch."""
    max_evaluations: int = 4096
    """Maximum number of points for one derivative. The gateway rejects requests that require more points."""


@frozen
class TranslateSettings(Translate):
    """Conversion of client tensors for the backend, and of backend tensors for clients."""

    cast: Cast = "refuse"
    """Handling of conversions to a datatype that cannot represent every value: `refuse` the conversion, `round` half to
    even within the datatype's range, or `saturate` (round, and clip values out of range)."""
    operations: Mapping[Operation, str] = field(default_factory=dict)
    """`{OPERATION: MODEL}`: the backend model that computes a derivative, if its name is not `M.gradient`,
    `M.apply_jacobian` or `M.apply_hessian`."""
    max_rows: int = 4096
    """Maximum number of rows in a batch for a backend that accepts one point per call."""
    stream: Literal["error", "last", "collect"] = "error"
    """Response to a client that expects one response, if the model streams several: the backend's `error`, the `last`
    response, or all responses concatenated on axis 0 (`collect`)."""
    carry_config: bool = False
    """Send UM-Bridge's `config` as a tensor in protocols without parameters (grps, mip): as the last input, named
    `config`, with the JSON text as BYTES. If a client sends this input, the gateway converts it to the parameter
    `config`. By default, it rejects requests with a `config` for these protocols."""
    rename: Renames = field(default_factory=Renames)
    """Tensors whose names differ between clients and the backend."""
    constants: tuple[Tensor, ...] = ()
    """Inputs that the gateway adds to every request, by their names in the backend."""
    select: tuple[str, ...] = ()
    """Outputs that the gateway returns to clients, in this order, by the clients' names."""
    order: tuple[str, ...] = ()
    """All inputs of the backend, by their names in the backend, in the order that the backend expects."""
    drop: tuple[str, ...] = ()
    """Client inputs that the gateway does not send to the backend, by the clients' names."""
    images: Images | None = None
    """Tensors that are image files for clients and pixels for the backend. By default, the gateway sends files
    unchanged. Requires Pillow: `pip install "modelglot[images]"`."""
    derivatives: Derivatives | None = None
    """Finite differences for the derivatives that the model does not have. By default, these derivatives are not
    available."""


@frozen
class RouteSettings(TranslateSettings):
    """The keys of `translate`, plus the keys of `rewrite` and the route's `signature`."""

    model: Rewritten = None
    """`rewrite.model`: a name, or a function that derives the name from the client's name.

    None keeps the client's name."""
    version: str | None = None
    """`rewrite.version`. None keeps the client's version, and "" removes it."""
    signature: Signature | None = None
    """Overrides the backend's metadata."""
    routed_versions: tuple[str, ...] = ()
    """The versions in the conditions of all routes for the same model. Metadata responses list them."""
    takes_one_version: bool = False
    """True if clients can request exactly one version on this route.

    If it is False, clients can request the backend's versions, or only `version` if `version` is set."""

    @property
    def leaves_tensors_unchanged(self) -> bool:
        """True if no setting changes a tensor."""
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
    def for_points(self) -> "RouteSettings":
        """Return the settings for evaluations at points. Their tensors are already adapted to the backend."""
        kept = RouteSettings(
            nan=self.nan,
            payload=self.payload,
            cast=self.cast,
            operations=self.operations,
            stream=self.stream,
            carry_config=self.carry_config,
            signature=self.signature,
        )
        return kept if self.derivatives is None else replace(kept, max_rows=self.derivatives.max_evaluations)

    @property
    def for_derivatives(self) -> "RouteSettings":
        """Return the settings for derivatives of the route's models, without the settings for the model's own
        outputs."""
        images = None if self.images is None else replace(self.images, outputs=())
        return replace(self, select=(), images=images)
