"""Evaluation: every task of a split exactly once, whatever the batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from math import sqrt
from typing import Any

import numpy as np

from agent_envs.agent.group import AgentGroup
from agent_envs.agent.memory import Memory
from agent_envs.agent.parsing import ActionParser
from agent_envs.agent.prompt import PromptBuilder
from agent_envs.agent.records import Prompt, Step
from agent_envs.agent.rollout import AsyncPolicy, Policy, play, with_experts
from agent_envs.core.profile import PromptSpec
from agent_envs.core.seeding import keyed_seed
from agent_envs.registration import make_group

Z_95 = 1.959963984540054  # two-sided 95 % of the normal distribution


@dataclass(frozen=True, slots=True)
class Episode:
    """One task's outcome. ``invalid_actions`` counts steps without effect, by parser or env."""

    index: int
    task_id: str
    task_type: str
    won: bool
    score: float
    total_reward: float
    steps: int
    invalid_actions: int
    invalid_formats: int
    error: str | None = None


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """95 % score interval of a success rate (Wilson 1927); (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, Z_95**2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z_95 * sqrt(share * (1 - share) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    # rounding must not put the rate itself outside (0 and 1 are exact bounds)
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All episodes, in task order, and what follows from them."""

    env_id: str
    split: str
    episodes: list[Episode] = field(default_factory=list)

    @property
    def success_rate(self) -> float:
        return _mean([e.won for e in self.episodes])

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the success rate."""
        return wilson_interval(sum(e.won for e in self.episodes), len(self.episodes))

    @property
    def mean_steps(self) -> float:
        return _mean([e.steps for e in self.episodes])

    @property
    def mean_score(self) -> float:
        return _mean([e.score for e in self.episodes])

    @property
    def invalid_action_rate(self) -> float:
        """Share of all steps whose action did nothing."""
        steps = sum(e.steps for e in self.episodes)
        return sum(e.invalid_actions for e in self.episodes) / steps if steps else 0.0

    @property
    def errors(self) -> int:
        return sum(e.error is not None for e in self.episodes)

    def by_type(self) -> dict[str, Evaluation]:
        """The same, per task type."""
        kinds = sorted({e.task_type for e in self.episodes})
        return {
            kind: Evaluation(
                self.env_id, self.split, [e for e in self.episodes if e.task_type == kind]
            )
            for kind in kinds
        }

    def summary(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "num_episodes": len(self.episodes),
            "success_rate": self.success_rate,
            "interval": [low, high],
            "mean_score": self.mean_score,
            "mean_steps": self.mean_steps,
            "invalid_action_rate": self.invalid_action_rate,
            "errors": self.errors,
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: summary, summaries per task type, episodes."""
        return {
            "env_id": self.env_id,
            "split": self.split,
            **self.summary(),
            "by_type": {kind: part.summary() for kind, part in self.by_type().items()},
            "episodes": [asdict(e) for e in self.episodes],
        }


def _mean(values: list[Any]) -> float:
    return float(np.mean(values)) if values else 0.0


def evaluate(
    policy: Policy | AsyncPolicy,
    env_id: str,
    *,
    split: str,
    memory: Memory | None = None,
    prompt: PromptBuilder | PromptSpec | None = None,
    parser: ActionParser | None = None,
    num_envs: int = 64,
    episodes: int | None = None,
    seed: int = 0,
    backend: Any = "inline",
    prefilled: str = "",
    on_length: str = "truncate",
    on_episode: Callable[[int, int], None] = lambda done, total: None,
    **env_options: Any,
) -> Evaluation:
    """Play every task of ``split`` exactly once.

    Results do not depend on ``num_envs`` or ``backend``: a task's seed is keyed by ``seed`` and its
    index. A replica that finishes takes the next task at once.

    Args:
        policy: what is evaluated.
        episodes: only the first so many tasks; needed for an endless split.
        num_envs: tasks in play at the same time.
        seed: for environments with randomness of their own, and for random policies.
        prefilled, on_length: see :class:`AgentGroup`.
        on_episode: called with (episodes done, episodes in all).
        env_options: the environment's options.
    """
    group = make_group(env_id, num_envs, 1, backend=backend, split=split, **env_options)
    try:
        agent = AgentGroup(
            group, memory=memory, prompt=prompt, parser=parser, prefilled=prefilled,
            on_length=on_length,
        )  # fmt: skip
        with_experts(agent, policy)
        panel = group.tasks.panel(split, 1, episodes)
        player = _Player(agent, policy, panel, seed)
        done = list(player.run(group.tasks.panel_size(split, episodes), on_episode))
    finally:
        group.close()
    return Evaluation(env_id, split, sorted(done, key=lambda e: e.index))


class _Player:
    """Deals tasks to replicas (groups of one) as these become free."""

    def __init__(
        self,
        agent: AgentGroup,
        policy: Policy | AsyncPolicy,
        panel: Iterator[list[int]],
        seed: int,
    ) -> None:
        self.agent, self.policy, self.panel, self.seed = agent, policy, panel, seed
        self.index_of: dict[int, int] = {}  # replica -> task index in play
        self.failed: list[Episode] = []

    def run(self, total: int, on_episode: Callable[[int, int], None]) -> Iterator[Episode]:
        done = 0
        turns = play(self.agent, self.policy, self._deal(list(range(self.agent.group.num_envs))))
        more: list[Prompt] | None = None
        while True:
            try:
                turn = turns.send(more) if more is not None else next(turns)  # type: ignore[attr-defined]
            except StopIteration:
                break
            ended = [s for s in turn.steps if s.terminated or s.truncated]
            finished = [self._episode(step) for step in ended]
            more = self._deal([step.replica for step in ended])
            finished += self.failed
            self.failed = []
            for episode in finished:
                done += 1
                on_episode(done, total)
                yield episode
        yield from self.failed

    def _deal(self, replicas: list[int]) -> list[Prompt]:
        """Next tasks for free replicas; tasks that cannot start are recorded and passed over."""
        group, prompts = self.agent.group, []
        while replicas:
            # replicas first: zip must not take a task that no replica is left for
            dealt = {
                replica: index for replica, (index,) in zip(replicas, self.panel, strict=False)
            }
            if not dealt:
                break
            mask = np.zeros(group.num_envs, np.bool_)
            mask[list(dealt)] = True
            indices: list[int | None] = [dealt.get(i) for i in range(group.num_envs)]
            seeds = [keyed_seed(self.seed, 0 if index is None else index) for index in indices]
            prompts += self.agent.reset(
                seed=seeds, options={"task_index": indices, "reset_mask": mask}
            )
            self.index_of.update(dealt)
            replicas = [r for r in dealt if r in self.agent.failures]
            self.failed += [self._failure(replica) for replica in replicas]
        return prompts

    def _failure(self, replica: int) -> Episode:
        index = self.index_of[replica]
        task_id = self.agent.group.tasks.task_id(self.agent.group.split, index)
        error = self.agent.failures[replica]
        return Episode(index, task_id, self._type(task_id), False, 0.0, 0.0, 0, 0, 0, error)

    def _episode(self, last: Step) -> Episode:
        steps = self.agent.past(last.replica)
        info = last.info
        task_id = info.get("task_id", "")
        return Episode(
            index=self.index_of[last.replica],
            task_id=task_id,
            task_type=self._type(task_id),
            won=bool(info.get("won", False)),
            score=float(info.get("score", 0.0)),
            total_reward=float(sum(step.reward for step in steps)),
            steps=len(steps),
            invalid_actions=sum(not step.action_valid for step in steps),
            invalid_formats=sum(not step.format_valid for step in steps),
            error=last.error,
        )

    def _type(self, task_id: str) -> str:
        return self.agent.group.tasks.task_type(task_id)
