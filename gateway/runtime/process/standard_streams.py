"""Writes lines of serving commands directly to standard output and standard error, in addition to the log.

Commands continue if a line cannot be written because the disk is full, the reader has exited, or the stream is closed.
"""

import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn, TextIO

log = logging.getLogger(__name__)


def say(text: object) -> None:
    """Print a text to standard output. If that fails, log the reason."""
    why = _written(sys.stdout, text)
    if why:
        log.warning("writing to standard output failed (%s): its text is lost", why)


def warn(text: object) -> None:
    """Print a text to standard error, if possible."""
    _written(sys.stderr, text)


def _written(stream: TextIO | None, text: object) -> str:
    """Return why `text` could not be written, or an empty string. In Python, a closed standard stream is None."""
    if stream is None:
        return "it is closed"
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        return error.strerror or "it fails"
    return ""


def end_process() -> NoReturn:
    """End the process with status 0 without waiting for threads. A normal exit would wait for threads that decode a
    large message or run a model, because threads cannot be stopped. Sockets are already closed; only output might still
    be buffered."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.flush()
    os._exit(0)
