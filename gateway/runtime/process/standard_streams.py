"""Lines that serving commands write to standard output and standard error directly, in addition to the log.

If they cannot write a line because a disk is full, the reader has ended, or the stream is closed, the commands
continue.
"""

import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn, TextIO

log = logging.getLogger(__name__)


def say(text: object) -> None:
    """Print a text on standard output. If that fails, log the reason."""
    why = _written(sys.stdout, text)
    if why:
        log.warning("writing to standard output failed (%s): its text is lost", why)


def warn(text: object) -> None:
    """Print a text on standard error, if that is possible."""
    _written(sys.stderr, text)


def _written(stream: TextIO | None, text: object) -> str:
    """Return why the stream did not take `text`, or an empty text. Python has None for a closed stream."""
    if stream is None:
        return "it is closed"
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        return error.strerror or "it fails"
    return ""


def end_process() -> NoReturn:
    """End the process with status 0 without waiting for threads. A normal exit would wait for threads that decode a
    large message or compute a model, which cannot be stopped. The sockets are already closed; only output might still
    be buffered."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.flush()
    os._exit(0)
