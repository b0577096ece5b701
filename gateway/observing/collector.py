"""Send batches of spans to a collector by OTLP over HTTP (the OpenTelemetry Protocol, section "OTLP/HTTP"), and send a
batch again after errors that the protocol calls retryable. This module requires the extra `tracing`."""

import gzip
from collections.abc import Mapping
from contextlib import suppress
from random import uniform
from time import monotonic, sleep

import requests

_TRY_AGAIN = frozenset({429, 502, 503, 504})
"""The statuses after which a batch can be sent again."""
_FIRST_PAUSE = 1.0
"""Seconds before the second attempt. The delay doubles before each further attempt, unless the collector specifies a
delay."""
_LEVEL = 3
"""The gzip level. The default level takes twice as long and saves only 7% of the bytes."""
_LONGEST_REASON = 100
"""Maximum number of characters of a status line's reason phrase in a report."""
_MOST_READ = 2**16
"""Maximum number of bytes to read of a response. The content is ignored."""


def compressed(batch: bytes) -> bytes:
    """Return a batch, compressed."""
    return gzip.compress(batch, _LEVEL)


class Collector:
    """The collector at `url`. Use it in one thread at a time.

    `headers` contains the headers of each request. `timeout` is the time limit for all attempts to send a batch, in
    seconds."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._session = requests.Session()
        self._session.headers.update({**headers, "Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"})

    def send(self, batch: bytes) -> str:
        """Send a batch. Return the reason if the collector did not accept the batch, or an empty string."""
        body, until, pause = compressed(batch), monotonic() + self._timeout, _FIRST_PAUSE
        while True:
            why_not, wanted = self._try(body, until - monotonic())
            if wanted is None:
                return why_not
            seconds = wanted or pause * uniform(0.8, 1.2)
            if monotonic() + seconds > until:
                return why_not
            sleep(seconds)
            pause *= 2

    def _try(self, body: bytes, seconds: float) -> tuple[str, float | None]:
        """Return the reason if the collector did not accept the batch, or an empty string. Also return the seconds
        before another attempt: 0 if the response does not specify a delay, None if the batch must not be sent again."""
        try:
            with (
                self._session.post(
                    self._url, body, timeout=max(seconds, 0.001), allow_redirects=False, stream=True
                ) as reply,
                suppress(requests.RequestException),
            ):
                # The connection can be reused only if the response is read to its end. If reading fails, the status
                # still counts.
                next(reply.iter_content(_MOST_READ), b"")
        except requests.Timeout:
            return f"timeout: no answer within {self._timeout:g} s", None
        except requests.ConnectionError as error:
            return f"no connection: {_cause(error)}", 0.0
        except requests.RequestException as error:
            # The error message might contain the value of a header, which can be a secret.
            return f"the request or the reply is not valid: {type(error).__name__}", None
        if 200 <= reply.status_code < 300:
            return "", None
        why_not = f"the collector answered {reply.status_code} {(reply.reason or '')[:_LONGEST_REASON]}".rstrip()
        if reply.status_code not in _TRY_AGAIN:
            return why_not, None
        after = reply.headers.get("Retry-After", "")
        return why_not, float(after) if after.isdecimal() else 0.0


def _cause(error: BaseException) -> str:
    """Return the innermost cause of an error, because `requests` wraps system errors in errors that contain the URL."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return str(error) or type(error).__name__
