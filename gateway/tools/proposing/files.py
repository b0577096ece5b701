"""The example files, and the URL of the requests."""

import json
from collections.abc import Sequence
from mimetypes import guess_type
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway.tools.proposing.form import Example
from gateway.tools.proposing.text import ProposedServer

DEFAULT_ENDPOINT, DEFAULT_PATH = "http://127.0.0.1:5000", "/predict"
"""The address and path that Flask tutorials use for serving models."""


class ExampleError(ValueError):
    """The file or URL is unusable (the message contains it and the reason)."""


def read_examples(paths: Sequence[Path]) -> list[Example]:
    """Return the examples in pairs of files. Each pair consists of a request body and its response body, as JSON.

    Raises:
        ExampleError: a file is unreadable or is not JSON, or the number of files is odd or zero.
    """
    if not paths or len(paths) % 2:
        count = "1 file" if len(paths) == 1 else f"{len(paths)} files"
        raise ExampleError(f"--example needs pairs of files, each a request and its response; got {count}")
    bodies = [_read(each) for each in paths]
    return [Example(bodies[at], bodies[at + 1]) for at in range(0, len(bodies), 2)]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise ExampleError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        media_type = guess_type(path.name)[0] or "application/octet-stream"
        raise ExampleError(
            f"{path} is not JSON, so no form can be proposed; write a form with `media_type: {media_type}` and "
            "`request: $x` (docs/forms.md, media types)"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ExampleError(f"{path} is not JSON: {error}") from error


def server_at(url: str) -> ProposedServer:
    """Return the server and the path in the request URL, or a guess if the URL is empty. Raise ExampleError for an
    unusable URL."""
    if not url:
        return ProposedServer(DEFAULT_ENDPOINT, DEFAULT_PATH, is_guess=True)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ExampleError(f"expected a URL such as {DEFAULT_ENDPOINT}{DEFAULT_PATH}, got {url!r}")
    if parts.query:
        raise ExampleError(
            f"the proposal cannot contain the query {parts.query!r}; remove it, and write it as `query:` in the form"
        )
    return ProposedServer(f"{parts.scheme}://{parts.netloc}", parts.path or "/")
