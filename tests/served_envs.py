"""Environments that only a server needs to know by module."""

from __future__ import annotations

import time

from agent_envs.core import StateNotPortable
from tests.toy import ToyEnv


class StatelessEnv(ToyEnv):
    """Cannot save its state."""

    def get_state(self) -> bytes:
        raise StateNotPortable("no states here")


class SlowEnv(ToyEnv):
    """Takes a while for ``x``."""

    def _act(self, action):
        print("a talkative environment " * 200)
        if action == "x":
            time.sleep(0.7)
        return super()._act(action)
