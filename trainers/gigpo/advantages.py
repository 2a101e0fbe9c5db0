"""The joint advantage of GiGPO."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from agent_envs.core import OptionError
from agent_envs.core.errors import one_of
from trainers.gigpo.anchors import anchor_groups
from trainers.gigpo.baselines import (
    BaselineOver,
    Norm,
    Singleton,
    check_epsilon,
    counted_samples,
    group_statistics,
    normalise,
)
from trainers.gigpo.columns import (
    Floats,
    floats,
    labels,
    same_precision,
    usable_samples,
    warn_unusable,
)


def gigpo_advantages(
    scores: ArrayLike,
    step_returns: ArrayLike,
    group_ids: ArrayLike | Sequence[Hashable],
    trajectory_ids: ArrayLike | Sequence[Hashable],
    anchors: Sequence[Any] | np.ndarray,
    *,
    step_weight: float = 1.0,
    norm: Norm = "mean",
    baseline_over: BaselineOver = "trajectories",
    singleton: Singleton = "zero",
    epsilon: float = 1e-6,
    similarity: float | None = None,
) -> Floats:
    """A_k = A^E_k + w * A^S_k, one advantage per step sample.

    Group-in-Group Policy Optimization (Feng et al. 2025, arXiv:2505.10978), equations 3, 7 and 8::

        A^E_k = (s_k - mean_g s) / F_g     over the episodes of the group g
        A^S_k = (G_k - mean_a G) / F_a     over the steps of g taken in the same anchor state a
        F = 1 (norm="mean") or std + epsilon (norm="mean_std"), std unbiased

    ``scores`` are episode returns per sample, ``step_returns`` discounted returns from each step on.
    ``singleton`` acts on the episode part; a state visited once has A^S = 0. ``similarity`` merges similar
    anchor texts. Samples whose score or step return is NaN, infinite or too large get 0, are left out
    of both baselines and counted in a :class:`NonFiniteWarning`. The seed system's numbers:
    ``baseline_over="steps", singleton="raw"``.
    """
    score = floats("scores", scores)
    size = len(score)
    score, ahead = same_precision(score, floats("step_returns", step_returns, (size,)))
    groups = labels("group_ids", group_ids, size)
    trajectories = labels("trajectory_ids", trajectory_ids, size)
    if not hasattr(anchors, "__len__") or len(anchors) != size:
        got = np.shape(anchors)[:1] if hasattr(anchors, "__len__") else type(anchors).__name__
        raise ValueError(f"anchors: expected shape {(size,)}, got {got}")
    one_of("norm", norm, get_args(Norm))
    one_of("baseline_over", baseline_over, get_args(BaselineOver))
    one_of("singleton", singleton, get_args(Singleton))
    check_epsilon(epsilon)
    if not np.isfinite(step_weight):
        raise OptionError(f"step_weight: expected a finite number, got {step_weight!r}")
    usable = usable_samples(score, ahead)
    warn_unusable("scores, step_returns", usable)
    score, ahead = np.where(usable, score, 0), np.where(usable, ahead, 0)

    counted = counted_samples(usable, groups, trajectories, baseline_over)
    statistics = group_statistics(score, groups, counted)
    episode = normalise(score, statistics, norm, epsilon, singleton)

    states = anchor_groups(anchors, group_ids, similarity)
    step = normalise(ahead, group_statistics(ahead, states, usable), norm, epsilon)
    joint = episode + score.dtype.type(step_weight) * step
    return np.where(usable, joint, 0).astype(score.dtype, copy=False)
