"""The access logs of a gateway: one for each setting of `log` that requests in flight began with."""

import asyncio
import os
from typing import TypeAlias

from gateway.config.keys import AccessConfig, LogConfig
from gateway.observing.access_lines import coloured_lines, json_lines, text_lines
from gateway.observing.access_log import AccessLog
from gateway.observing.line_file import STANDARD
from gateway.observing.writer import LineWriter

_Settings: TypeAlias = tuple[AccessConfig, str]
"""What an access log is made with: `log.access`, and `log.format`."""


class AccessLogs:
    """Access logs by their settings."""

    def __init__(self) -> None:
        self._logs: dict[_Settings, AccessLog] = {}

    def get(self, config: LogConfig) -> AccessLog | None:
        """The access log with these settings, which is opened if it is not yet; None if there is to be none.

        Raises:
            OSError: its file cannot be opened.
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
        """Open files again, which a program that rotates logs may have renamed."""
        for each in self._logs.values():
            each.writer.reopen()

    async def close(self, kept: LogConfig | None = None) -> None:
        """Write what waits, and close all logs but the one that is kept."""
        kept_settings = None if kept is None else _settings(kept)
        closing = [self._logs.pop(each) for each in list(self._logs) if each != kept_settings]
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


def _settings(config: LogConfig) -> _Settings:
    return config.access, config.format
