"""One environment with arrays and numbered actions, for libraries of numeric reinforcement learning."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete

from agent_envs.adapters._choices import AdmissibleActions, Choices, find_choices
from agent_envs.adapters._features import Features, find_features
from agent_envs.core.env import AgentEnv
from agent_envs.core.errors import OptionError


class DiscreteActionEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One environment with the arrays and numbered actions of :class:`SB3VecEnv`.

    Args:
        env: a single environment of the hub, wrapped or not.
        observation, actions: as of :class:`SB3VecEnv`.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, str],
        observation: str | Features | None = None,
        actions: Sequence[str] | int | Choices | None = None,
    ) -> None:
        bare = env.unwrapped
        if not isinstance(bare, AgentEnv):
            raise OptionError(f"an environment of the hub is needed, got {type(bare).__name__}")
        super().__init__(env)
        self.features, self.choices = find_translation(observation, actions, deepcopy(bare))
        self.observation_space = self.features.space
        self.action_space = Discrete(self.choices.n)
        self._infos: dict[str, Any] = {}
        self._history: list[str] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        seen, info = self.env.reset(seed=seed, options=options)
        self._history = []
        return self._see(seen, info), info

    def step(self, action: int) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        if not self._infos:
            raise ResetNeeded("call reset() before the first step")
        (text,) = self.choices.texts(np.array([action]), self._infos)
        seen, reward, terminated, truncated, info = self.env.step(text)
        self._history.append(text)
        return self._see(seen, info), reward, terminated, truncated, info

    def action_masks(self) -> np.ndarray:
        """Which choices mean an action now, shape (n,), bool."""
        masks: np.ndarray = self.choices.masks(self._infos)[0]
        return masks

    def _see(self, seen: Any, info: dict[str, Any]) -> np.ndarray:
        self._infos = {key: [value] for key, value in info.items()} | {"history": [self._history]}
        row: np.ndarray = self.features([seen], self._infos)[0]
        return row


def find_translation(
    observation: str | Features | None,
    actions: Sequence[str] | int | Choices | None,
    env: AgentEnv,
) -> tuple[Features, Choices]:
    """Features and choices for an environment; it is reset."""
    choices = find_choices(actions, env)
    offered = choices.n if isinstance(choices, AdmissibleActions) else None
    return find_features(observation, env, offered), choices
