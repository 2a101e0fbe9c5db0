"""Group baselines: mean and deviation of the scores of a group, without loops over samples."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from agent_envs.core import OptionError
from trainers.gigpo.columns import Flags, Floats, Labels, pairs

Norm = Literal["mean", "mean_std"]
BaselineOver = Literal["trajectories", "steps"]
Singleton = Literal["zero", "raw"]


class GroupStatistics(NamedTuple):
    """One entry per sample, of its group: how many count, their mean, their unbiased deviation."""

    size: Labels
    mean: Floats
    std: Floats


def group_statistics(values: Floats, groups: Labels, counted: Flags) -> GroupStatistics:
    """Size, mean and unbiased standard deviation over the ``counted`` samples of each group.

    Sums run in the precision of ``values``; std is 0 for a group of one. Rounding cannot move a mean
    outside its values, so a group of equal values has exactly that mean.
    """
    kind, inside, of = values.dtype, values[counted], groups[counted]
    number = groups.max(initial=-1) + 1
    size = np.bincount(of, minlength=number)
    low, high = np.full(number, np.inf, kind), np.full(number, -np.inf, kind)
    np.minimum.at(low, of, inside)
    np.maximum.at(high, of, inside)
    total = np.zeros(number, kind)
    np.add.at(total, of, inside)
    mean = total / np.maximum(size, 1).astype(kind)
    mean = np.where(size > 0, np.minimum(np.maximum(mean, low), high), 0).astype(kind)
    squares = np.zeros(number, kind)
    np.add.at(squares, of, (inside - mean[of]) ** 2)
    std = np.sqrt(squares / np.maximum(size - 1, 1).astype(kind))
    return GroupStatistics(size[groups], mean[groups], std[groups])


def counted_samples(
    usable: Flags, groups: Labels, trajectories: Labels, baseline_over: BaselineOver
) -> Flags:
    """The samples whose scores make up the baseline.

    ``"trajectories"``: the first usable one of each trajectory, so each episode counts once. ``"steps"``
    (the seed system): all usable ones, so an episode counts once per step and long ones dominate.
    """
    if baseline_over == "steps":
        return usable
    where = np.flatnonzero(usable)
    _, first = np.unique(pairs(groups, trajectories)[where], return_index=True)
    counted = np.zeros_like(usable)
    counted[where[first]] = True
    return counted


def normalise(
    values: Floats,
    statistics: GroupStatistics,
    norm: Norm,
    epsilon: float,
    singleton: Singleton = "zero",
) -> Floats:
    """(v - mean) / (std + epsilon), or only v - mean; 0 where the denominator is 0.

    Groups of one have nothing to compare with: 0, or ``"raw"`` as in the seed system, which takes mean 0
    and std 1, so that the score itself becomes the advantage.
    """
    alone = statistics.size < 2
    mean = np.where(alone, 0, statistics.mean) if singleton == "raw" else statistics.mean
    result = values - mean.astype(values.dtype, copy=False)
    if norm == "mean_std":
        std = np.where(alone, 1, statistics.std).astype(values.dtype, copy=False)
        scale = std + values.dtype.type(epsilon)
        result = np.divide(result, scale, out=np.zeros_like(result), where=scale > 0)
    return result if singleton == "raw" else np.where(alone, 0, result).astype(values.dtype)


def check_epsilon(epsilon: float) -> None:
    """Raise OptionError unless ``epsilon`` is finite and not negative."""
    if not (epsilon >= 0 and np.isfinite(epsilon)):
        raise OptionError(f"epsilon: expected a number >= 0, got {epsilon!r}")
