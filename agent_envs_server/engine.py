"""A session's thread: environments block, the event loop must not (FIELD_CASES F117)."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any


class Engine:
    """One daemon thread that runs calls one after the other.

    A thread cannot be stopped: one that hangs in an environment is left behind, which is why it is a
    daemon and belongs to one session only.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run ``call`` in the thread; the result comes to the running event loop."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def done(result: Any, error: Exception | None) -> None:
            if not future.done():
                future.set_result(result) if error is None else future.set_exception(error)

        def tell(result: Any, error: Exception | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(done, result, error)

        self._calls.put((call, tell))
        return future

    def stop(self, last: Callable[[], None]) -> None:
        """Run ``last`` after what is waiting, then end."""
        self._calls.put((last, None))
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            _carry_out(*item)
            del item  # keep nothing alive while waiting


def _carry_out(
    call: Callable[[], Any], tell: Callable[[Any, Exception | None], None] | None
) -> None:
    result, error = None, None
    try:
        result = call()
    except Exception as caught:
        error = caught
    if tell is not None:
        tell(result, error)
