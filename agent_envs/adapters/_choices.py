"""Actions by number: the text that stands for a choice of ``Discrete(n)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from agent_envs.adapters._features import offers
from agent_envs.core.env import AgentEnv
from agent_envs.core.errors import OptionError, positive

_STARTS = 4  # a list that is the same in so many starts counts as fixed


class Choices(Protocol):
    """What the numbers 0 to ``n - 1`` mean, for many replicas at once."""

    @property
    def n(self) -> int: ...

    def texts(self, choices: np.ndarray, infos: Mapping[str, Any]) -> list[str]:
        """The chosen actions, one per replica."""

    def masks(self, infos: Mapping[str, Any]) -> np.ndarray:
        """Which choices mean an action now, shape (replicas, n), bool."""


@dataclass(frozen=True)
class FixedActions:
    """The same actions at every step."""

    names: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.names)

    def texts(self, choices: np.ndarray, infos: Mapping[str, Any]) -> list[str]:
        return [self.names[choice] for choice in choices.tolist()]

    def masks(self, infos: Mapping[str, Any]) -> np.ndarray:
        return np.ones((len(infos["task_id"]), self.n), np.bool_)


@dataclass(frozen=True)
class AdmissibleActions:
    """Choice ``k`` is the k-th of ``info["admissible_actions"]``, hidden ones left out.

    A choice beyond the list is sent as ``beyond``: a counted turn that changes nothing. Actions
    after the n-th cannot be chosen, so ``n`` must be large enough for the environment.
    """

    n: int
    hidden: tuple[str, ...] = ()
    beyond: str = ""

    def texts(self, choices: np.ndarray, infos: Mapping[str, Any]) -> list[str]:
        texts = []
        for choice, admissible in zip(choices.tolist(), infos["admissible_actions"], strict=True):
            offered = offers(admissible, self.hidden)
            texts.append(offered[choice] if choice < len(offered) else self.beyond)
        return texts

    def masks(self, infos: Mapping[str, Any]) -> np.ndarray:
        counts = [len(offers(a, self.hidden)) for a in infos["admissible_actions"]]
        masks: np.ndarray = np.arange(self.n) < np.array(counts)[:, None]
        return masks


def find_choices(actions: Sequence[str] | int | Choices | None, env: AgentEnv) -> Choices:
    """The choices that ``actions`` stands for.

    Args:
        actions: texts; how many admissible actions to offer; choices; or None: the admissible
            actions of ``env`` where they are the same in every start.
        env: an environment of that kind; it is reset.
    """
    if actions is None:
        return FixedActions(_constant_actions(env))
    if isinstance(actions, Sequence) and not isinstance(actions, str):
        if not actions or not all(isinstance(name, str) for name in actions):
            raise OptionError(f"actions must be texts, at least one, got {actions!r}")
        return FixedActions(tuple(actions))
    if not isinstance(actions, str | int | np.integer):
        return actions
    n = positive("actions (a list of texts, or how many admissible actions to offer)", actions)
    return AdmissibleActions(n, env.profile.hidden_actions, env.profile.invalid_action)


def _constant_actions(env: AgentEnv) -> tuple[str, ...]:
    starts = [env.reset(seed=seed)[1]["admissible_actions"] for seed in range(_STARTS)]
    if not starts[0] or any(actions != starts[0] for actions in starts):
        raise OptionError(
            f"the admissible actions of {type(env).__name__} change from start to start: pass "
            "actions=N (choice k is the k-th admissible action) or a list of texts"
        )
    return tuple(starts[0])
