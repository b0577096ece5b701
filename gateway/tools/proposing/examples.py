"""The examples for a proposal: reads their files and the URL of the requests, and checks that a proposed form can read
the examples, write them, and read the result."""

import json
from collections.abc import Sequence
from mimetypes import guess_type
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import JSON_HEADERS, Message
from gateway.core.protocol import ListenerSettings, Protocol, Rows, Target
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import Tensor
from gateway.tools.proposing.form import Example, NoProposalError
from gateway.tools.proposing.text import ProposedServer

DEFAULT_ENDPOINT, DEFAULT_PATH = "http://127.0.0.1:5000", "/predict"
"""The address and path that Flask tutorials use for serving models."""


class ExampleError(ValueError):
    """The file or URL is unusable (the message contains the file or URL, and the reason)."""


def read_examples(paths: Sequence[Path]) -> list[Example]:
    """Return the examples in pairs of files. Each pair contains a request body and the response body, as JSON.

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


_AS_PYTHON = Translate(nan="literal")
"""The form in which Python servers read and write NaN."""


def check(protocol: Protocol, path: str, examples: Sequence[Example]) -> None:
    """Check that every example's tensors are the same after reading, writing and reading again.

    Raises:
        NoProposalError: the tensors of an example change (the message states the example and the difference).
    """
    for number, example in enumerate(examples, 1):
        try:
            request = _request(protocol, path, _bytes(example.request))
            sent = replace(request, inputs=_in_calls(protocol, request.inputs), translate=_AS_PYTHON)
            written = protocol.encode_request(sent, Target("example"))
            _compare(request.inputs, _request(protocol, path, written.body).inputs)
        except (DecodeError, GatewayError, _DifferenceError) as error:
            text = f"the proposed form does not read request {number} correctly: {error}"
            raise NoProposalError(f"{text}; write the form by hand") from error
        try:
            response = _response(protocol, _bytes(example.reply), request)
            given = replace(response, outputs=_of_calls(protocol, response.outputs))
            message = protocol.encode_response(given, request, _AS_PYTHON)
            _compare(response.outputs, _response(protocol, message.body, request).outputs)
        except (DecodeError, GatewayError, _DifferenceError) as error:
            text = f"the proposed form does not read response {number} correctly: {error}"
            raise NoProposalError(f"{text}; write the form by hand") from error


class _DifferenceError(Exception):
    """Writing and reading changed a tensor."""


def _request(protocol: Protocol, path: str, body: Any) -> Request:
    pattern = next(each for each in protocol.patterns if each.partition(" ")[2] == path)
    message = Message("POST", path, JSON_HEADERS, (bytes(body),), pattern=pattern)
    return protocol.decode_request(message, ListenerSettings("example"))


def _response(protocol: Protocol, body: Any, request: Request) -> Response:
    message = Message(headers=JSON_HEADERS, parts=(bytes(body),), status=200)
    answer = protocol.decode_response(message, request, Target("example"))
    assert isinstance(answer, Response)
    return answer


def _in_calls(protocol: Protocol, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return request inputs as the server receives them. If the server takes one row per call, remove the dimension
    that counts rows."""
    is_row = protocol.traits.wire.rows is Rows.ONE
    return tuple(replace(each, shape=each.shape[1:]) for each in tensors) if is_row else tuple(tensors)


def _of_calls(protocol: Protocol, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs of a call as clients receive them."""
    is_row = protocol.traits.wire.rows is Rows.ONE
    return tuple(replace(each, shape=(1, *each.shape)) for each in tensors) if is_row else tuple(tensors)


def _compare(read: Sequence[Tensor], again: Sequence[Tensor]) -> None:
    for before, after in zip(read, again, strict=True):
        if before != after:
            raise _DifferenceError(f"{before.name!r} changes when the form writes it and reads it again")


def _bytes(value: Any) -> bytes:
    return json.dumps(value).encode()  # unlike other JSON writers, `json` writes NaN, as the servers in the examples do
