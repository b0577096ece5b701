"""`routes:`: which request goes to which backend, and what becomes of it on the way."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gateway.config.fields import Flag, HeaderName, Keys, Name, Names, Size, Written, refusal
from gateway.config.images import ImagesConfig
from gateway.config.policies import Policies
from gateway.config.tensors import Constant, RouteSignature
from gateway.core.operations import SERVER_OPERATIONS, Operation
from gateway.core.types import Translate

Derivative = Literal["gradient", "apply_jacobian", "apply_hessian"]
_OF_A_MODEL = tuple(operation.value for operation in Operation if operation not in SERVER_OPERATIONS)
ModelOperation = Annotated[Operation, Written(Literal[_OF_A_MODEL], Operation)]


def _path(path: str) -> str:
    if not path.startswith("/") or "*" in path[:-1]:
        raise refusal("expected a path such as /v2/models/m/infer or, with one * at its end, /v2/*, got {value}")
    return path


class MatchConfig(Keys):
    """What a request must be for the route to take it: all of the keys given; {} is every request."""

    listener: Name | None = None
    """The listener where it arrived."""
    protocol: Name | None = None
    """The protocol it came in."""
    path: Annotated[Name, AfterValidator(_path)] | None = None
    """Its path: exact, or everything that begins so with one `*` at the end."""
    model: Name | None = None
    """The model it names: exact, or a glob with `*`, `?` and `[...]`. Requests without a name match only routes
    without this key."""
    version: Name | None = None
    """The version it names; quote it."""
    operation: ModelOperation | None = None
    """What it asks of the model."""
    header: Mapping[HeaderName, str] = {}
    """`{NAME: VALUE}`: headers that it must carry with exactly these values."""


class RewriteConfig(Keys):
    """What the backend calls it."""

    model: Name | None = None
    """The backend's name of the model; absent keeps the client's."""
    version: str | None = None
    """The backend's version; `""` drops the client's, absent keeps it."""


class RenamingConfig(Keys):
    """One tensor's two names."""

    client: Name
    """What clients call it."""
    backend: Name
    """What the backend calls it."""


def _one_to_one(pairs: tuple[RenamingConfig, ...]) -> tuple[RenamingConfig, ...]:
    for side in ("client", "backend"):
        names = [getattr(pair, side) for pair in pairs]
        for at, name in enumerate(names):
            if name in names[:at]:
                raise refusal("{value} is renamed twice", at, side)
    return pairs


Renamings = Annotated[tuple[RenamingConfig, ...], AfterValidator(_one_to_one)]


class RenameConfig(Keys):
    """Tensors that clients and the backend call differently."""

    inputs: Renamings = ()
    """Of inputs."""
    outputs: Renamings = ()
    """Of outputs."""


def _null_is_a_word(given: Any) -> Any:
    # `nan: null` is the null of YAML, and here the word.
    return "null" if given is None else given


class TranslateConfig(Keys):
    """How tensors are made to fit the other side."""

    cast: Literal["refuse", "round", "saturate"] = "refuse"
    """A datatype that does not hold every value: refused, rounded half to even within its range, or also clipped to its
    ends."""
    nan: Annotated[Literal["error", "literal", "null", "string"] | None, BeforeValidator(_null_is_a_word)] = None
    """NaN and infinities in the JSON that is written: refused, as NaN and Infinity, as null, or as strings. Where it is
    left out, each protocol does as its page says."""
    bytes: Literal["text", "base64"] = "text"
    """BYTES elements in JSON: as text, which must be UTF-8, or in base64."""
    operations: Mapping[Derivative, Name] = {}
    """`{OPERATION: MODEL}`: the backend's model for a derivative, in place of the rewritten name and `.gradient` and so
    on."""
    max_rows: Size = 4096
    """Rows of one batch towards a backend that takes one point per call."""
    stream: Literal["error", "last", "collect"] = "error"
    """What a client that wants one response gets of a model that streams several: the backend's error, the last one, or
    all of them concatenated on axis 0."""
    payload: Name = ""
    """The form in which tensors travel to the backend, where its protocol has several: for grps `gtensors`, `str_data`,
    `bin_data`, `gmap` or `ndarray`; without it the form that a client of grps sent, else `gtensors`."""
    carry_config: Flag = False
    """UM-Bridge's `config`, which others have as a parameter, goes to a backend whose protocol has no parameters (grps,
    mip) as one more input, the last, called `config`: its JSON text. Such an input of clients of such a protocol
    becomes the parameter. Without it a config is refused there."""
    rename: RenameConfig = Field(default_factory=RenameConfig)
    """Tensors whose names differ."""
    constants: tuple[Constant, ...] = ()
    """Inputs that clients do not send."""
    select: Names = ()
    """The outputs that clients get, by the clients' names, in this order."""
    order: Names = ()
    """The backend's inputs, by its names, in the order in which it takes them."""
    drop: Names = ()
    """Inputs of clients, by their names, that the backend does not get."""
    images: ImagesConfig | None = None
    """Tensors that are image files for clients and pixels for the backend; without it files pass as they are. Needs
    Pillow: `pip install "inference-gateway[images]"`."""

    @property
    def for_codecs(self) -> Translate:
        """What a codec needs of it."""
        return Translate(self.nan or "", self.bytes, self.payload)

    @property
    def companions(self) -> dict[Operation, str]:
        """`operations` by Operation."""
        return {Operation(name): model for name, model in self.operations.items()}


class RouteConfig(Keys):
    """One way through the gateway."""

    match: MatchConfig
    """What it takes."""
    backend: Name
    """The backend that answers."""
    rewrite: RewriteConfig = Field(default_factory=RewriteConfig)
    """Names that the backend knows in place of the client's."""
    passthrough: Flag = False
    """Messages pass untouched, in both directions, between clients and a backend of one protocol, at the path that
    `match` has: HTTP that a server's operator has made up (grps: `customized_predict_http`). Only their size is looked
    at."""
    signature: RouteSignature | None = None
    """The model's tensors: supplies or overrides what the backend's metadata says."""
    translate: TranslateConfig = Field(default_factory=TranslateConfig)
    """How tensors are made to fit."""
    policies: Policies = ()
    """What wraps the route's calls, outermost first, around the backend's own."""
