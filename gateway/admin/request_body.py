"""Limits the size of request bodies on the admin port, and reads them. `status` adds the limit to the application;
`register` and the playground read bodies."""

from typing import Any

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect

from gateway.admin.access import ASGI

MOST_BODY = 4096
"""Maximum size of a request body, in bytes."""
MOST_FORM = 4 * 2**20
"""Maximum size of a playground form, in bytes."""
PLAYGROUND = "/api/playground"


class BoundedBodies:
    """Passes requests to `app`, and stops receiving a body that exceeds its size limit."""

    def __init__(self, app: ASGI) -> None:
        self._application = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one ASGI connection."""
        most = MOST_FORM if str(scope.get("path", "")).startswith(f"{PLAYGROUND}/") else MOST_BODY
        received = 0

        async def counted() -> Any:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise HTTPException(413, f"the body has more than {most} bytes; send a shorter one")
            return message

        await self._application(scope, counted, send)


async def read_body(request: Request) -> bytes:
    """Return the body of `request`.

    Raises:
        HTTPException: the body is larger than BoundedBodies allows, or the client disconnected before it had sent the
            entire body.
    """
    try:
        return await request.body()
    except ClientDisconnect:
        raise HTTPException(499, "the client has left") from None
