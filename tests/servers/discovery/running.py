"""What the tests of running gateways with discovery share."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.assembly.reference import serve_reference
from gateway.cli.options import catalog
from gateway.config import reference_config
from gateway.core.transport import Listener
from tests.limits import GENEROUS


class Messages(logging.Handler):
    """The log lines of the gateway, to wait for."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self._queue.put_nowait(record.getMessage())

    async def until(self, text: str) -> str:
        """The next line with `text`; those before it are dropped."""
        async with asyncio.timeout(GENEROUS):
            while text not in (message := await self._queue.get()):
                pass
        return message


@contextmanager
def messages() -> Iterator[Messages]:
    """The log lines from now on."""
    handler, log = Messages(), logging.getLogger("gateway")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


async def model_server(protocol: str, bind: str = "127.0.0.1:0") -> Listener:
    """A reference server, to be drained by the caller."""
    config = reference_config(protocol, bind, ["posterior"], catalog())
    return await serve_reference(config, asyncio.get_running_loop().time)
