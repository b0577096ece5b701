"""`python -m tests.tools.cassettes.recordings.record FILE` records one request of some wire forms, as FILE. It made
`version-1.jsonl`, which stays as it is: a new version of the form gets a file of its own."""

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from gateway.client import AsyncClient
from tests.tools.cassettes.recording import FILE, at, recorded


async def record(folder: Path, protocols: Iterable[str]) -> None:
    """One inference of each wire form, and a gradient of UM-Bridge, as FILE in the folder."""
    async with recorded(folder) as (gateway, _):
        for protocol in protocols:
            async with AsyncClient(at(gateway, protocol)) as client:
                await client.infer("posterior", np.array([[0.5, -0.25]]))
                if protocol == "umbridge":
                    await client.gradient("posterior", [0.5, -0.25], sens=[1.0])


if __name__ == "__main__":
    target = Path(sys.argv[1])
    asyncio.run(record(target.parent, ("graphpipe", "grps-brpc", "mip", "umbridge", "v2-rest", "v2-grpc")))
    (target.parent / FILE).rename(target)
