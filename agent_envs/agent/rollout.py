"""Rollouts: play policies on an :class:`AgentGroup` and keep the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agent_envs.agent.group import AgentGroup, Turn
from agent_envs.agent.records import Completion, Prompt, Start, Step


class Policy(Protocol):
    """Anything that answers prompts. ``needs_expert = True`` asks for expert actions in the views."""

    def act(self, prompts: Sequence[Prompt]) -> Sequence[Completion | str]:
        """One completion per prompt, in order."""


@runtime_checkable
class AsyncPolicy(Protocol):
    """A policy that answers when it can: quick replicas go on while slow calls are under way.

    If it has ``cancel()``, that is called when a rollout is broken off with answers outstanding.
    """

    def submit(self, prompts: Sequence[Prompt]) -> None:
        """Take on prompts without waiting."""

    def collect(self) -> list[tuple[Prompt, Completion]]:
        """Wait until at least one answer is there; return all that are."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Steps in the order in which they were answered, and how their trajectories began.

    ``failures``: replicas that were closed by an error, with its text.
    """

    steps: list[Step]
    starts: Mapping[int, Start]
    failures: Mapping[int, str]

    def trajectories(self) -> dict[int, list[Step]]:
        """Steps by trajectory id, in time order."""
        found: dict[int, list[Step]] = {}
        for step in sorted(self.steps, key=lambda s: (s.trajectory, s.step)):
            found.setdefault(step.trajectory, []).append(step)
        return found

    def columns(self) -> dict[str, np.ndarray]:
        """One array per field, rows by trajectory and in time order within it.

        ``reward``, ``score`` float64; ``terminated``, ``truncated``, ``format_valid``,
        ``action_valid``, ``won`` bool; ``group``, ``replica``, ``trajectory``, ``step`` int64;
        ``anchor``, ``action``, ``prompt``, ``completion``, ``task_id``, ``error`` objects (str, error
        may be None).
        """
        rows = sorted(self.steps, key=lambda s: (s.trajectory, s.step))
        columns: dict[str, np.ndarray] = {}
        for name, kind in _FIELDS.items():
            columns[name] = np.array([getattr(s, name) for s in rows], dtype=kind)
        for name, kind in (("won", np.bool_), ("score", np.float64)):
            columns[name] = np.array([s.info.get(name, 0) for s in rows], dtype=kind)
        texts: dict[str, list[Any]] = {
            "anchor": [s.anchor for s in rows],
            "action": [s.action for s in rows],
            "prompt": [s.prompt.text for s in rows],
            "completion": [s.completion.text for s in rows],
            "task_id": [s.info.get("task_id", "") for s in rows],
            "error": [s.error for s in rows],
        }
        for name, values in texts.items():
            columns[name] = np.empty(len(rows), object)
            columns[name][:] = values
        return columns


_FIELDS: dict[str, Any] = {
    "group": np.int64,
    "replica": np.int64,
    "trajectory": np.int64,
    "step": np.int64,
    "reward": np.float64,
    "terminated": np.bool_,
    "truncated": np.bool_,
    "format_valid": np.bool_,
    "action_valid": np.bool_,
}


def play(
    agent: AgentGroup, policy: Policy | AsyncPolicy, prompts: Sequence[Prompt]
) -> Iterator[Turn]:
    """Answer ``prompts`` and all that follow from them; prompts sent in are answered as well.

    ``turns.send(more_prompts)`` adds prompts between turns, which is how evaluation refills groups.
    """
    if isinstance(policy, AsyncPolicy):
        yield from _play_async(agent, policy, prompts)
        return
    waiting = list(prompts)
    while waiting:
        turn = agent.step(policy.act(waiting), waiting)
        more = yield turn
        waiting = [*turn.prompts, *(more or ())]


def _play_async(
    agent: AgentGroup, policy: AsyncPolicy, prompts: Sequence[Prompt]
) -> Iterator[Turn]:
    outstanding = len(prompts)
    try:
        policy.submit(prompts)
        while outstanding:
            answered = policy.collect()
            turn = agent.step([a for _, a in answered], [prompt for prompt, _ in answered])
            more = yield turn
            following = [*turn.prompts, *(more or ())]
            policy.submit(following)
            outstanding += len(following) - len(answered)
    finally:
        if outstanding:
            getattr(policy, "cancel", lambda: None)()


def with_experts(agent: AgentGroup, policy: Any) -> bool:
    """Switch expert actions on where the policy asks for them; returns what it was before."""
    before = agent.expert
    agent.expert = before or bool(getattr(policy, "needs_expert", False))
    return before


def rollout(
    agent: AgentGroup,
    policy: Policy | AsyncPolicy,
    *,
    seed: int | Sequence[int] | None = None,
    options: dict[str, Any] | None = None,
    on_turn: Callable[[Turn], None] = lambda turn: None,
) -> Rollout:
    """Reset all groups and play every replica to its end.

    Args:
        on_turn: called after each turn, for progress.
    """
    before = with_experts(agent, policy)
    steps: dict[tuple[int, int], Step] = {}
    try:
        prompts = agent.reset(seed=seed, options=options)
        starts = {p.view.trajectory: agent.starts[p.view.trajectory] for p in prompts}
        failures = dict(agent.failures)
        for turn in play(agent, policy, prompts):
            for step in turn.steps:
                steps[step.trajectory, step.step] = step
            on_turn(turn)
        failures.update(agent.failures)
    finally:
        agent.expert = before
    return Rollout(list(steps.values()), dict(sorted(starts.items())), failures)
