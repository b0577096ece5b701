"""The ids of requests, which responses repeat."""

from reprlib import repr as shown

from gateway.core.errors import WrongReplyError
from gateway.core.types import Answer, Response


def check_id(answer: Answer, sent: str) -> None:
    """Check that a response belongs to the request with the id `sent`: "if specified this identifier must be returned".

    A server that returns no id is not refused. Not for requests without an id, for which MLServer makes one up.

    Raises:
        WrongReplyError: the response has another id.
    """
    found = answer.id if isinstance(answer, Response) else None
    if found and found != sent:
        raise WrongReplyError(f"the reply's id is {shown(found)}, expected {shown(sent)}, the request's")
