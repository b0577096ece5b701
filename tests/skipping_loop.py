"""An event loop whose clock the test puts forward: nobody waits for what takes long."""

import asyncio


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped


LOOPS = {"skipping": SkippingLoop}
"""For a module whose tests run on this loop."""


async def skip(seconds: float) -> None:
    """Let the time pass, and whatever is due then happen."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    loop.skipped += seconds
    for _ in range(5):
        await asyncio.sleep(0)
