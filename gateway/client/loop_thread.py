"""An event loop in its own thread, which `Client` uses for callers that have no loop or are inside a running loop
(notebooks)."""

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines on behalf of any number of threads, until it is stopped.

    `stop` then awaits `at_end` in the loop, cancels the remaining tasks, and closes the loop.

    The thread is a daemon, so it does not keep the process alive."""

    def __init__(self, name: str, at_end: Callable[[], Awaitable[None]]) -> None:
        self._at_end = at_end
        self._process = os.getpid()
        self._started = threading.Event()
        self._is_stopped = False
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._started.wait()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` and return its result, or raise its exception.

        A KeyboardInterrupt (Ctrl-C) in the caller cancels the coroutine.

        Raises:
            RuntimeError: the loop is stopped, or the caller runs in a different process from the one that created the
                loop.
        """
        future = self.start(coroutine)
        try:
            return self.result(future)
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `coroutine`. Cancelling the future cancels the coroutine.

        Raises:
            RuntimeError: like `run`.
        """
        with self._lock:
            why_not = self._why_not()
            if why_not:
                coroutine.close()
                raise RuntimeError(why_not)
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def result(self, future: Future[T]) -> T:
        """Wait for a coroutine from `start`, and return its result, or raise its exception.

        Raises:
            RuntimeError: the loop was stopped during the wait.
        """
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("the client closed during the call") from None

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run `coroutine`, which should release resources.

        If the loop is stopped, do nothing. The garbage collector can call this in any thread. In the loop's own thread,
        this method does not wait."""
        if threading.current_thread() is not self._thread:
            try:
                self.run(coroutine)
            except RuntimeError:
                return
        else:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self, *, wait: bool = True) -> None:
        """Stop the loop. Calling it again is safe. If `wait` is set, return when the thread has ended."""
        with self._lock:
            is_first, self._is_stopped = not self._is_stopped, True
            if is_first and self._process == os.getpid():
                self._loop.call_soon_threadsafe(self._end.set)
        if wait and self._process == os.getpid() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _why_not(self) -> str:
        if self._process != os.getpid():
            return (
                "the client is from another process: create one after the fork, or start processes by"
                " `forkserver` or `spawn`, which pickle the client"
            )
        return "the client has been closed; create a new one" if self._is_stopped else ""

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._end.wait()
        await self._at_end()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory if uvloop is installed, or None for Python's own loop."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
