"""``/group``: our own binary frames, one connection a session."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import Any

from agent_envs.group.wire import WireError, pack, pack_reply, unpack
from agent_envs_server.connection import Connection
from agent_envs_server.counters import Counters
from agent_envs_server.engine import Crew
from agent_envs_server.refusals import Refusal
from agent_envs_server.session import Session
from agent_envs_server.settings import Settings

_KEPT_REPLIES = 4  # the last ones, sent again where their request comes again


class GroupSocket(Connection):
    """A session of group frames. Requests have ids; one is at work at a time."""

    _work: Session

    def __init__(self, websocket: Any, settings: Settings, counters: Counters, crew: Crew) -> None:
        super().__init__(websocket, settings, counters, crew)
        self._replies: OrderedDict[Any, bytes] = OrderedDict()
        self._running: Any = None  # id of the request at work

    def _new_work(self) -> Session:
        return Session(self._settings, self._counters)

    async def _take(self, event: Any) -> None:
        """Start on a request, or answer at once what cannot be started."""
        data = event.get("bytes")
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
        reply = await self._result(key, partial(self._packed, key, message))
        if isinstance(reply, bytes):
            self._keep(key, reply)
            await self._send(reply)

    def _packed(self, key: int, message: dict[str, Any]) -> bytes:
        return pack_reply({"id": key, **self._work.handle(message)})

    def _keep(self, key: int, reply: bytes) -> None:
        self._replies[key] = reply
        while len(self._replies) > _KEPT_REPLIES:
            self._replies.popitem(last=False)

    def _error_frame(self, key: int | None, refusal: Refusal) -> bytes:
        return pack(
            {
                "id": key, "type": "error", "code": refusal.code, "message": refusal.message,
                "index": refusal.index,
            }
        )  # fmt: skip
