"""The headers in which clients send their credentials: a separate header for keys, `Authorization: Bearer`, or
`Authorization: Basic`.

gRPC metadata uses the same names. Basic is for clients that accept credentials only in a URL, such as UM-Bridge's
Python client (`http://user:KEY@host`). The password is the key or token; the gateway ignores the user name.
"""

from base64 import b64decode
from binascii import Error

AUTHORIZATION = b"authorization"

CHALLENGE = (b"WWW-Authenticate", b'Bearer realm="gateway", Basic realm="gateway"')
"""The header that a 401 response must contain (RFC 9110, section 15.5.2)."""


class UnknownKeyError(Exception):
    """A token is signed by an unknown key of its `issuer`, which might have published new keys."""

    def __init__(self, issuer: str) -> None:
        super().__init__(issuer)
        self.issuer = issuer


def authorized(field: bytes) -> bytes:
    """Return the key or token from the value of an Authorization header, or empty bytes."""
    scheme, _, rest = field.partition(b" ")
    match scheme.lower():
        case b"bearer":
            return rest.strip()
        case b"basic":
            try:
                return b64decode(rest.strip(), validate=True).partition(b":")[2]
            except (Error, ValueError):
                return b""
    return b""
