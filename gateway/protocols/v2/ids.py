"""Request ids, which responses repeat."""

from reprlib import repr as shown

from gateway.core.errors import WrongReplyError
from gateway.core.requests import Answer, Response


def check_id(answer: Answer, sent: str) -> None:
    """Check that a response belongs to the request with the id `sent`, because "if specified this identifier must be
    returned".

    A response without an id is not an error. Do not call this function for requests without an id, because MLServer
    generates one.

    Raises:
        WrongReplyError: the response contains another id.
    """
    found = answer.id if isinstance(answer, Response) else None
    # servers in C and C++ end a string at its first NUL
    if found and found not in (sent, sent.partition("\0")[0]):
        raise WrongReplyError(f"the reply's id is {shown(found)}, expected {shown(sent)}, the request's")
