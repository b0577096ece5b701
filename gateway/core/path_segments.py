"""Model names and versions as path segments of requests to backends."""

from urllib.parse import quote

from gateway.core.errors import invalid_input


def path_segment(name: str, what: str, server: str) -> str:
    """Return `name`, percent-encoded as one path segment.

    Raises:
        GatewayError: INVALID_ARGUMENT if `name` cannot be a path segment. The message contains `what` (such as a model)
            and the kind of `server`.
    """
    # An empty segment or dots would change the path, percent-encoded or not (RFC 3986 section 5.2.4).
    if name in ("", ".", ".."):
        raise invalid_input(f"{what} {name!r} has no URL on a {server} server")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise invalid_input(f"{what} {name!r} is not UTF-8") from error
