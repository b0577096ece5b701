"""`/docs`: a page that uses Swagger UI to show the OpenAPI documents of the admin port and of the listeners. All its
files are installed with the gateway, because a CDN might be unreachable."""

from importlib.resources import files
from pathlib import Path

import fastapi_offline
from fastapi import FastAPI, Response
from fastapi.staticfiles import StaticFiles

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # Swagger UI sets inline styles
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}

_PATHS = {"/docs": "index.html", "/docs/page.js": "page.js", "/docs/page.css": "page.css"}


def add_page(app: FastAPI) -> None:
    """Serve the page at `/docs`, its own files below it, and Swagger UI's files at `/docs/files`."""
    folder = files(__package__) / "files"
    for path, name in _PATHS.items():
        _serve(app, path, folder.joinpath(name).read_bytes(), TYPES[name.rpartition(".")[2]])
    swagger = Path(fastapi_offline.__file__).parent / "static"
    app.mount("/docs/files", StaticFiles(directory=swagger), name="swagger")


def _serve(app: FastAPI, path: str, content: bytes, media_type: str) -> None:
    @app.get(path, include_in_schema=False)
    async def file() -> Response:
        return Response(content, 200, HEADERS, media_type)
