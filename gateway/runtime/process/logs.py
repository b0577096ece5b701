"""The log of commands that run a server, which is written to standard error, one line per record, as plain text or as a
JSON object. The traceback of an unexpected error follows the text, or is the member `error`.
"""

import logging
import os
import sys
from datetime import UTC, datetime

import orjson

from gateway.config.observing import LogConfig

_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31m"}
_PLAIN = "\x1b[0m"


class _TextFormatter(logging.Formatter):
    """If `colours` is True, the levels of warnings and errors are colored for a terminal."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__("%(asctime)s %(shown)s %(name)s: %(message)s")
        self._colours = _COLOURS if colours else {}

    def format(self, record: logging.LogRecord) -> str:
        """Return the log line, followed by the traceback if the record has one."""
        colour = self._colours.get(record.levelno)
        record.shown = f"{colour}{record.levelname}{_PLAIN}" if colour else record.levelname
        return super().format(record)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Return the time in UTC as RFC 3339, with milliseconds."""
        return _time(record)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return a JSON object with `time`, `level`, `log` (the part of the gateway) and `message`.

        It also contains the request `id` and `error` (a traceback) if they exist."""
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
    """Send the log to standard error: lines of the gateway from level `config.level`, lines of libraries from
    `warning`.

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
