"""An environment that costs nothing, to measure what lies around it; ``benchmarks.server`` serves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import agent_envs
from agent_envs.core import AgentEnv, ListedTasks, Outcome, Profile, PromptSpec
from agent_envs.core.profile import Spec

ENV_ID = "Bench/Trivial-v0"
ANSWER = "ok"  # what the peer's environment answers too


class TrivialEnv(AgentEnv):
    """Answers every action with the same word."""

    profile: ClassVar[Profile] = Profile(PromptSpec(first="{observation}"), memory=Spec("none"))

    def __init__(self, **options: Any) -> None:
        super().__init__(ListedTasks({"train": ("one",)}), **options)

    @property
    def task(self) -> str:
        return "one"

    def _start(self, task_id: str, seed: int, options: Mapping[str, Any]) -> str:
        return ANSWER

    def _act(self, action: str) -> Outcome:
        return Outcome(ANSWER)

    def _snapshot(self) -> Any:
        return None

    def _restore(self, snapshot: Any) -> str:
        return ANSWER


agent_envs.register(ENV_ID, f"{__name__}:TrivialEnv")
