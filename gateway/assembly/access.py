"""The access logs of a gateway, which `observing` opens and closes. After a reload that changes `log`, the previous log
stays open until requests that began before the reload have ended.
"""

import asyncio
import os
from typing import TypeAlias

from gateway.config.observing import AccessConfig, LogConfig
from gateway.observing.access_lines import coloured_lines, json_lines, text_lines
from gateway.observing.access_log import AccessLog
from gateway.observing.line_file import STANDARD
from gateway.observing.writer import LineWriter

_Settings: TypeAlias = tuple[AccessConfig, str]
"""The settings of an access log: `log.access`, and `log.format`."""


class AccessLogs:
    """Access logs, stored by their settings."""

    def __init__(self) -> None:
        self._logs: dict[_Settings, AccessLog] = {}

    def get(self, config: LogConfig) -> AccessLog | None:
        """Return the access log with these settings, or None if the settings disable it. Open the log if necessary.

        Raises:
            OSError: the log file cannot be opened.
        """
        if not is_on(config):
            return None
        settings = _settings(config)
        if settings not in self._logs:
            writer = LineWriter(config.access.path)
            render = json_lines if config.format == "json" else coloured_lines if writer.has_colours else text_lines
            self._logs[settings] = AccessLog(writer, render, config.access.sample)
        return self._logs[settings]

    def reopen(self) -> None:
        """Reopen the log files, because a log-rotation program might have renamed them."""
        for each in self._logs.values():
            each.writer.reopen()

    async def close(self, kept: LogConfig | None = None) -> None:
        """Write buffered lines, and close all logs except the log with the settings `kept`."""
        kept_settings = None if kept is None else _settings(kept)
        closing = [self._logs.pop(each) for each in list(self._logs) if each != kept_settings]
        for each in closing:
            each.flush()
            await asyncio.to_thread(each.close)


def is_on(config: LogConfig) -> bool:
    """Return True if any access log is open."""
    access = config.access
    if access.when != "auto":
        return access.when == "always"
    stream = STANDARD.get(access.path)
    return config.format == "json" or stream is None or os.isatty(stream)


def _settings(config: LogConfig) -> _Settings:
    return config.access, config.format
