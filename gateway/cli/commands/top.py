"""`gateway top`: show the activity of a running gateway, live on a terminal or once as a table or JSON."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

import typer

from gateway.cli.command import grouped
from gateway.cli.exit_codes import USAGE, end
from gateway.cli.progress import progress
from gateway.cli.server_options import AdminAccess, AdminUrl, AsJson, admin_exit_code, table
from gateway.tools.admin_port import AdminPortError
from gateway.tools.printed import indented_json
from gateway.tools.top.rows import HEAD, KINDS, SORTS, GatewayOverview, as_json, cells, condition, ordered, sums
from gateway.tools.top.watching import GatewayWatch, Seen, WatchedGateway

EPILOG = (
    "Keys: q quits, s sorts by the next column, r reverses the order, tab shows only listeners, routes, backends or "
    "endpoints. Exit codes: 0 success, 1 the gateway refused the request, 2 wrong usage, 3 the gateway is "
    "unreachable, 4 no response in time."
)
ADMIN = "http://127.0.0.1:9090"
PATIENCE = 5.0
"""Timeout for a response, in seconds."""
KEYS_EVERY = 0.1
"""Seconds between checks for a change that the screen must show."""


@dataclass(frozen=True, kw_only=True)
class TopOptions:
    """The options of `gateway top`."""

    admin: AdminUrl = ADMIN
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="SECONDS",
            min=0.2,
            max=3600,
            help="Refresh interval, in seconds. If output is not a terminal: duration of the measurement.",
        ),
    ] = 2.0
    sort: Annotated[str, typer.Option("--sort", metavar="KEY", help=f"Sort by {', '.join(SORTS)}.")] = "rate"
    access: AdminAccess = field(default_factory=AdminAccess)
    as_json: AsJson = False


@grouped(TopOptions)
def top(options: TopOptions) -> None:
    """Show the activity of a running gateway. Like the console, the command shows rates, errors, latencies, calls in
    flight, waiting calls and health, by listener, route, backend and endpoint. On a terminal, the command runs until q
    or Ctrl-C. Otherwise, and with --json, it measures for one interval, prints the result and exits."""
    if options.sort not in SORTS:
        end(USAGE, f"--sort: expected {', '.join(SORTS)}, got {options.sort!r}")
    gateway = WatchedGateway(options.access.port(options.admin, PATIENCE))
    try:
        first = gateway.read()
        if not options.as_json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
            _show(gateway, first, options)
            return
        with progress("counting"):
            time.sleep(options.interval)
            now = gateway.read()
    except AdminPortError as error:
        end(admin_exit_code(error), error)
    if options.as_json:
        print(indented_json(as_json(now)))
    else:
        print(_text(now, options.sort))


def _text(now: GatewayOverview, sort: str) -> str:
    """Return the overview as tables."""
    first = "  ".join(f"{name} {value}" for name, value in sums(now).items())
    rows = [(kind, each.name, each.about, *cells(each)) for kind in KINDS for each in ordered(now.of(kind), sort)]
    return f"{condition(now)}: {first}\n\n{table(rows, ('', 'name', '', *HEAD))}"


def _show(gateway: WatchedGateway, first: GatewayOverview, options: TopOptions) -> None:
    """Show the activity until the user presses `q` or a signal arrives."""
    from rich.console import Console
    from rich.live import Live

    from gateway.tools.top.screen import View, after_key, drawn, keyboard

    console, view = Console(highlight=False), View(sort=options.sort)
    last = Seen(first, datetime.now())
    shown = None
    with (
        _ended_by_signals(),
        keyboard() as pressed,
        GatewayWatch(gateway, last, options.interval) as seen,
        Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live,
    ):
        while True:
            now = (seen(), view, console.size)
            if now != shown:
                live.update(drawn(options.admin, now[0], view, *console.size), refresh=True)
                shown = now
            for key in pressed(KEYS_EVERY):
                after = after_key(view, key)
                if after is None:
                    return
                view = after


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """End the block on Ctrl-C, like the key `q`. Also end the block on SIGTERM, to restore the terminal; the command
    then exits with the exit code of a process killed by SIGTERM."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    # shells start background commands with SIGINT ignored
    actions = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: stop}
    before = {number: signal.signal(number, action) for number, action in actions.items()}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, action in before.items():
            signal.signal(number, action)
