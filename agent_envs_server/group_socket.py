"""``/group``: our own binary frames, one connection a session."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette.websockets import WebSocketDisconnect

from agent_envs.group.wire import WireError, pack, pack_reply, unpack
from agent_envs_server.counters import Counters
from agent_envs_server.engine import Engine
from agent_envs_server.refusals import ENDING, Refusal, as_refusal
from agent_envs_server.session import Session
from agent_envs_server.settings import Settings

logger = logging.getLogger("agent_envs_server.session")
_numbers = itertools.count(1)
_KEPT_REPLIES = 4  # the last ones, sent again where their request comes again

CLOSE_IDLE, CLOSE_ERROR, CLOSE_FULL = 4408, 4400, 1013


class GroupSocket:
    """Serves one WebSocket from accept to close.

    Args:
        websocket: Starlette's, not yet accepted.
    """

    def __init__(self, websocket: Any, settings: Settings, counters: Counters) -> None:
        self._socket, self._settings, self._counters = websocket, settings, counters
        self._limits = settings.limits
        self._replies: OrderedDict[Any, bytes] = OrderedDict()
        self._running: Any = None  # id of the request at work
        self._task: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()
        self._number = next(_numbers)

    async def serve(self) -> None:
        await self._socket.accept()
        if self._counters.total("sessions") >= self._limits.sessions:
            self._counters.add("refused_total")
            await self._refuse_all(
                Refusal("CAPACITY_REACHED", f"all {self._limits.sessions} sessions are taken"),
                CLOSE_FULL,
            )
            return
        self._counters.add("sessions")
        self._counters.add("sessions_total")
        self._session = Session(self._settings, self._counters)
        self._engine = Engine(f"session-{self._number}")
        logger.info("session opened", extra={"session": self._number})
        try:
            await self._read()
        finally:
            self._counters.add("sessions", -1)
            if self._task is not None:
                self._task.cancel()
            self._engine.stop(self._session.close)
            logger.info("session closed", extra={"session": self._number})

    async def _read(self) -> None:
        while True:
            try:
                event = await asyncio.wait_for(self._socket.receive(), self._limits.idle)
            except TimeoutError:
                if self._task is not None and not self._task.done():
                    continue  # at work is not idle
                self._counters.add("reaped_total")
                await self._close(CLOSE_IDLE, f"no request for {self._limits.idle:g} s")
                return
            if event["type"] == "websocket.disconnect":
                return
            try:
                await self._take(event.get("bytes"))
            except Refusal as refusal:
                await self._send_refusal(None, refusal)

    async def _take(self, data: bytes | None) -> None:
        """Start on a request, or answer at once what cannot be started."""
        if data is None:
            raise Refusal("MALFORMED", "frames are binary MessagePack, this one is text")
        try:
            message = unpack(data)
        except WireError as error:
            raise Refusal("MALFORMED", str(error)) from None
        if not isinstance(message, dict):
            raise Refusal("MALFORMED", f"a frame must be a map, got {type(message).__name__}")
        key = message.get("id")
        if type(key) is not int:
            raise Refusal("MALFORMED", "a frame needs an integer id")
        if key in self._replies:
            await self._send(self._replies[key])
        elif self._task is not None and not self._task.done():
            if key != self._running:  # the same one again: its reply is on the way
                await self._send_refusal(
                    key, Refusal("BUSY", f"request {self._running} is still at work: wait for it")
                )
        else:
            self._running = key
            self._task = asyncio.create_task(self._answer(key, message))

    async def _answer(self, key: int, message: dict[str, Any]) -> None:
        started = time.monotonic()
        try:
            reply = await self._within_limit(partial(self._work, key, message))
        except Exception as error:
            refusal = as_refusal(error)
            if refusal.code == "EXECUTION_ERROR":
                logger.warning(
                    "request failed", extra={"session": self._number, "error": refusal.message}
                )
            await self._send_refusal(key, refusal)
            return
        finally:
            self._counters.add("requests_total")
            self._counters.add("busy_seconds_total", time.monotonic() - started)
        self._keep(key, reply)
        await self._send(reply)

    def _work(self, key: int, message: dict[str, Any]) -> bytes:
        return pack_reply({"id": key, **self._session.handle(message)})

    async def _within_limit(self, call: Callable[[], bytes]) -> bytes:
        """The call's result; the limit is for one replica at a time, not for the whole frame."""
        self._session.at_work = (-1, time.monotonic())
        future = self._engine.submit(call)
        while True:
            left = self._session.at_work[1] + self._limits.step - time.monotonic()
            done, _ = await asyncio.wait([future], timeout=max(left, 0.01))
            if done:
                result: bytes = future.result()
                return result
            index, since = self._session.at_work
            if time.monotonic() - since >= self._limits.step:
                self._counters.add("timeouts_total")
                raise Refusal(
                    "TIMEOUT",
                    f"replica {index} took longer than {self._limits.step:g} s",
                    index if index >= 0 else None,
                )

    def _keep(self, key: int, reply: bytes) -> None:
        self._replies[key] = reply
        while len(self._replies) > _KEPT_REPLIES:
            self._replies.popitem(last=False)

    async def _send_refusal(self, key: int | None, refusal: Refusal) -> None:
        self._counters.add("errors_total")
        await self._send(_error_frame(key, refusal))
        if refusal.code in ENDING:
            await self._close(CLOSE_ERROR, refusal.code)

    async def _refuse_all(self, refusal: Refusal, code: int) -> None:
        await self._send(_error_frame(None, refusal))
        await self._close(code, refusal.code)

    async def _send(self, data: bytes) -> None:
        async with self._sending:
            await _unless_gone(self._socket.send_bytes(data))

    async def _close(self, code: int, reason: str) -> None:
        await _unless_gone(self._socket.close(code, reason))


def _error_frame(key: int | None, refusal: Refusal) -> bytes:
    return pack(
        {
            "id": key, "type": "error", "code": refusal.code, "message": refusal.message,
            "index": refusal.index,
        }
    )  # fmt: skip


async def _unless_gone(sending: Awaitable[None]) -> None:
    """The client may have gone in between; ``_read`` finds out."""
    try:
        await sending
    except (WebSocketDisconnect, RuntimeError, OSError):
        logger.debug("a client was gone before its reply")
