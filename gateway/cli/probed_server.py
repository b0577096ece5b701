"""Functions that probe a server for a command, show the current step, and end the command if the probe fails."""

from collections.abc import Sequence
from typing import NoReturn

from gateway.assembly.forms import known
from gateway.cli.exit_codes import FAILED, TIMED_OUT, UNREACHABLE, USAGE, end
from gateway.cli.progress import progress
from gateway.tools.probing.asking import ServerAccess
from gateway.tools.probing.probe import Probed, ProbeVerdict, probe

_CODES = {ProbeVerdict.UNREACHABLE: UNREACHABLE, ProbeVerdict.SILENT: TIMED_OUT}


async def probed(address: str, access: ServerAccess, seconds: float, names: Sequence[str]) -> Probed:
    """Return the result of a probe, with a timeout of `seconds` for each response. `names` are the models to query if
    the server does not list its models. Exit with USAGE if `address` is invalid."""
    try:
        with progress(f"querying {address}") as line:
            return await probe(address, known(), access, seconds=seconds, names=names, on_progress=line.show)
    except ValueError as error:
        end(USAGE, error)


def end_unspoken(found: Probed, address: str, more: str = "") -> NoReturn:
    """Exit because the probe found no protocol at the address. Print the probe's explanation, followed by `more`."""
    end(_CODES.get(found.verdict, FAILED), f"{address}: {found.text}{more}")


def is_unrecognized(found: Probed) -> bool:
    """Return whether a server responds at the address, but the probe found no protocol."""
    return not found.spoken and found.verdict not in _CODES
