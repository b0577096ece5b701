"""Lines that commands that serve write to standard output and standard error themselves, beside the log. They go on if
a line cannot be written: because a disk is full, the reader has gone, or the stream was closed."""

import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn, TextIO

log = logging.getLogger(__name__)


def say(text: object) -> None:
    """Print a text on standard output. If that fails, the log says so."""
    why = _written(sys.stdout, text)
    if why:
        log.warning("standard output cannot be written (%s): what would be printed there is lost", why)


def warn(text: object) -> None:
    """Print a text on standard error, if that is possible."""
    _written(sys.stderr, text)


def _written(stream: TextIO | None, text: object) -> str:
    """Why `text` could not be written; empty if it was. Python has None for a stream that was closed."""
    if stream is None:
        return "it is closed"
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        return error.strerror or "it fails"
    return ""


def end_process() -> NoReturn:
    """End the process with status 0 without waiting for threads. A normal exit would wait for threads that decode a
    large message or compute a model, which cannot be stopped. Sockets are closed by now; only output may still be
    buffered."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.flush()
    os._exit(0)
