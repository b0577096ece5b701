"""The client's errors: ClientError and its subclasses, created from the gateway's Status and Reason."""

from typing import Any, Protocol

from gateway.core.errors import DecodeError, GatewayError, Reason, Status, TransportError, invalid_input

SERVER = "server"
"""The term for the server in error messages from gateway modules."""


class PartialResults(Protocol):
    """The `Results` of a map that ended early."""

    done: dict[int, Any]
    errors: dict[int, "ClientError"]

    @property
    def missing(self) -> list[int]: ...
    def array(self, output: str = "", *, fill: float | None = None) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class ClientError(Exception):
    """A call failed. `str(error)` is a sentence that states the cause.

    - `status`: The error's category, as a canonical gRPC code for every protocol.
    - `reason`: The cause, more specific than `status`. Most protocols do not report the cause; the client then infers
      one.
    - `address`: The server's address.
    - `retry_after`: Seconds after which the server accepts another attempt; None if the server specifies no time.
    - `results`: For an error of `map`, the results up to the error.
    """

    def __init__(
        self, message: str, status: Status, reason: Reason, address: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.address = address
        self.retry_after = retry_after
        self.results: PartialResults | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Return the pickled form, for processes of a pool and for results saved in a file."""
        arguments = self.message, self.status, self.reason, self.address, self.retry_after
        return type(self), arguments, vars(self)


class ConnectError(ClientError):
    """Connecting failed, or the connection broke. `sent` is True if the server might have seen the request."""

    sent = False


class Timeout(ClientError):
    """The response did not arrive within the client's `timeout` or the server's own limit. `sent` is True if the server
    might have seen the request."""

    sent = True


class NotFound(ClientError):
    """The model, version or path does not exist."""


class InvalidInput(ClientError):
    """The request is invalid. The message states the tensor or parameter, its value and the expected value."""


class Refused(ClientError):
    """The server rejected the request: a key is missing or invalid, a permission is missing, the request is too large,
    or the client sends too many requests."""


class Unsupported(ClientError):
    """The model, the server or the protocol does not support the operation."""


class ServerError(ClientError):
    """The model or the server failed."""


class BadReply(ServerError):
    """A `ServerError`: the response violates the protocol, or contradicts the model's metadata."""


class OtherResults(ValueError):
    """The `resume` file contains the results of a different map."""


_CLASSES: dict[Status, type[ClientError]] = {
    Status.INVALID_ARGUMENT: InvalidInput,
    Status.OUT_OF_RANGE: InvalidInput,
    Status.FAILED_PRECONDITION: InvalidInput,
    Status.ALREADY_EXISTS: InvalidInput,
    Status.DEADLINE_EXCEEDED: Timeout,
    Status.NOT_FOUND: NotFound,
    Status.UNAUTHENTICATED: Refused,
    Status.PERMISSION_DENIED: Refused,
    Status.RESOURCE_EXHAUSTED: Refused,
    Status.UNIMPLEMENTED: Unsupported,
}


def as_client_error(error: Exception, address: str) -> ClientError:
    """Return the ClientError for an error from gateway modules. A DecodeError reports a fault in the request; a fault
    in the response raises a GatewayError."""
    if isinstance(error, DecodeError | TypeError | ValueError):
        error = invalid_input(str(error))
    assert isinstance(error, GatewayError)
    kind = _CLASSES.get(error.status, ServerError)
    if error.reason is Reason.INVALID_OUTPUT:
        kind = BadReply
    elif isinstance(error, TransportError) and error.status is Status.UNAVAILABLE:
        kind = ConnectError
    found = kind(_in_words_of_the_client(error.message, address), error.status, error.reason, address)
    found.retry_after = error.retry_after
    if isinstance(found, ConnectError | Timeout) and isinstance(error, TransportError):
        found.sent = error.sent
    return found


def timed_out(seconds: float, address: str) -> Timeout:
    """Return the error for a response that did not arrive within the client's own limit."""
    text = f"{address}: no answer within {seconds:g} s, the limit that `timeout` sets"
    return Timeout(text, Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, address)


def _in_words_of_the_client(text: str, address: str) -> str:
    """Return `text` without advice about configuration files, because a client has no configuration file."""
    text = text.replace(f"backend {SERVER!r} at {address}", address).replace(f"backend {SERVER!r}", address)
    if text.strip().lower() in _NO_SUCH_PATH:
        return f"{address}: {text.strip()}: it may speak another protocol; `gateway probe {address}` finds out which"
    for hint, own in HINTS.items():
        text = text.replace(hint, own)
    return text


_NO_SUCH_PATH = ("404: not found", "not found", "404 page not found")
"""The messages that web servers (aiohttp, FastAPI and many others, Go) return for an unknown path."""

HINTS = {
    "or set `translate: {cast: round}` or `saturate` on the route": 'or call with cast="round" or cast="saturate"',
    "; `translate: {nan: null}` on the route reads null among numbers as NaN": "",
    "`translate: {cast: round}` rounds, `{cast: saturate}` also clips": (
        'cast="round" rounds, cast="saturate" also clips'
    ),
    "`translate: {cast: saturate}` clips it": 'cast="saturate" clips it',
    "for a model that streams, `translate: {stream: last}` or `{stream: collect}` on the route gives one response": (
        "call a model that streams with `stream`"
    ),
    '`rewrite: {version: ""}` on the route drops the client\'s version': "leave the version out",
    "; `flavor` on the backend makes this query unnecessary": "",
    "; see the gateway's log": "",
    "; `forward_headers` on the backend forwards the clients' own": "; `key` and `headers` of the client send them",
    "the deadline that the client set has passed": "no answer within the limit that `timeout` sets",
    "name one, or set `model` on the listener": (
        "requests of this protocol name no model; `model` on the gateway's listener selects it"
    ),
    "; `translate: {operations: ...}` on the route can name the derivative model": "",
    "`translate.derivatives` on the route estimates it": (
        "a gateway estimates it, with `translate: {derivatives: {method: central}}` on the model's route"
    ),
}
"""Advice about configuration files in the bridge's errors, and the client's replacements."""
