"""The log of commands that run a server: one line per record on standard error, with time and level."""

import logging
import sys
from datetime import UTC, datetime


class _LineFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """The time in UTC as RFC 3339, with milliseconds."""
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_to_stderr() -> None:
    """Send the log to standard error: records of the gateway from INFO, records of libraries from WARNING."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("gateway").setLevel(logging.INFO)
