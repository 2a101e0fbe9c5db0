"""OpenEnv's own server around the trivial environment; runs in a virtual environment with ``openenv``.

``python openenv_peer.py`` prints its port as a line of JSON and serves until it is ended.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

SESSIONS = 256


class TextAction(Action):
    text: str


class TextObservation(Observation):
    text: str = ""


class Trivial(Environment):
    """Answers every action with the same word."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State(episode_id="", step_count=0)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **_: Any
    ) -> Observation:
        self._state = State(episode_id=episode_id or "", step_count=0)
        return TextObservation(text="ok", done=False, reward=0.0)

    def step(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        self._state.step_count += 1
        return TextObservation(text="ok", done=False, reward=0.0)

    @property
    def state(self) -> State:
        return self._state


def main() -> None:
    app = create_fastapi_app(Trivial, TextAction, TextObservation, max_concurrent_envs=SESSIONS)
    listener = socket.create_server(("127.0.0.1", 0), backlog=SESSIONS)
    print(json.dumps({"port": listener.getsockname()[1], "pid": os.getpid()}), flush=True)
    # compression off: the cost of a step without it is what is compared
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, ws_per_message_deflate=False
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
