"""The access logs of a gateway: one for each setting of `log` that requests in flight began with."""

import asyncio
import os

from gateway.config.keys import LogConfig
from gateway.observing.access_lines import coloured_lines, json_lines, text_lines
from gateway.observing.access_log import AccessLog
from gateway.observing.writer import STANDARD, LineWriter


class AccessLogs:
    """Access logs by their settings."""

    def __init__(self) -> None:
        self._logs: dict[LogConfig, AccessLog] = {}

    def get(self, config: LogConfig) -> AccessLog | None:
        """The access log with these settings, which is opened if it is not yet; None if there is to be none.

        Raises:
            OSError: its file cannot be opened.
        """
        if not is_on(config):
            return None
        if config not in self._logs:
            writer = LineWriter(config.access.path)
            render = json_lines if config.format == "json" else coloured_lines if writer.has_colours else text_lines
            self._logs[config] = AccessLog(writer, render, config.access.sample)
        return self._logs[config]

    def reopen(self) -> None:
        """Open files again, which a program that rotates logs may have renamed."""
        for each in self._logs.values():
            each.writer.reopen()

    async def close(self, kept: LogConfig | None = None) -> None:
        """Write what waits, and close all logs but the one that is kept."""
        closing = [self._logs.pop(config) for config in list(self._logs) if config != kept]
        for each in closing:
            each.flush()
            await asyncio.to_thread(each.close)


def is_on(config: LogConfig) -> bool:
    """Whether there is an access log."""
    access = config.access
    if access.when != "auto":
        return access.when == "always"
    stream = STANDARD.get(access.path)
    return config.format == "json" or stream is None or os.isatty(stream)
