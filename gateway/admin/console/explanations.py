"""The meaning of each error reason, and the next steps. The console shows these explanations, and `make pages`
generates the table of reasons in `docs/runbook.md` from them."""

from collections.abc import Set

from pydantic import BaseModel

from gateway.core.errors import Reason
from gateway.core.frozen import frozen
from gateway.observing.faults import Fault, fault


@frozen
class ReasonExplanation:
    """The meaning of a reason, and the next steps. `code` in backticks is the only markup."""

    meaning: str
    look_at: str


EXPLANATIONS: dict[Reason, ReasonExplanation] = {
    Reason.INVALID_INPUT: ReasonExplanation(
        "The request violates its protocol, or its tensors do not match the model.",
        "Read the message in the response, which contains the field's name. `translate` on the route can convert, "
        "rename and cast tensors.",
    ),
    Reason.MODEL_NOT_FOUND: ReasonExplanation(
        "No route matches the model's name, or the backend does not have the model or the version.",
        "Check the routes' `match` and `rewrite`, and the server's list of loaded models.",
    ),
    Reason.PATH_NOT_FOUND: ReasonExplanation(
        "No protocol of the listener serves this path.",
        "Check the listener's `protocols` and `prefix`.",
    ),
    Reason.METHOD_NOT_ALLOWED: ReasonExplanation(
        "The path exists only for other HTTP methods.",
        "Use a method from the response header `Allow`.",
    ),
    Reason.UNSUPPORTED: ReasonExplanation(
        "The protocol, the server or the model does not support the operation.",
        "See the protocol compatibility matrix.",
    ),
    Reason.UNAUTHENTICATED: ReasonExplanation(
        "Credentials for the listener or the model server are missing or wrong.",
        "Read the message in the response, and check keys and tokens. To forward credentials to the server, set "
        "`forward_headers` on the backend.",
    ),
    Reason.PERMISSION_DENIED: ReasonExplanation(
        "The principal lacks the permission, or the listener or the model server does not allow the operation. The "
        "error is the same whether or not the model exists.",
        "Check `principals` and `permissions`, and the listener's `allow_control` and `allow_offline`.",
    ),
    Reason.TOO_LARGE: ReasonExplanation(
        "A message, a tensor, or a decompressed body exceeds a limit.",
        "Raise the `limits` key that the message in the response contains, or send less data.",
    ),
    Reason.HEADERS_TOO_LARGE: ReasonExplanation(
        "The request headers are larger than `limits.headers`.",
        "Check the client, and any proxies that add cookies or tokens.",
    ),
    Reason.OVERLOADED: ReasonExplanation(
        "A queue is full, a limit on connections, calls or memory is reached, or a server is too busy.",
        "Read the message in the response, and check `waiting` and `in_flight` in `/status`. Add endpoints, or reduce "
        "the number of concurrent calls.",
    ),
    Reason.RATE_LIMITED: ReasonExplanation(
        "The client, or all clients that share the limit, sent more requests than the `rate_limit` policy allows.",
        "Wait for the number of seconds in the response header `Retry-After`; see rate_limit.",
    ),
    Reason.CIRCUIT_OPEN: ReasonExplanation(
        "The model failed too often, so the `circuit_breaker` policy rejects its calls for several seconds.",
        "Check the server's log; see circuit_breaker.",
    ),
    Reason.TIMEOUT: ReasonExplanation(
        "No response arrived before the client's deadline, or before the deadline of the `timeout` policy.",
        "Read the message in the response, which contains the deadline. Check the endpoints' `last_error`, and the "
        "duration of the model's calls.",
    ),
    Reason.REQUEST_TIMEOUT: ReasonExplanation(
        "A client took too long to send its request.",
        "Check the network, and check whether the client hangs.",
    ),
    Reason.UNREACHABLE: ReasonExplanation(
        "The connection to an endpoint failed or broke, or a proxy in front of a gRPC server received no response from "
        "the server.",
        "Check the operating system's error in the endpoint's `last_error`, and check whether the server listens on "
        "the endpoint's address.",
    ),
    Reason.NOT_READY: ReasonExplanation(
        "The server, the model or the gateway is not ready yet, or is stopping.",
        "Check the server's log, and check whether the gateway is draining after SIGTERM.",
    ),
    Reason.CANCELLED: ReasonExplanation(
        "The client or the server canceled the call.",
        "Check the client timeouts.",
    ),
    Reason.FAILED_PRECONDITION: ReasonExplanation(
        "The current state does not allow the call. For example, calls arrived in the wrong order, or a request passed "
        "through a loop of gateways.",
        "Read the message in the response. For a loop, change the route that leads back to the gateway.",
    ),
    Reason.ALREADY_EXISTS: ReasonExplanation(
        "The server reports that the object already exists.",
        "Check the server.",
    ),
    Reason.ABORTED: ReasonExplanation(
        "The server ended the call because of a conflict.",
        "Repeat the call. If it fails again, check the server.",
    ),
    Reason.OUT_OF_RANGE: ReasonExplanation(
        "The server reports that a value is out of range.",
        "Check the request.",
    ),
    Reason.DATA_LOSS: ReasonExplanation(
        "The server reports that data is lost or corrupt.",
        "Check the server.",
    ),
    Reason.UNKNOWN: ReasonExplanation(
        "The server failed and returned no known status.",
        "Check the server's log.",
    ),
    Reason.INVALID_OUTPUT: ReasonExplanation(
        "The server's response is malformed or contradicts the model's metadata, or a gRPC server reset the call.",
        "Read the message in the response. Set `signature` on the route, or `trust_metadata: false` on the backend.",
    ),
    Reason.MODEL_ERROR: ReasonExplanation(
        "The model failed during the computation.",
        "Check the server's log.",
    ),
    Reason.INTERNAL: ReasonExplanation(
        "The gateway failed.",
        "Report the error, with the traceback from the gateway's log.",
    ),
    Reason.UNSUPPORTED_MEDIA_TYPE: ReasonExplanation(
        "The protocol does not support the body's `Content-Type` at this path.",
        "Use a type from the message in the response. `curl -d` sends a default type; set another type with `-H`.",
    ),
    Reason.UNSUPPORTED_ENCODING: ReasonExplanation(
        "The gateway does not support the `Content-Encoding` of the body, or its gRPC encoding.",
        "Use gzip or deflate. brpc also supports zlib and, with the optional extra `brpc`, snappy.",
    ),
    Reason.LENGTH_REQUIRED: ReasonExplanation(
        "The request has a body without a length, but the protocol requires the length.",
        "Check the client's HTTP library.",
    ),
    Reason.VERSION_NOT_SUPPORTED: ReasonExplanation(
        "The request is not HTTP/1.0, HTTP/1.1 or HTTP/2.",
        "Check the client, and any proxies that use another version.",
    ),
}


class ExplainedReason(BaseModel):
    """An error reason and its explanation."""

    meaning: str
    look_at: str
    fault: Fault
    """The party that caused the error. Only server errors require an operator."""


def explained(reasons: Set[str]) -> dict[str, ExplainedReason]:
    """Return the explanations of the strings that are values of Reason. Other strings have no explanation."""
    return {
        reason.value: ExplainedReason(meaning=text.meaning, look_at=text.look_at, fault=fault(reason.value))
        for reason, text in EXPLANATIONS.items()
        if reason.value in reasons
    }
