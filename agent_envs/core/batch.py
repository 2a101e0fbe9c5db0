"""Many replicas of one environment stepped at once, by arrays.

Optional: an environment whose single step is so cheap that Python's overhead dominates may offer
one by :meth:`AgentEnv.make_batch`. It must equal the single environment byte for byte; everything
but stepping (starts, states, experts) goes through a single environment, row by row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agent_envs.core.env import AgentEnv, Obs


class BatchEnv(ABC):
    """Rows of replicas.

    Attributes:
        started: shape (num_envs,), bool: does the row show an episode.
        terminated, truncated: shape (num_envs,), bool. A row without an episode is truncated.
    """

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.started = np.zeros(num_envs, np.bool_)
        self.terminated = np.zeros(num_envs, np.bool_)
        self.truncated = np.ones(num_envs, np.bool_)

    @abstractmethod
    def load(self, row: int, env: AgentEnv) -> None:
        """Take over the episode of ``env`` into ``row``."""

    @abstractmethod
    def store(self, row: int, env: AgentEnv) -> None:
        """Put the episode of ``row`` into ``env``."""

    @abstractmethod
    def clear(self, row: int) -> None:
        """Back to a row that never started."""

    @abstractmethod
    def step(self, rows: Sequence[int], actions: Sequence[str]) -> np.ndarray:
        """One action for each of ``rows`` (all active); returns their rewards, float64."""

    @abstractmethod
    def observation(self, row: int) -> Obs:
        """The observation of a started row."""

    @abstractmethod
    def observations(self) -> list[Obs]:
        """Of all rows; None where a row never started."""

    @abstractmethod
    def info(self, row: int) -> dict[str, Any]:
        """The info of a started row, without ``data_source``."""

    @abstractmethod
    def infos(self) -> dict[str, np.ndarray | Callable[[], np.ndarray]]:
        """Columns of all info keys, new arrays; rows that never started hold the defaults.

        A costly column of the env's own may be a function that makes it of what is so now.
        """
