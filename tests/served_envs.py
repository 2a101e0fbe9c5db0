"""Environments that only a server needs to know by module."""

from __future__ import annotations

from agent_envs.core import StateNotPortable
from tests.toy import ToyEnv


class StatelessEnv(ToyEnv):
    """Cannot save its state."""

    def get_state(self) -> bytes:
        raise StateNotPortable("no states here")
