"""Probe a server for a command: with a line that shows the current step, and the exit codes of commands."""

from collections.abc import Sequence
from typing import NoReturn

from gateway.assembly.forms import known
from gateway.cli.exit_codes import FAILED, TIMED_OUT, UNREACHABLE, USAGE, end
from gateway.cli.progress import progress
from gateway.tools.probing.asking import ServerAccess
from gateway.tools.probing.probe import Probed, ProbeVerdict, probe


async def probed(address: str, access: ServerAccess, seconds: float, names: Sequence[str]) -> Probed:
    """Return the result of a probe with `seconds` for each reply. `names` are models to query if the server does not
    list any. Exits with USAGE if `address` is invalid."""
    try:
        with progress(f"asking {address}") as line:
            return await probe(address, known(), access, seconds=seconds, names=names, on_progress=line.show)
    except ValueError as error:
        end(USAGE, error)


def end_unspoken(found: Probed, address: str, more: str = "") -> NoReturn:
    """Exit because the probe found no protocol at the address. Print the text of the verdict, and `more` after it."""
    codes = {ProbeVerdict.UNREACHABLE: UNREACHABLE, ProbeVerdict.SILENT: TIMED_OUT}
    end(codes.get(found.verdict, FAILED), f"{address}: {found.text}{more}")
