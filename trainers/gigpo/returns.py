"""Returns of trajectories and of their steps."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from agent_envs.core import OptionError
from trainers.gigpo.columns import Floats, floats, labels


def episode_returns(rewards: ArrayLike, trajectory_ids: ArrayLike | Sequence[Hashable]) -> Floats:
    """R_i = sum_t r_t, undiscounted, given to every sample of trajectory i.

    A trajectory with a NaN reward has return NaN: the advantages leave it out. Mark failed replicas so:
    ``np.where(failed, np.nan, rewards)``.
    """
    reward = floats("rewards", rewards)
    trajectory = labels("trajectory_ids", trajectory_ids, len(reward))
    total = np.zeros(trajectory.max(initial=-1) + 1, reward.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(total, trajectory, reward)
    return total[trajectory]


def step_returns(
    rewards: ArrayLike, trajectory_ids: ArrayLike | Sequence[Hashable], gamma: float
) -> Floats:
    """G_t = r_t + gamma * G_{t+1} within a trajectory (GiGPO, Feng et al. 2025).

    Samples of a trajectory must stand in time order; trajectories may be interleaved. The pass goes
    backwards over time, all trajectories at once. A NaN reward makes the returns up to its step NaN.
    """
    reward = floats("rewards", rewards)
    trajectory = labels("trajectory_ids", trajectory_ids, len(reward))
    discount = reward.dtype.type(discount_factor("gamma", gamma))
    order = np.argsort(trajectory, kind="stable")  # by trajectory, then time
    lengths = np.bincount(trajectory)
    steps_to_go = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(order)) - 1
    result = reward[order]
    by_distance = np.argsort(steps_to_go, kind="stable")
    layers = np.split(by_distance, np.cumsum(np.bincount(steps_to_go))[:-1])
    with np.errstate(over="ignore", invalid="ignore"):
        for layer in layers[1:]:  # last steps, then those before them, and so on
            result[layer] += discount * result[layer + 1]
    returns = np.empty_like(result)
    returns[order] = result
    return returns


def discount_factor(name: str, value: float) -> float:
    """``value`` if it lies in [0, 1]."""
    if not 0 <= value <= 1:
        raise OptionError(f"{name}: expected a number in [0, 1], got {value!r}")
    return float(value)
