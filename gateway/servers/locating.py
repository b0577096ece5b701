"""Finds the address of a starting server, either from its announcement, or because the server responds at its assigned
port.

An announcement is a line `http://HOST:PORT` in a file `url-*.txt` in the job's folder. UM-Bridge's job scripts write
such files. A file without a line end might be incomplete, so the gateway reads the file again later, and uses it if it
has not changed."""

import asyncio
import re
import socket
from collections.abc import Iterable
from pathlib import Path

from gateway.core.frozen import frozen
from gateway.servers.consumer import Consumer
from gateway.servers.engine import JobState
from gateway.servers.started_server import StartedServer

PATTERN = "url-*.txt"
MOST_BYTES = 1024
MOST_FILES = 16

# A host name or an IPv4 address (RFC 1123, section 2.1), or an IPv6 address in brackets.
_LINE = re.compile(r"(?:http://)?((?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253})|\[[0-9A-Fa-f:.]{2,45}\])):([0-9]{1,5})/?")


@frozen
class Announcement:
    """The announcement in the files of a job: `address` (HOST:PORT), or `fault`, which is the reason why the address is
    unusable. Both fields are empty if the job has written no file."""

    address: str = ""
    fault: str = ""
    unfinished: str = ""
    """An address whose line might be incomplete, because it has no line end."""


NOTHING = Announcement()


def announced(folder: Path) -> Announcement:
    """Return the announcement in `folder`. If the folder contains several addresses, the first by file name counts."""
    faults, unfinished = [], ""
    for file in sorted(folder.glob(PATTERN))[:MOST_FILES]:
        try:
            if not file.is_file():  # opening a named pipe would block until a writer opens it
                faults.append(f"{file.name} is not a regular file")
                continue
            with file.open("rb") as opened:
                content = opened.read(MOST_BYTES + 1)
        except OSError as error:
            faults.append(f"{file.name} cannot be read: {error.strerror}")
            continue
        found = _read_content(content)
        if found.address:
            return found
        unfinished = unfinished or found.unfinished
        if found.fault:
            faults.append(f"{file.name} {found.fault}")
    return Announcement(fault="; ".join(faults), unfinished=unfinished)


def _read_content(content: bytes) -> Announcement:
    """Return the announcement in a file with this content."""
    if not content.strip():
        return NOTHING
    if len(content) > MOST_BYTES:
        return Announcement(fault=f"has more than {MOST_BYTES} bytes; expected one line http://HOST:PORT")
    text = content.decode("ascii", "replace")
    line, end, rest = text.partition("\n")
    found = _LINE.fullmatch(line.strip())
    if found is None or not 0 < int(found[2]) < 65536 or rest.strip():
        if not end and len(line) < 8:
            return NOTHING  # such as "http:/"
        return Announcement(fault=f"has {text.strip()[:80]!r}; expected one line http://HOST:PORT")
    address = f"{found[1]}:{int(found[2])}"
    return Announcement(address=address) if end else Announcement(unfinished=address)


@frozen
class Located:
    """The address of a server (HOST:PORT), or the fault in its announcement. Both fields are empty while the address is
    unknown."""

    address: str = ""
    fault: str = ""


async def locate(server: StartedServer, others: Iterable[StartedServer], consumer: Consumer) -> Located:
    """Return the address of a server whose job is at the engine, if it is known by now. `others` are the fleet's
    servers."""
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
    """Return the announced address. A line without a line end counts only if it was the same in the previous check."""
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
