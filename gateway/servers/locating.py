"""Finds the address of a starting server, from its announcement or because it responds at its assigned port."""

import asyncio
import socket
from collections.abc import Iterable

from gateway.core.frozen import frozen
from gateway.servers.announcement import Announcement, announced
from gateway.servers.consumer import Consumer
from gateway.servers.engine import JobState
from gateway.servers.started_server import StartedServer


@frozen
class Located:
    """The address of a server (HOST:PORT), or the fault in its announcement. The two fields are empty while the
    address is unknown."""

    address: str = ""
    fault: str = ""


async def locate(server: StartedServer, others: Iterable[StartedServer], consumer: Consumer) -> Located:
    """Look once for the address of a server whose job is at the engine. `others` are the fleet's servers."""
    if not server.id or server.report.state is JobState.ENDING:
        return Located()
    found = await asyncio.to_thread(announced, server.folder)
    address = _finished(found, server.unfinished)
    server.unfinished = found.unfinished
    if address:
        why = consumer.why_not(address) or _not_believed(address, server, others)
        return Located(fault=f"{address} cannot be used: {why}") if why else Located(address)
    asked = f"{server.report.host}:{server.port}"
    if server.report.host and not consumer.why_not(asked) and await consumer.is_ready(asked):
        return Located(asked)
    return Located(fault=found.fault)


def _finished(found: Announcement, before: str) -> str:
    """Return the announced address. A line without an end counts only if it was the same in the previous check."""
    return found.address or (found.unfinished if found.unfinished == before else "")


def _not_believed(address: str, server: StartedServer, others: Iterable[StartedServer]) -> str:
    """Return why the server cannot be at the announced address, or an empty string if it can."""
    other = next((each for each in others if each is not server and each.address == address), None)
    if other is not None:
        return f"it is the address of {other.label}"
    host = address.rpartition(":")[0].strip("[]")
    here = {"localhost", "127.0.0.1", "::1", "0.0.0.0", socket.gethostname(), socket.getfqdn()}
    if server.report.host in ("127.0.0.1", "::1") and host not in here and not host.startswith("127."):
        return "the job runs on this machine, which has another name"
    return ""


def free_port() -> int:
    """Return a port that is currently free on this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


async def refuses(address: str) -> bool:
    """Return whether HOST:PORT refuses connections."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
