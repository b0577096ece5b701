"""Where the log of a command that serves goes: one line for each record on standard error, with time and level."""

import logging
import sys
from datetime import UTC, datetime


class _Lines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """RFC 3339 in UTC, with milliseconds."""
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_to_stderr() -> None:
    """Send the log of every module to standard error: the gateway's own from INFO on, of libraries only warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("gateway").setLevel(logging.INFO)
