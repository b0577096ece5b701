"""The meaning of errors' reasons and the next steps, for the page of the console. `make pages` writes the table of
reasons in `docs/runbook.md` from these texts."""

from gateway.core.errors import Reason
from gateway.core.frozen import frozen


@frozen
class ReasonExplanation:
    """The meaning of a reason, and the next steps. `code` in backticks is the only markup."""

    meaning: str
    look_at: str


EXPLANATIONS: dict[Reason, ReasonExplanation] = {
    Reason.INVALID_INPUT: ReasonExplanation(
        "The request breaks its protocol, or its tensors do not fit the model.",
        "The text in the client's reply names the field. `translate` on the route can convert, rename, cast and widen.",
    ),
    Reason.MODEL_NOT_FOUND: ReasonExplanation(
        "No route matches the model's name, or the backend does not have the model or the version.",
        "The routes' `match` and `rewrite`; the models that the server has loaded.",
    ),
    Reason.PATH_NOT_FOUND: ReasonExplanation(
        "No protocol of the listener serves this path.",
        "The listener's `protocols` and `prefix`.",
    ),
    Reason.METHOD_NOT_ALLOWED: ReasonExplanation(
        "The path exists for other HTTP methods only.",
        "The header `Allow` of the reply.",
    ),
    Reason.UNSUPPORTED: ReasonExplanation(
        "The protocol, the server or the model does not have the operation.",
        "What each pair of protocols carries.",
    ),
    Reason.UNAUTHENTICATED: ReasonExplanation(
        "The listener wants credentials, or the server behind it does.",
        "The text in the client's reply says what is expected, or what is wrong: keys, tokens. For the server: "
        "`forward_headers` of the backend.",
    ),
    Reason.PERMISSION_DENIED: ReasonExplanation(
        "The principal may not do this, the listener does not allow the operation, or the server behind it "
        "refuses. Whether there is such a model is not told.",
        "`principals` and `permissions`; `allow_control` and `allow_offline` of the listener.",
    ),
    Reason.TOO_LARGE: ReasonExplanation(
        "A message, a tensor, or what a compressed body inflates to is beyond a limit.",
        "The text in the client's reply names the key under `limits`.",
    ),
    Reason.HEADERS_TOO_LARGE: ReasonExplanation(
        "The headers of a request are larger than `limits.headers`.",
        "A client or a proxy that adds cookies or tokens.",
    ),
    Reason.OVERLOADED: ReasonExplanation(
        "A queue, a limit of connections or calls, or the memory for messages is used up; or a server is too busy.",
        "The text in the client's reply names which; `waiting` and `in_flight` in `/status`; more endpoints, or fewer "
        "clients at once.",
    ),
    Reason.RATE_LIMITED: ReasonExplanation(
        "The client, or all clients together, sent more requests than the policy `rate_limit` allows.",
        "`Retry-After` of the reply; rate_limit.",
    ),
    Reason.CIRCUIT_OPEN: ReasonExplanation(
        "The model failed so often that the policy `circuit_breaker` refuses its calls for a while.",
        "The server's log; circuit_breaker.",
    ),
    Reason.TIMEOUT: ReasonExplanation(
        "There was no answer until a deadline: the client's, or that of the policy `timeout`.",
        "The text in the client's reply says which. `last_error` of the endpoints; the time that the model needs.",
    ),
    Reason.REQUEST_TIMEOUT: ReasonExplanation(
        "A client took too long to send its request.",
        "The network, or a client that hangs half-way.",
    ),
    Reason.UNREACHABLE: ReasonExplanation(
        "No connection to an endpoint, or it broke off; or a proxy before a gRPC server gets no reply from it.",
        "`last_error` of the endpoint, which has the system's reason; whether the server runs and listens there.",
    ),
    Reason.NOT_READY: ReasonExplanation(
        "The server, the model or the gateway is not ready yet, or stops.",
        "The server's own log; a gateway that drains after SIGTERM.",
    ),
    Reason.CANCELLED: ReasonExplanation(
        "The client gave the call up, or the server did.",
        "Clients with short timeouts.",
    ),
    Reason.FAILED_PRECONDITION: ReasonExplanation(
        "The state does not allow the call: an order of calls, or a request that went round through gateways.",
        "The text in the client's reply; for loops the route that leads back to the gateway.",
    ),
    Reason.ALREADY_EXISTS: ReasonExplanation(
        "The server says that what is to be made is there already.",
        "The server.",
    ),
    Reason.ABORTED: ReasonExplanation(
        "The server ended the call because of a conflict.",
        "The server; the call can be repeated.",
    ),
    Reason.OUT_OF_RANGE: ReasonExplanation(
        "The server says that a value is outside of its range.",
        "The request.",
    ),
    Reason.DATA_LOSS: ReasonExplanation(
        "The server says that data are lost or corrupt.",
        "The server.",
    ),
    Reason.UNKNOWN: ReasonExplanation(
        "The server failed without saying how.",
        "The server's log.",
    ),
    Reason.INVALID_OUTPUT: ReasonExplanation(
        "The server's reply is malformed, or contradicts the model's metadata; or a gRPC server has reset the call.",
        "The text in the client's reply says what; `signature` on the route, or `trust_metadata: false`.",
    ),
    Reason.MODEL_ERROR: ReasonExplanation(
        "The model failed while it computed.",
        "The server's log.",
    ),
    Reason.INTERNAL: ReasonExplanation(
        "The gateway failed.",
        "The gateway's log has the traceback; please report it.",
    ),
    Reason.UNSUPPORTED_MEDIA_TYPE: ReasonExplanation(
        "The body's `Content-Type` is none that the wire form has at the path.",
        "The text in the client's reply names those that it has; `curl -d` sends a type of its own.",
    ),
    Reason.UNSUPPORTED_ENCODING: ReasonExplanation(
        "The body's `Content-Encoding`, or gRPC's, is none that the gateway reads.",
        "gzip and deflate are read; brpc also zlib and, with an extra, snappy.",
    ),
    Reason.LENGTH_REQUIRED: ReasonExplanation(
        "A body came without a length where the protocol needs one.",
        "The client's HTTP library.",
    ),
    Reason.VERSION_NOT_SUPPORTED: ReasonExplanation(
        "The request is not HTTP/1.0, HTTP/1.1 or HTTP/2.",
        "The client, or a proxy that speaks another version.",
    ),
}
