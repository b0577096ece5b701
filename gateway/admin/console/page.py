"""The files of the console's page, and the headers that prevent the browser from loading anything else."""

from hashlib import blake2b
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

FOLDER = "/console/"

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # the browser does not parse strings as HTML, so a name chosen by a client stays text even if the page has a
        # bug
        "require-trusted-types-for 'script'",
    )
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # the browser checks before each use whether its copy is current
}


def is_page(method: str, path: str) -> bool:
    """Return True if a request is for the page itself, which needs no key, because it contains no gateway data, and
    prompts the user for the key."""
    return method in ("GET", "HEAD") and (path == "/" or path.startswith(FOLDER))


def add_page(app: "FastAPI") -> None:
    """Serve the files at `/console/`, and redirect from `/`."""
    from fastapi import Request, Response  # imported only if the admin port is enabled
    from fastapi.responses import RedirectResponse

    folder = files(__package__) / "files"
    contents = {each.name: each.read_bytes() for each in folder.iterdir()}
    tags = {name: f'"{blake2b(content, digest_size=9).hexdigest()}"' for name, content in contents.items()}

    @app.get("/", include_in_schema=False)
    async def lead() -> Response:
        # relative, so it also works behind a proxy that serves the port under a path prefix
        return RedirectResponse(FOLDER.removeprefix("/"), status_code=307, headers=HEADERS)

    @app.api_route(FOLDER + "{name:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def file(request: Request, name: str) -> Response:
        name = name or "index.html"
        content, media_type = contents.get(name), TYPES.get(name.rpartition(".")[2])
        if content is None or media_type is None:
            return Response("unknown file\n", 404, HEADERS, "text/plain")
        headers = {**HEADERS, "ETag": tags[name]}
        if request.headers.get("if-none-match") == tags[name]:
            return Response(status_code=304, headers=headers)
        return Response(content, 200, headers, media_type)
