"""Collects request records for the status API's counters, the access log, the payload log, metrics, and tracing."""

import asyncio
import os
from functools import partial
from typing import TypeAlias
from weakref import WeakSet

from gateway.assembly.certificates import Certificates
from gateway.assembly.explain.explaining import needed_to_explain, on_start
from gateway.assembly.payload_logs import SECONDS_FOR_LAST_ENTRIES, LogCalls, PayloadLogs, log_calls
from gateway.assembly.server_info import INFO
from gateway.config.keys import Config
from gateway.config.listeners import ListenerConfig
from gateway.config.observing import AccessConfig, LogConfig, TracingConfig
from gateway.core.record import Observer, RecordDisclosure
from gateway.core.tasks import spawn
from gateway.core.transport import StartRecord
from gateway.observing.access_log import AccessLog, coloured_lines, json_lines, text_lines
from gateway.observing.counters import Counters
from gateway.observing.finished import FinishedRecords, Reader
from gateway.observing.history import History
from gateway.observing.line_file import STANDARD, LineWriter
from gateway.observing.otlp import OtlpExporter
from gateway.observing.recent import RecentRequests
from gateway.observing.recording import OnStart, Recording
from gateway.observing.tracing import TraceCounts, Tracing

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


SECONDS_FOR_LAST_SPANS = 5.0
"""The maximum time for sending the remaining spans to the collector when tracing ends, in seconds."""


class Observing:
    """The observers of a gateway. They exist longer than any one of its configurations."""

    def __init__(self, certificates: Certificates) -> None:
        self.observers: list[Observer] = []
        """The functions to call at the end of each request. A listener reads this list when it starts and at each
        reload."""
        self._finished = FinishedRecords()
        """Passes on the records of requests that began with the newest configuration."""
        self._finished_steps = FinishedRecords()
        """Passes on the records of graph steps. Steps are counted but do not appear in the access log, because no
        client sent them."""
        self._all_finished = WeakSet((self._finished, self._finished_steps))
        """The current objects, and the objects of earlier configurations that still have requests in flight."""
        self.counters = Counters()
        """Request counts for the status API."""
        self.history = History()
        """Load and request counts of the last hour, for the console."""
        self.recent = RecentRequests()
        """The most recent requests, for the console."""
        self.traces = TraceCounts()
        """The counts of sampled requests since the start, across all `tracing` settings."""
        self.tracing: Tracing | None = None
        self._tracing: TracingConfig | None = None
        """The `tracing` settings in use."""
        self._access_logs = AccessLogs()
        self.payload_logs = PayloadLogs(certificates)
        """The logs of sampled calls, with their requests and responses."""

    def renew(self, config: Config, metrics: Reader | None) -> None:
        """From now on, collect the records of new requests for the destinations that `config` enables."""
        access = self._access_logs.get(config.log)
        self._finished, self._finished_steps = FinishedRecords(), FinishedRecords()
        if metrics is not None:
            self._finished.readers.append(metrics)
            self._finished_steps.readers.append(metrics)
        if access is not None:
            self._finished.readers.append(access.write)
        if config.admin is not None:
            self._finished.readers += (self.counters.count, self.recent.keep)
            self._finished_steps.readers += (self.counters.count, self.recent.keep_steps)
        self._all_finished.update((self._finished, self._finished_steps))

    def flush(self) -> None:
        """Pass on the records of all completed requests."""
        for each in list(self._all_finished):
            each.flush()

    def recording(self, listener: ListenerConfig, config: Config) -> StartRecord | None:
        """Return a function that creates the records of a listener's requests, or None if no observer uses them."""
        observers = [*self.observers, self._finished.add] if self._finished.readers else self.observers
        starts: list[OnStart] = [on_start(needed_to_explain(listener))] if listener.allow_explain else []
        traces = None if self.tracing is None else self.tracing.of_listener(has_tls=listener.tls is not None)
        if (
            not observers
            and not starts
            and traces is None
            and config.log.payloads is None
            and config.request_ids is None
            and not listener.reply_headers
        ):
            return None
        ids = config.request_ids
        if ids is None:  # observing changes only error responses
            telling = RecordDisclosure(route=listener.reply_headers, id_of_errors=True)
        else:
            telling = RecordDisclosure(ids.reply, listener.reply_headers, ids.forward)
        accepts = ids is None or ids.accept
        steps = (self._finished_steps.add,) if self._finished_steps.readers else ()
        return Recording(
            listener.name, observers, telling, accepts_ids=accepts, traces=traces, starts=starts, step_observers=steps
        ).start

    def log_calls(self, config: Config) -> LogCalls | None:
        """Return a function that adds a sample of the calls to the payload log in `config`, or None if this log is
        disabled."""
        log = self.payload_logs.get(config.log.payloads)
        return None if log is None else partial(log_calls, log, config)

    def open_logs(self, config: LogConfig, refused: type[Exception]) -> None:
        """Open the access log and the payload log before requests use them. Raise `refused` if a file cannot be
        opened."""
        try:
            self._access_logs.get(config)
        except OSError as error:
            text = f"cannot open log.access.path {config.access.path!r}: {error.strerror}"
            raise refused(f"{text}; use a path that the gateway can write") from None
        try:
            self.payload_logs.get(config.payloads)
        except OSError as error:
            assert config.payloads is not None
            text = f"cannot open log.payloads.to {config.payloads.to!r}: {error.strerror}"
            raise refused(f"{text}; use a path that the gateway can write") from None

    def reopen_logs(self) -> None:
        """Reopen the files of the access log and the payload log, because a log-rotation program might have renamed
        them."""
        self._access_logs.reopen()
        self.payload_logs.reopen()

    async def close_logs(self, kept: LogConfig | None = None, seconds: float = SECONDS_FOR_LAST_ENTRIES) -> None:
        """Close all access logs and payload logs except the logs with the settings `kept`. A payload log has `seconds`
        seconds to write its queued entries."""
        self.flush()
        await self._access_logs.close(kept)
        await self.payload_logs.close(None if kept is None else kept.payloads, seconds)

    def trace(self, config: TracingConfig | None) -> bool:
        """From now on, trace requests with these settings. Send the last spans of the previous settings in the
        background. Return False if the settings are unchanged."""
        if config == self._tracing:
            return False
        before, self._tracing, self.tracing = self.tracing, config, None
        if config is not None:
            from gateway.observing.collector import Collector  # imported here because it needs the extra `tracing`

            headers = {name: each.get_secret_value() for name, each in config.headers.items()}
            collector = Collector(config.otlp, headers, config.timeout)
            export = OtlpExporter(collector.send, config.service, INFO.version)
            self.tracing = Tracing(export, config.sample, config.interval, self.traces)
            self.tracing.start()
        if before is not None:
            spawn(before.stop(SECONDS_FOR_LAST_SPANS))
        return True

    async def stop(self, seconds: float) -> None:
        """Send the last spans and close the logs. Each step takes at most `seconds` seconds."""
        if self.tracing is not None:
            await self.tracing.stop(min(SECONDS_FOR_LAST_SPANS, seconds))
            self.tracing = None
        await self.close_logs(seconds=min(SECONDS_FOR_LAST_ENTRIES, seconds))
