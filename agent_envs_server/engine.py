"""Where sessions' calls run: environments block, the event loop must not (FIELD_CASES F117).

A thread of its own for each session costs a switch of threads, and a wake-up of the event loop, for every
step. So sessions whose last call was quick share one thread, which works off what waits and wakes the loop
once for all of it; when one of its calls takes long, another thread takes over the rest. A session whose
last call was slow gets a thread for the next one.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

QUICK = 0.002  # seconds of a call, up to which the next one goes to the shared thread
PATIENCE = 0.005  # seconds after which another thread takes over what waits behind a call

Job = Callable[[], None]


class _Shift:
    """The jobs of one thread; counts of its own, as one that was taken over from may still count."""

    def __init__(self) -> None:
        self.begun, self.ended = 0, 0


class Crew:
    """The threads of one event loop. All are daemons: one that hangs in an environment is left behind."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._done: deque[Job] = deque()  # for the loop to run
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told = False  # the loop knows that there is something in _done
        self._shift: _Shift | None = None  # of the thread that works off _jobs
        self._shifts = 0  # so far
        self._seen = -1  # what it was at when last looked at
        self._timer: asyncio.TimerHandle | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve this loop from now on; to be called in it."""
        if self._loop is not loop:
            self._loop, self._told, self._timer = loop, False, None

    def share(self, job: Job) -> None:
        """Run the job in the shared thread; to be called in the loop."""
        self._jobs.put(job)
        if self._timer is None:
            if self._shift is None:
                self._take_over()
            self._look_again()

    def tell(self, news: Job) -> None:
        """Run ``news`` in the loop; to be called in any thread."""
        self._done.append(news)
        loop = self._loop
        if not self._told and loop is not None and not loop.is_closed():
            self._told = True
            loop.call_soon_threadsafe(self._spread)

    def _spread(self) -> None:
        self._told = False
        while self._done:
            self._done.popleft()()

    def _take_over(self) -> None:
        self._shift = _Shift()
        self._shifts += 1
        apart(partial(self._work, self._shift), f"shared-{self._shifts}")

    def _work(self, shift: _Shift) -> None:
        while self._shift is shift:
            job = self._jobs.get()
            shift.begun += 1
            job()
            del job  # keep nothing alive while waiting
            shift.ended += 1

    def _look_again(self) -> None:
        assert self._loop is not None
        assert self._shift is not None
        self._seen = self._shift.begun
        self._timer = self._loop.call_later(PATIENCE, self._look)

    def _look(self) -> None:
        self._timer = None
        assert self._shift is not None  # share() was first
        at_work = self._shift.begun > self._shift.ended
        if at_work and self._shift.begun == self._seen:
            self._take_over()
            at_work = False
        if at_work or not self._jobs.empty():
            self._look_again()


class Engine:
    """One session's calls, one at a time.

    Args:
        bound: all calls must come from the same thread (:attr:`Profile.one_thread`); asked before each.
    """

    def __init__(self, name: str, crew: Crew, bound: Callable[[], bool]) -> None:
        self._name, self._crew, self._bound = name, crew, bound
        self._turn = threading.Lock()
        self._quick = False
        self._over = False
        self._lane: queue.SimpleQueue[Job | None] | None = None

    def submit(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run ``call`` in a thread; the result comes to the running event loop."""
        loop = asyncio.get_running_loop()
        self._crew.bind(loop)
        future = loop.create_future()
        job = partial(self._carry_out, call, future)
        if self._bound():
            self._own_lane().put(job)
        elif self._quick:
            self._crew.share(job)
        else:
            apart(job, self._name)
        return future

    def stop(self, last: Callable[[], None]) -> None:
        """Run ``last`` after what is at work; what has not begun by then fails."""
        if self._lane is not None:
            self._lane.put(last)
            self._lane.put(None)
        else:
            apart(partial(self._in_turn, last), self._name)

    def _own_lane(self) -> queue.SimpleQueue[Job | None]:
        if self._lane is None:
            self._lane = queue.SimpleQueue()
            apart(partial(_work_off, self._lane), self._name)
        return self._lane

    def _in_turn(self, call: Callable[[], None]) -> None:
        with self._turn:
            self._over = True
            call()

    def _carry_out(self, call: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        result, begun = None, time.perf_counter()
        error: Exception | None = None
        with self._turn:
            try:
                if self._over:  # a reset now would make an environment that nobody closes
                    raise RuntimeError("the session is closed")
                result = call()
            except StopIteration as caught:  # no future takes it
                error = RuntimeError(f"StopIteration: {caught}")
            except Exception as caught:
                error = caught
            except BaseException as caught:  # an environment's sys.exit() ends no thread of ours
                error = RuntimeError(f"{type(caught).__name__}: {caught}")
        self._quick = time.perf_counter() - begun < QUICK
        self._crew.tell(partial(_settle, future, result, error))


def apart(job: Job, name: str) -> None:
    """Run the job in a thread of its own."""
    threading.Thread(target=job, name=name, daemon=True).start()


def _work_off(lane: queue.SimpleQueue[Job | None]) -> None:
    while (job := lane.get()) is not None:
        job()
        del job


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if not future.done():
        future.set_result(result) if error is None else future.set_exception(error)
