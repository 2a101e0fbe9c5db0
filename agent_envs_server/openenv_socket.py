"""``/envs/NAME/ws``: OpenEnv's frames, one connection an episode after the other."""

from __future__ import annotations

from functools import partial
from typing import Any

from agent_envs_server import openenv_json
from agent_envs_server.connection import CLOSE_ERROR, Connection
from agent_envs_server.counters import Counters
from agent_envs_server.engine import Crew
from agent_envs_server.openenv_session import OpenEnvSession
from agent_envs_server.refusals import Refusal
from agent_envs_server.settings import Settings

# OpenEnv knows seven codes; ours that mean the same or end the session like them
_CODES = {
    "OPTION_ERROR": "VALIDATION_ERROR",
    "TIMEOUT": "SESSION_ERROR",
    "LIMIT_REACHED": "SESSION_ERROR",
}


class OpenEnvSocket(Connection):
    """A session of OpenEnv frames. One frame after the other: a second reset waits for the step.

    Args:
        env_id: what it plays; None where nothing can be played at this path.
        why_not: then, what its clients are told.
    """

    _work: OpenEnvSession

    def __init__(
        self,
        websocket: Any,
        settings: Settings,
        counters: Counters,
        crew: Crew,
        env_id: str | None,
        why_not: str = "",
    ) -> None:
        super().__init__(websocket, settings, counters, crew)
        self._env_id, self._why_not = env_id, why_not

    async def serve(self) -> None:
        if self._env_id is None:
            await self._turn_away(Refusal("FACTORY_ERROR", self._why_not))
        elif "session_id" in self._socket.query_params:
            await self._turn_away(
                Refusal("SESSION_ERROR", "there are no MCP sessions here that one could join")
            )
        else:
            await super().serve()

    async def _turn_away(self, refusal: Refusal) -> None:
        self._counters.add("refused_total")
        await self._socket.accept()
        await self._end(refusal, CLOSE_ERROR)

    def _new_work(self) -> OpenEnvSession:
        assert self._env_id is not None  # serve() lets nothing else through
        return OpenEnvSession(self._env_id, self._settings, self._counters)

    async def _take(self, event: Any) -> None:
        frame = event.get("text")
        if frame is None:
            raise Refusal("INVALID_JSON", "frames are JSON text, this one is binary")
        reply = await self._result(None, partial(self._work.handle, frame))
        if self._work.ended:
            await self._close(1000, "")
        elif reply is not None:
            await self._send(reply)

    def _error_frame(self, key: Any, refusal: Refusal) -> str:
        code = _CODES.get(refusal.code, refusal.code)
        return openenv_json.write(
            {"type": "error", "data": {"message": refusal.message, "code": code}}
        )
