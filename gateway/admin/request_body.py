"""Reads the bodies of requests to the status API, as far as a bound."""

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect


async def read_body(request: Request, most: int, what: str = "body") -> bytes:
    """The body of `request`, of at most `most` bytes; `what` is its name in errors.

    Raises:
        HTTPException: it is larger, or its client left before its end and gets no answer.
    """
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise HTTPException(413, f"the {what} has more than {most} bytes")
    except ClientDisconnect:
        raise HTTPException(499, "the client has left") from None
    return bytes(body)
