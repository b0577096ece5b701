"""Announcement of a server's address: a line `http://HOST:PORT` in a file `url-*.txt` in the job's folder.

UM-Bridge's job scripts write these files. A file without a line end might be incomplete, so the gateway reads it again
later, and uses it if it has not changed. `locating` calls this module.
"""

import re
from pathlib import Path

from gateway.core.frozen import frozen

PATTERN = "url-*.txt"
MOST_BYTES = 1024
MOST_FILES = 16

# A host name or an IPv4 address (RFC 1123, section 2.1), or an IPv6 address in brackets.
_LINE = re.compile(r"(?:http://)?((?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253})|\[[0-9A-Fa-f:.]{2,45}\])):([0-9]{1,5})/?")


@frozen
class Announcement:
    """The announcement in the files of a job: `address` (HOST:PORT), or in `fault` the reason why the address is
    unusable. The two fields are empty if the job has written no file."""

    address: str = ""
    fault: str = ""
    unfinished: str = ""
    """An address whose line might be incomplete, because it has no line end."""


NOTHING = Announcement()


def announced(folder: Path) -> Announcement:
    """Return the announcement in `folder`. If there are several addresses, return the first by file name."""
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
        found = read(content)
        if found.address:
            return found
        unfinished = unfinished or found.unfinished
        if found.fault:
            faults.append(f"{file.name} {found.fault}")
    return Announcement(fault="; ".join(faults), unfinished=unfinished)


def read(content: bytes) -> Announcement:
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
