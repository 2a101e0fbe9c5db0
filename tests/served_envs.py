"""Environments that only a server needs to know by module."""

from __future__ import annotations

import time

import numpy as np

from agent_envs.core import Outcome, StateNotPortable
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


class OddEnv(ToyEnv):
    """Shows what JSON has no form for."""

    def _act(self, action):
        found = super()._act(action)
        return Outcome(f"lone \ud800 {action}", float("nan") if action == "nan" else found.reward)

    def _extra_info(self):
        return {"ratio": float("inf"), "row": np.arange(3), "pair": (1, float("nan"))}


class BrokenEnv(ToyEnv):
    """Cannot be made."""

    def __init__(self, **options):
        raise RuntimeError("a part is missing")


class OtherToyEnv(ToyEnv):
    """Ends like another id; its constructor names a file."""

    start_options = ("game_file",)

    def __init__(self, *, data_dir=None, **options):
        super().__init__(**options)
        self.data_dir = data_dir

    def _explicit_task(self, options):
        return f"file {options['game_file']}"
