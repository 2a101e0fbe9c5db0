"""A small environment for tests: counts, obeys, and misbehaves on command."""

from __future__ import annotations

import os
import time

from agent_envs.core import AgentEnv, ListedTasks, Outcome, Profile, PromptSpec

TASKS = tuple(f"task-{i}" for i in range(10))


class ToyEnv(AgentEnv):
    """Say ``win`` to win. ``raise``, ``die`` and ``hang`` do that."""

    profile = Profile(
        PromptSpec(
            first="T:{task} O:{observation} A:{admissible_actions}",
            later="T:{task} {omitted}H:{history} O:{observation} N:{step_count}",
        ),
        has_expert=True,
    )

    def __init__(self, *, bad_tasks: tuple[str, ...] = (), **options) -> None:
        super().__init__(ListedTasks({"train": TASKS, "test": TASKS[:7]}), **options)
        self._bad = bad_tasks

    @property
    def task(self) -> str:
        return f"win {self._name_of_task}"

    def _start(self, task_id, seed, options):
        if task_id in self._bad:
            raise RuntimeError(f"cannot start {task_id}")
        self._name_of_task, self._said = task_id, []
        return f"start of {task_id}"

    def _act(self, action):
        if action == "raise":
            raise RuntimeError("raised on command")
        if action == "die":
            os._exit(3)
        if action == "hang":
            time.sleep(600)
        if action == "unpicklable":
            return Outcome(lambda: None)
        self._said.append(action)
        won = action == "win"
        return Outcome(f"said {len(self._said)}: {action}", float(won), won, won, bool(action))

    def _snapshot(self):
        return [self._said, self._last.observation]

    def _restore(self, snapshot):
        self._said = list(snapshot[0])
        return snapshot[1]

    def admissible_actions(self):
        return ["wait", "win"]

    def expert_action(self):
        if "confuse" in self._said:
            raise RuntimeError("the expert is confused")
        if "murder" in self._said:
            os._exit(4)
        return "win" if len(self._said) >= 2 else "wait"
