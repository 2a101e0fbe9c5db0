"""The life of one WebSocket session, whatever it speaks: capacity, idle time, the limit on a call."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from starlette.websockets import WebSocketDisconnect

from agent_envs_server.counters import Counters
from agent_envs_server.engine import Crew, Engine
from agent_envs_server.refusals import ENDING, Refusal, as_refusal
from agent_envs_server.settings import Settings

logger = logging.getLogger("agent_envs_server.session")
_numbers = itertools.count(1)

CLOSE_IDLE, CLOSE_ERROR, CLOSE_FULL = 4408, 4400, 1013
_SOON = 0.01  # seconds

Frame = bytes | str


class Work(Protocol):
    """What a connection's calls work on. Blocking; one call at a time.

    Attributes:
        one_thread: all calls must come from the same thread.
        at_work: index of the replica that runs, -1 for none, and since when (monotonic seconds).
    """

    one_thread: bool
    at_work: tuple[int, float]

    def close(self) -> None:
        """Release everything."""


class Connection:
    """Serves one WebSocket from accept to close: one connection, one session.

    A subclass makes the session, takes frames and writes error frames.

    Args:
        websocket: Starlette's, not yet accepted.
        crew: whose threads the session's calls run in.
    """

    def __init__(self, websocket: Any, settings: Settings, counters: Counters, crew: Crew) -> None:
        self._socket, self._settings, self._counters = websocket, settings, counters
        self._crew = crew
        self._limits = settings.limits
        self._task: asyncio.Task[None] | None = None
        self._call: asyncio.Future[Any] | None = None  # at work in the session's thread
        self._heard = time.monotonic()  # when the last frame came, or its answer was ready
        self._timer: asyncio.TimerHandle | None = None
        self._sending = asyncio.Lock()
        self._number = next(_numbers)
        self._work: Work

    # -- what a subclass writes ----------------------------------------------------------------

    @abstractmethod
    def _new_work(self) -> Work:
        """The session; called once it has a place. Blocking, in any thread."""

    @abstractmethod
    async def _take(self, event: Any) -> None:
        """Handle one frame. A Refusal raised here is sent, for no request in particular."""

    @abstractmethod
    def _error_frame(self, key: Any, refusal: Refusal) -> Frame:
        """The error frame of the request ``key`` (None: of none)."""

    # -- the session's life --------------------------------------------------------------------

    async def serve(self) -> None:
        await self._socket.accept()
        if self._counters.total("sessions") >= self._limits.sessions:
            self._counters.add("refused_total")
            refusal = Refusal(
                "CAPACITY_REACHED",
                f"all {self._limits.sessions} sessions are taken (serve --max-sessions)",
            )
            await self._end(refusal, CLOSE_FULL)
            return
        self._counters.add("sessions")
        self._counters.add("sessions_total")
        try:
            self._work = await asyncio.to_thread(self._new_work)  # it may import an environment
        except BaseException as error:
            self._counters.add("sessions", -1)
            if not isinstance(error, Exception):
                raise
            why = f"no session can be made: {type(error).__name__}: {error}"
            await self._end(Refusal("FACTORY_ERROR", why), CLOSE_ERROR)
            return
        self._engine = Engine(f"session-{self._number}", self._crew, lambda: self._work.one_thread)
        logger.info("session opened", extra={"session": self._number})
        try:
            self._look_within(self._limits.idle)
            await self._read()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._counters.add("sessions", -1)
            if self._task is not None:
                self._task.cancel()
            self._engine.stop(self._work.close)
            logger.info("session closed", extra={"session": self._number})

    async def _read(self) -> None:
        while True:
            event = await self._socket.receive()
            self._heard = time.monotonic()
            if event["type"] == "websocket.disconnect":
                return
            try:
                await self._take(event)
            except Refusal as refusal:
                await self._send_refusal(None, refusal)

    async def _result(self, key: Any, call: Callable[[], Frame]) -> Frame | None:
        """What ``call`` returns in the session's thread; None where it failed and that was sent."""
        started = time.monotonic()
        try:
            return await self._within_limit(call)
        except Exception as error:
            refusal = as_refusal(error)
            if refusal.code == "EXECUTION_ERROR":
                logger.warning(
                    "request failed", extra={"session": self._number, "error": refusal.message}
                )
            await self._send_refusal(key, refusal)
            return None
        finally:
            self._counters.add("requests_total")
            self._counters.add("busy_seconds_total", time.monotonic() - started)

    async def _within_limit(self, call: Callable[[], Frame]) -> Frame:
        """The call's result; the limit is for one replica at a time, not for the whole frame."""
        self._work.at_work = (-1, time.monotonic())
        self._call = self._engine.submit(call)
        self._look_within(self._limits.step)
        try:
            result: Frame = await self._call
        finally:
            self._heard, self._call = time.monotonic(), None  # at work is not idle
        return result

    # -- the clock: one timer for a session, as one for each frame would cost more than a step ----

    def _look_within(self, seconds: float) -> None:
        """See to it that :meth:`_look` runs in so many seconds or before."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Give up a replica that takes too long, close a session that is idle."""
        self._timer = None
        if self._call is None:
            left = self._heard + self._limits.idle - time.monotonic()
            if left <= 0:
                self._counters.add("reaped_total")
                why = f"no request for {self._limits.idle:g} s"
                self._reaping = asyncio.create_task(self._close(CLOSE_IDLE, why))
                return
        else:
            index, since = self._work.at_work
            left = since + self._limits.step - time.monotonic()
            if left <= 0 and not self._call.done():
                self._counters.add("timeouts_total")
                why = f"replica {index} took longer than {self._limits.step:g} s"
                self._call.set_exception(Refusal("TIMEOUT", why, index if index >= 0 else None))
                return
        self._look_within(max(left, _SOON))

    async def _send_refusal(self, key: Any, refusal: Refusal) -> None:
        self._counters.add("errors_total")
        if refusal.code in ENDING:
            await self._end(refusal, CLOSE_ERROR, key)
        else:
            await self._send(self._error_frame(key, refusal))

    async def _end(self, refusal: Refusal, code: int, key: Any = None) -> None:
        await self._send(self._error_frame(key, refusal))
        await self._close(code, refusal.code)

    async def _send(self, data: Frame) -> None:
        send = self._socket.send_bytes if isinstance(data, bytes) else self._socket.send_text
        async with self._sending:
            await _unless_gone(send(data))

    async def _close(self, code: int, reason: str) -> None:
        await _unless_gone(self._socket.close(code, reason))


async def _unless_gone(sending: Awaitable[None]) -> None:
    """The client may have gone in between; ``_read`` finds out."""
    try:
        await sending
    except (WebSocketDisconnect, RuntimeError, OSError):
        logger.debug("a client was gone before its reply")
