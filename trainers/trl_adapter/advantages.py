"""Advantages of GRPO, RLOO, REINFORCE++ (two variants) and PPO, with what goes before them, in NumPy.

Columns are over step samples (one decision of one episode each), token arrays are (samples, tokens) with a
0/1 ``mask`` of the response's own tokens. GiGPO is in :mod:`trainers.gigpo`. DAPO and GSPO use
:func:`grpo_advantages`: they differ in the loss and, for DAPO, in :func:`dapo_filter`.

All functions: float32 inputs are computed in float32, all else in float64. Samples with a NaN, infinite or
absurdly large number (:func:`trainers.gigpo.usable_samples`) get advantage 0, are left out of all
statistics and are counted in a ``NonFiniteWarning``. Results are always finite.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from agent_envs.core.errors import one_of
from trainers.gigpo.baselines import (
    BaselineOver,
    GroupStatistics,
    Norm,
    Singleton,
    check_epsilon,
    counted_samples,
    group_statistics,
    normalise,
)
from trainers.gigpo.columns import (
    Flags,
    Floats,
    flags,
    floats,
    labels,
    same_precision,
    usable_samples,
    warn_unusable,
)
from trainers.gigpo.returns import discount_factor
from trainers.trl_adapter.filters import dapo_filter
from trainers.trl_adapter.penalties import (
    AdaptiveKL,
    invalid_action_penalty,
    kl_in_reward,
    kl_penalty,
    penalised_returns,
)

__all__ = [
    "AdaptiveKL",
    "dapo_filter",
    "gae",
    "grpo_advantages",
    "invalid_action_penalty",
    "kl_in_reward",
    "kl_penalty",
    "on_tokens",
    "penalised_returns",
    "reinforce_pp_advantages",
    "reinforce_pp_baseline_advantages",
    "reward_on_last_token",
    "rloo_advantages",
    "whitened",
]

Ids = ArrayLike | Sequence[Hashable]
Reduce = Callable[[Floats], Floats]  # sums an array over all processes
ValueAfterEnd = Literal["zero", "given"]


def grpo_advantages(
    scores: ArrayLike,
    group_ids: Ids,
    trajectory_ids: Ids,
    *,
    norm: Norm = "mean_std",
    baseline_over: BaselineOver = "trajectories",
    singleton: Singleton = "zero",
    epsilon: float = 1e-6,
) -> Floats:
    """A_k = (s_k - mean_g) / (std_g + epsilon), std unbiased; ``norm="mean"`` does not divide.

    GRPO: DeepSeekMath (Shao et al. 2024, arXiv:2402.03300), section 4.1.2; without division: Dr. GRPO (Liu
    et al. 2025, arXiv:2503.20783). ``scores`` are episode returns, one per step sample. Baselines run over
    the episodes of a group; ``"steps"`` counts an episode once per step, as the seed system does.
    """
    check_epsilon(epsilon)
    one_of("norm", norm, get_args(Norm))
    score, usable, statistics = _grouped(
        scores, group_ids, trajectory_ids, baseline_over, singleton
    )
    return np.where(usable, normalise(score, statistics, norm, epsilon, singleton), score)


def rloo_advantages(
    scores: ArrayLike,
    group_ids: Ids,
    trajectory_ids: Ids,
    *,
    baseline_over: BaselineOver = "trajectories",
    singleton: Singleton = "zero",
) -> Floats:
    """A_k = n / (n - 1) * (s_k - mean_g): the score minus the mean of the n - 1 others of the group.

    RLOO: Ahmadian et al. 2024 (arXiv:2402.14740), after Kool et al. 2019.
    """
    score, usable, statistics = _grouped(
        scores, group_ids, trajectory_ids, baseline_over, singleton
    )
    size = statistics.size
    factor = np.where(size > 1, size / np.maximum(size - 1, 1), 1).astype(score.dtype)
    centred = normalise(score, statistics, "mean", 0.0, singleton)
    return np.where(usable, factor * centred, score)


def reinforce_pp_advantages(
    token_rewards: ArrayLike,
    mask: ArrayLike,
    *,
    gamma: float = 1.0,
    reduce: Reduce | None = None,
) -> tuple[Floats, Floats]:
    """(A, G): G_j = r_j + gamma * G_{j+1} over the tokens of a response; A = G whitened over the batch.

    REINFORCE++: Hu 2025 (arXiv:2501.03262). No groups: the baseline is the mean over all response tokens,
    so long responses weigh more. ``gamma`` acts on tokens, not on the steps of an episode. The KL penalty
    belongs into the rewards (:func:`kl_in_reward`). Tokens outside the mask are skipped. ``reduce`` sums an
    array over processes that hold parts of the batch: the statistics are then those of all.
    """
    reward = floats("token_rewards", token_rewards, ndim=2)
    inside = flags("mask", mask, reward.shape)
    discount = reward.dtype.type(discount_factor("gamma", gamma))
    returns = np.zeros_like(reward)
    ahead = np.zeros(len(reward), reward.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for j in reversed(range(reward.shape[1])):
            now = inside[:, j]
            ahead = np.where(now, reward[:, j] + discount * ahead, ahead)
            returns[now, j] = ahead[now]
    usable = usable_samples(returns)
    warn_unusable("token_rewards", usable)
    returns[~usable] = 0
    return whitened(returns, inside, usable, reduce=reduce), returns


def reinforce_pp_baseline_advantages(
    scores: ArrayLike,
    group_ids: Ids,
    trajectory_ids: Ids,
    mask: ArrayLike,
    *,
    baseline_over: BaselineOver = "trajectories",
    singleton: Singleton = "zero",
    reduce: Reduce | None = None,
) -> Floats:
    """s_k - mean_g on every token of response k, whitened over all response tokens of the batch.

    REINFORCE++-baseline: Hu 2025 (arXiv:2501.03262): the group removes the task's difficulty, the batch
    sets the scale, so a group with tiny differences is not blown up. Returns (samples, tokens).
    """
    score, usable, statistics = _grouped(
        scores, group_ids, trajectory_ids, baseline_over, singleton
    )
    inside = flags("mask", mask, ndim=2)
    if len(inside) != len(score):
        raise ValueError(f"mask: expected shape ({len(score)}, tokens), got {inside.shape}")
    centred = np.where(usable, normalise(score, statistics, "mean", 0.0, singleton), score)
    return whitened(on_tokens(centred, inside), inside, usable, reduce=reduce)


def gae(
    token_rewards: ArrayLike,
    values: ArrayLike,
    mask: ArrayLike,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    whiten: bool = True,
    value_after_end: ValueAfterEnd = "zero",
    remask: bool = True,
    reduce: Reduce | None = None,
) -> tuple[Floats, Floats]:
    """(A, returns) of PPO by generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438)::

        delta_j = r_j + gamma * V_{j+1} - V_j
        A_j = delta_j + gamma * lam * A_{j+1}        (equation 16)
        returns = A + V (the critic's target), before whitening

    Within one response. Tokens outside the mask are skipped and the value after the last one is 0. The seed
    system: ``value_after_end="given"`` runs over padding and uses the values there as they are, which
    biases A unless lam = 1; ``remask=False`` leaves the whitened padding non-zero. Unusable samples have
    A = 0 and returns = values, so that the critic learns nothing from them either.
    """
    reward = floats("token_rewards", token_rewards, ndim=2)
    reward, value = same_precision(reward, floats("values", values, reward.shape))
    inside = flags("mask", mask, reward.shape)
    one_of("value_after_end", value_after_end, get_args(ValueAfterEnd))
    discount = reward.dtype.type(discount_factor("gamma", gamma))
    decay = discount * reward.dtype.type(discount_factor("lam", lam))
    runs = inside if value_after_end == "zero" else np.ones_like(inside)
    advantages = np.zeros_like(reward)
    value_ahead = ahead = np.zeros(len(reward), reward.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for j in reversed(range(reward.shape[1])):
            now = runs[:, j]
            delta = reward[:, j] + discount * value_ahead - value[:, j]
            ahead = np.where(now, delta + decay * ahead, ahead)
            value_ahead = np.where(now, value[:, j], value_ahead)
            advantages[now, j] = ahead[now]
        returns = np.where(runs, advantages + value, 0).astype(reward.dtype)
    usable = usable_samples(advantages, returns)
    warn_unusable("token_rewards, values", usable)
    safe = np.where(usable_samples(value.reshape(-1, 1)).reshape(value.shape) & runs, value, 0)
    returns = np.where(usable[:, None], returns, safe).astype(reward.dtype)
    advantages[~usable] = 0
    if whiten:
        return whitened(advantages, inside, usable, remask, reduce), returns
    return np.where(inside | (not remask), advantages, 0).astype(reward.dtype), returns


def on_tokens(advantages: ArrayLike, mask: ArrayLike) -> Floats:
    """One advantage per sample, on every token of its own response and 0 elsewhere."""
    inside = flags("mask", mask, ndim=2)
    advantage = floats("advantages", advantages, (len(inside),))
    return np.where(inside, advantage[:, None], 0).astype(advantage.dtype)


def reward_on_last_token(scores: ArrayLike, mask: ArrayLike) -> Floats:
    """Token rewards: each sample's score on the last token of its response, 0 elsewhere.

    An empty response has no token to carry it and stays 0.
    """
    inside = flags("mask", mask, ndim=2)
    score = floats("scores", scores, (len(inside),))
    rewards = np.zeros(inside.shape, score.dtype)
    rows = np.flatnonzero(inside.any(axis=1))
    last = inside.shape[1] - 1 - inside[rows, ::-1].argmax(axis=1) if len(rows) else rows
    rewards[rows, last] = score[rows]
    return rewards


def _grouped(
    scores: ArrayLike,
    group_ids: Ids,
    trajectory_ids: Ids,
    baseline_over: BaselineOver,
    singleton: Singleton,
) -> tuple[Floats, Flags, GroupStatistics]:
    """Checked scores with 0 for the unusable ones, which are usable, and the statistics of their groups."""
    one_of("baseline_over", baseline_over, get_args(BaselineOver))
    one_of("singleton", singleton, get_args(Singleton))
    score = floats("scores", scores)
    groups = labels("group_ids", group_ids, len(score))
    trajectories = labels("trajectory_ids", trajectory_ids, len(score))
    usable = usable_samples(score)
    warn_unusable("scores", usable, depth=2)
    score = np.where(usable, score, 0).astype(score.dtype)
    counted = counted_samples(usable, groups, trajectories, baseline_over)
    return score, usable, group_statistics(score, groups, counted)


def whitened(
    values: Floats,
    inside: Flags,
    usable: Flags,
    remask: bool = True,
    reduce: Reduce | None = None,
) -> Floats:
    """(v - mean) / sqrt(var + 1e-8) over the response tokens of usable samples, var unbiased.

    ``values`` and ``inside`` are (samples, tokens), ``usable`` (samples,). 0 for all other tokens
    (``remask=False``: only for unusable samples). A batch without tokens is all 0; one single token has no
    variance: ValueError, as in the seed system. ``reduce`` makes mean and variance those of all processes.
    """
    total = reduce or (lambda array: array)
    count = int(total(np.array([inside.sum()], np.float64))[0])
    if count == 1:
        raise ValueError("mask: expected at least two response tokens to whiten over, got one")
    counted = inside & usable[:, None]
    inner = values[counted]
    kind = values.dtype.type
    size, summed = total(np.array([inner.size, inner.sum()], np.float64))
    if size < 2:
        return np.zeros_like(values)
    mean = kind(summed / size) if reduce else inner.mean()
    if inner.size and not reduce:
        mean = np.clip(mean, inner.min(), inner.max())  # rounding cannot move it outside
    squares = total(np.array([((inner - mean) ** 2).sum()], np.float64))[0]
    variance = kind(squares) / kind(size - 1)
    white = (values - mean) / np.sqrt(variance + kind(1e-8))
    return np.where(counted if remask else usable[:, None], white, 0).astype(values.dtype)
