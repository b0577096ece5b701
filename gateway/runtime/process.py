"""The process of a command: its event loop, the log of commands that run a server, lines written directly to standard
output and standard error, and the exit. `process_state` returns the state of any process.

The log goes to standard error, one line per record, as plain text or as a JSON object. The traceback of an unexpected
error follows the text, or is the member `error`. If a line cannot be written because the disk is full, the reader has
exited, or the stream is closed, the command continues."""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TextIO

import orjson

from gateway.config.observing import LogConfig

log = logging.getLogger(__name__)


SWITCH_INTERVAL = 0.0005
"""Seconds after which the event loop's thread can request the GIL from a thread that encodes or decodes.

With Python's default of 5 ms, the loop never requests the GIL from a thread that releases it more often, but only for
microseconds, as numpy does when it converts numbers. Writing 12 million FP32 values as JSON blocked the loop for 150 to
300 ms with the default, and for 20 ms with this value."""


COLLECT_AFTER = 25_000
"""Number of new objects after which a garbage collection begins.

A request in flight has about 30 objects. With Python's default of 700, a few dozen requests trigger repeated
collections, which find no garbage. Every hundredth collection also scans the objects of all idle connections. With this
value, 256 requests in flight trigger no collection."""


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to completion, on uvloop or, on Windows, which uvloop does not support, on Python's own event
    loop."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    # Imported modules live as long as the process. Freeze them, because the garbage collector need not scan them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    if sys.platform == "win32":
        asyncio.run(program)
    else:
        import uvloop

        uvloop.run(program)


_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31m"}
_PLAIN = "\x1b[0m"


class _TextFormatter(logging.Formatter):
    """Formats log records as text. If `colours` is True, the levels of warnings and errors are colored for a
    terminal."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__("%(asctime)s %(shown)s %(name)s: %(message)s")
        self._colours = _COLOURS if colours else {}

    def format(self, record: logging.LogRecord) -> str:
        """Return the log line, followed by the record's traceback, if any."""
        colour = self._colours.get(record.levelno)
        record.shown = f"{colour}{record.levelname}{_PLAIN}" if colour else record.levelname
        return super().format(record)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Return the time in UTC as RFC 3339, with milliseconds."""
        return _time(record)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return a JSON object with `time`, `level`, `log` (the part of the gateway) and `message`.

        If they exist, the object also contains the request `id` and `error` (a traceback)."""
        members = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "log": record.name,
            "message": record.getMessage(),
        }
        if found := getattr(record, "id", ""):
            members["id"] = found
        if record.exc_info:
            members["error"] = self.formatException(record.exc_info)
        readable = {key: text.encode("utf-8", "backslashreplace").decode() for key, text in members.items()}
        return orjson.dumps(readable).decode()


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_to_stderr(config: LogConfig = LogConfig()) -> None:  # noqa: B008 - it is frozen
    """Send the log to standard error: records from the gateway at level `config.level` or above, and records from
    libraries at level `warning` or above.

    A later call can change `config`."""
    root = logging.getLogger()
    handler = next((each for each in root.handlers if each.get_name() == __name__), None)
    if handler is None:
        handler = logging.StreamHandler(sys.stderr)
        handler.set_name(__name__)
        root.addHandler(handler)
    colours = sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    handler.setFormatter(_JsonFormatter() if config.format == "json" else _TextFormatter(colours=colours))
    root.setLevel(logging.WARNING)
    logging.getLogger("gateway").setLevel(config.level.upper())


def say(text: object) -> None:
    """Print a text to standard output. If printing fails, log the reason."""
    why = _written(sys.stdout, text)
    if why:
        log.warning("writing to standard output failed (%s): its text is lost", why)


def warn(text: object) -> None:
    """Print a text to standard error, if possible."""
    _written(sys.stderr, text)


def _written(stream: TextIO | None, text: object) -> str:
    """Write `text`, and return the reason if writing failed, or an empty string. In Python, a closed standard stream is
    None."""
    if stream is None:
        return "it is closed"
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        return error.strerror or "it fails"
    return ""


def process_state(pid: int) -> str:
    """Return the state of a process in /proc/PID/stat, or an empty string if the process or /proc does not exist.

    The state is T if a signal has stopped the process (t in a debugger), and Z if the process has exited and its exit
    status has not been collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def end_process() -> NoReturn:
    """Exit with status 0 without waiting for threads. A normal exit would wait for threads that decode a large message
    or run a model, because threads cannot be stopped. Sockets are already closed; only output might still be
    buffered."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.flush()
    os._exit(0)
