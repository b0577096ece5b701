"""Entries for tests."""

import asyncio
from collections.abc import Sequence

import numpy as np

from gateway.core.tensors import tensor
from gateway.observing.payload_log.copies import CopyBounds, copied
from gateway.observing.payload_log.events import CallFacts, Entry, EventForm, LoggedReply, LoggedRequest

FACTS = CallFacts("id1", "", "m", "", "infer", "route-0", "b", "v2-rest", 1_700_000_000.0)
FORM = EventForm("here")
MESSAGE = copied([tensor("x", np.array([1.0]))], {}, CopyBounds(1000))
REQUEST = LoggedRequest(FACTS, MESSAGE)
REPLY = LoggedReply(FACTS, MESSAGE, 1_700_000_001.0, version="1")
FAILED = LoggedReply(FACTS, None, 1_700_000_001.0, "NOT_FOUND", "model-not-found", "no model 'm'")


class FakeSink:
    """Keeps what it is sent. It waits until `goes_on` is set, loses `lost`, raises `error`."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Entry]] = []
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()
        self.goes_on.set()
        self.lost = 0
        self.error: Exception | None = None
        self.closed = 0

    async def send(self, batch: Sequence[Entry]) -> tuple[int, str]:
        self.batches.append(batch)
        self.began.set()
        await self.goes_on.wait()
        if self.error is not None:
            raise self.error
        return self.lost, "it says no" if self.lost else ""

    def reopen(self) -> None: ...

    async def close(self) -> None:
        self.closed += 1
