"""`gateway drain`: stop a running gateway from sending calls to an endpoint, before maintenance of the server."""

import time
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from gateway.cli.command import grouped
from gateway.cli.exit_codes import FAILED, TIMED_OUT, end
from gateway.cli.progress import progress
from gateway.cli.server_options import AdminAccess, AdminUrl, admin_exit_code
from gateway.tools.admin_port import AdminPort, AdminPortError
from gateway.tools.printed import printable

EPILOG = "Exit codes: 0 drained (or drain undone), 1 the gateway refused the request, 2 wrong usage, 3 the gateway is unreachable, 4 calls are still running after --wait (the endpoint gets no new calls)."  # noqa: E501
INTERVAL = 0.2
"""Seconds between checks of the endpoint's drain."""


@dataclass(frozen=True, kw_only=True)
class DrainOptions:
    """The options of `gateway drain`."""

    backend: Annotated[str, typer.Argument(metavar="BACKEND", help="Name of the backend.")]
    endpoint: Annotated[
        str, typer.Argument(metavar="ENDPOINT", help="Address of the endpoint, in the format of GET /status.")
    ]
    admin: AdminUrl
    undo: Annotated[bool, typer.Option("--undo", help="Undo the drain.")] = False
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            max=86400,
            help="Maximum time to drain, in seconds. During this time, open sequences continue on the endpoint, and "
            "the endpoint's models move to other servers.",
        ),
    ] = 60.0
    access: AdminAccess = field(default_factory=AdminAccess)


@grouped(DrainOptions)
def drain(options: DrainOptions) -> None:
    """Stop sending requests to an endpoint, for maintenance. The endpoint receives no new calls, and its calls in
    flight finish. Run the command for every gateway that sends calls to the server. The drain lasts until you run the
    command with --undo, or until the gateway restarts."""
    try:
        _drain(options.access.port(options.admin), options)
    except AdminPortError as error:
        end(admin_exit_code(error), error)


def _drain(port: AdminPort, options: DrainOptions) -> None:
    asked = {"backend": options.backend, "endpoint": options.endpoint}
    what = f"endpoint {options.endpoint} of backend {options.backend!r}"
    if options.undo:
        port.post("/drain", {**asked, "undo": True})
        print(f"{what} gets calls again")
        return
    now = port.post("/drain", {**asked, "seconds": options.wait})
    until = time.monotonic() + options.wait
    with progress(f"draining {options.endpoint}") as line:
        while now is not None and now["drain"]["state"] != "drained" and time.monotonic() < until:
            line.show(_left(now))
            time.sleep(min(INTERVAL, max(0.0, until - time.monotonic())))
            now = _endpoint(port.get("/status"), options)
    if now is None:
        end(FAILED, f"{what} is no longer drained: the drain was undone, or the endpoint was removed")
    for each in now["drain"]["failed_moves"]:
        print(printable(f"not loaded on another server: {each}"))
    if now["drain"]["state"] != "drained":
        end(TIMED_OUT, f"{what} gets no new calls, but was not drained within {options.wait:g} s: {_left(now)}")
    print(f"{what} is drained")


def _endpoint(status: Any, options: DrainOptions) -> Any:
    """Return the endpoint's status, or None if the drain is over."""
    backend = status["backends"].get(options.backend, {"endpoints": []})
    for each in backend["endpoints"]:
        if each["address"] == options.endpoint and each["drain"] is not None:
            return each
    return None


def _left(endpoint: Any) -> str:
    drain = endpoint["drain"]
    if drain["is_moving"]:
        return "the gateway is loading its models on other servers"
    return f"{endpoint['in_flight']} calls and {drain['sequences']} sequences have not ended"
