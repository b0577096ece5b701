"""The settings of one route, from its keys `rewrite`, `signature` and `translate`.

Each key of `translate` is declared in one place: in `gateway.core.types.Translate` if codecs read it, otherwise in this
module. `gateway.config` makes the YAML key from the field: its name, type, default and docstring become the key's name,
check, default and description in docs/configuration. To add a key, add a field.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from gateway.core.frozen import frozen, replace
from gateway.core.globs import Rewritten
from gateway.core.operations import Operation
from gateway.core.types import Signature, Tensor, Translate

Cast: TypeAlias = Literal["refuse", "round", "saturate"]
Layout: TypeAlias = Literal["hwc", "chw"]
Channels: TypeAlias = Literal["rgb", "bgr", "rgba", "gray"]
DifferenceMethod: TypeAlias = Literal["forward", "central"]
DIFFERENCE_ORDERS: dict[DifferenceMethod, tuple[int, ...]] = {"forward": (1, 2), "central": (2, 4)}
"""The orders of each method, the default first."""


@frozen
class Renaming:
    """The two names of one tensor."""

    client: str
    """The clients' name."""
    backend: str
    """The backend's name."""


@frozen
class Renames:
    """The renamed tensors of a model."""

    inputs: tuple[Renaming, ...] = ()
    """Renamed inputs."""
    outputs: tuple[Renaming, ...] = ()
    """Renamed outputs."""


@frozen
class ImageInput:
    """An input whose elements are image files: PNG, JPEG, WebP, GIF or BMP."""

    name: str
    """The backend's name of the input."""
    layout: Layout = "hwc"
    """The order of the dimensions after the batch: height, width, channels (`hwc`) or channels, height, width
    (`chw`)."""
    channels: Channels = "rgb"
    """The channels of each pixel. `gray` is one channel, the luma of ITU-R 601. Images with transparent pixels need
    `rgba`."""
    resize: tuple[int, int] | None = None
    """`[HEIGHT, WIDTH]`: resize every image to this size (bilinear; loses detail). By default, all images of a request
    must have the same size."""
    scale: Literal["none", "unit"] = "none"
    """`none`: UINT8 from 0 to 255. `unit`: FP32 from 0 to 1."""
    max_pixels: int = 2**24
    """Maximum number of pixels in all images of one input together, by the sizes in their file headers."""


@frozen
class ImageOutput:
    """An output of UINT8 pixels that clients receive as image files."""

    name: str
    """The backend's name of the output."""
    format: Literal["png", "webp", "jpeg"]
    """The format of the files. `jpeg` needs `lossy: true`."""
    lossy: bool = False
    """Allow compression that changes pixels: required for `jpeg`; without `lossy`, `webp` is lossless."""
    layout: Layout = "hwc"
    """The order of the dimensions after the batch, same as in `inputs`."""
    channels: Channels = "rgb"
    """The channels of each pixel, same as in `inputs`."""


@frozen
class Images:
    """Tensors that are image files for clients and pixels for the backend. Needs Pillow:
    `pip install "modelglot[images]"`."""

    inputs: tuple[ImageInput, ...] = ()
    """Inputs whose files are decoded."""
    outputs: tuple[ImageOutput, ...] = ()
    """Outputs whose pixels are encoded."""


@frozen
class Derivatives:
    """Derivatives by finite differences, for models that do not provide derivatives. The gateway computes UM-Bridge's
    Gradient, ApplyJacobian and ApplyHessian, and the derivative models of other protocols, from evaluations of the
    model at nearby points. The gateway replaces an operation of the model only if `replace` names it."""

    method: DifferenceMethod = "central"
    """The points: on one side (`forward`: n + 1 for the gradient of an input of n elements) or on both sides
    (`central`: 2 n, and far more exact)."""
    order: Literal[1, 2, 4] | None = None
    """The error falls with this power of the step: 1 (the default) or 2 for `forward`, 2 (the default) or 4 for
    `central`. A higher order takes twice as many points."""
    step: float | None = None
    """The distance of the points, in proportion to the element's size. The default assumes a model that is exact to the
    last digit of its datatype: `eps^(1/(order + 1))`. For the Hessian it is `eps^(1/(order + 2))`. For a model that is
    exact to 6 digits, use eps = 1e-6 in this formula, for any datatype."""
    typical: float = 1.0
    """The minimum size of an element in the calculation of the step: for an element that is nearer to 0 than this, the
    step is `step` times `typical`."""
    replace: tuple[Operation, ...] = ()
    """Operations that are computed by finite differences even if the model has them."""
    error: bool = False
    """Estimate the error of every result, in the reply header `gateway-derivative-error` on listeners with
    `reply_headers`; takes twice as many evaluations. By default, the gateway does this only for requests with the
    header `gateway-derivative-error: 1`."""
    batch: int | None = None
    """Maximum number of points in one request to a model that takes batches. Default: all points of a derivative in one
    batch."""
    max_evaluations: int = 4096
    """Maximum number of points of one derivative. The gateway refuses a request that needs more."""


@frozen
class TranslateSettings(Translate):
    """How client tensors are converted for the backend, and backend tensors for clients."""

    cast: Cast = "refuse"
    """Conversion to a datatype that cannot hold every value: `refuse` it, `round` half to even within the range of the
    datatype, or `saturate`: round, and clip what is out of range."""
    operations: Mapping[Operation, str] = field(default_factory=dict)
    """`{OPERATION: MODEL}`: the backend's model that computes a derivative, instead of the default name `M.gradient`,
    `M.apply_jacobian` or `M.apply_hessian`."""
    max_rows: int = 4096
    """Maximum number of rows in a batch for a backend that takes one point per call."""
    stream: Literal["error", "last", "collect"] = "error"
    """The response to a client that expects one response, from a model that streams several: the backend's `error`, the
    `last` response, or all of them (`collect`), concatenated on axis 0."""
    carry_config: bool = False
    """Send UM-Bridge's `config` as a tensor if a protocol has no parameters (grps, mip): the last input, named
    `config`, with the JSON text as BYTES. The gateway converts this input from a client to the parameter `config`. By
    default, it refuses a config for these protocols."""
    rename: Renames = field(default_factory=Renames)
    """Tensors whose names differ between clients and the backend."""
    constants: tuple[Tensor, ...] = ()
    """Inputs that the gateway adds to every request, by the backend's names."""
    select: tuple[str, ...] = ()
    """The outputs that clients get, by the clients' names, in this order."""
    order: tuple[str, ...] = ()
    """All backend inputs, by the backend's names, in the order in which it expects them."""
    drop: tuple[str, ...] = ()
    """Inputs from clients, by the clients' names, that the gateway does not send to the backend."""
    images: Images | None = None
    """Tensors that are image files for clients and pixels for the backend. By default, the gateway sends files
    unchanged. Needs Pillow: `pip install "modelglot[images]"`."""
    derivatives: Derivatives | None = None
    """Finite differences for the derivatives that the model does not have. By default, these derivatives are not
    available."""


@frozen
class RouteSettings(TranslateSettings):
    """The keys of `translate`, with the keys of `rewrite` and the route's `signature`."""

    model: Rewritten = None
    """`rewrite.model`, which is a name, or a function that makes it from the client's name.

    None keeps the client's name."""
    version: str | None = None
    """`rewrite.version`. None keeps the client's version, "" removes it."""
    signature: Signature | None = None
    """Overrides the backend's metadata."""
    routed_versions: tuple[str, ...] = ()
    """The versions in the conditions of the routes for the same model, which metadata lists."""
    takes_one_version: bool = False
    """True if this route has exactly one version, by the client's name for it.

    If it is False, clients can request the backend's versions, or only `version` if that is set."""

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
        """Return the settings for evaluations at points that are already adapted to the backend."""
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
        """Return the settings for the derivatives of the route's models, which lack the settings about the model's own
        outputs."""
        images = None if self.images is None else replace(self.images, outputs=())
        return replace(self, select=(), images=images)
