"""Penalties: invalid actions, and the distance from the reference model inside the reward."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from agent_envs.core import OptionError
from agent_envs.core.errors import one_of
from trainers.gigpo import episode_returns, step_returns
from trainers.gigpo.columns import Floats, flags, floats, same_precision

KLKind = Literal["k1", "kl", "abs", "k2", "mse", "k3", "low_var_kl"]


def invalid_action_penalty(values: ArrayLike, valid: ArrayLike, *, coef: float = 0.1) -> Floats:
    """v_k - coef * [action k is invalid], on rewards, scores or step returns, one per sample.

    ``valid``: the column ``format_valid``, or ``action_valid`` for the environment's own verdict.
    """
    value = floats("values", values)
    invalid = ~flags("valid", valid, value.shape)
    return value - value.dtype.type(_finite("coef", coef)) * invalid.astype(value.dtype)


def penalised_returns(
    rewards: ArrayLike,
    trajectory_ids: ArrayLike | Sequence[Hashable],
    valid: ArrayLike,
    *,
    gamma: float,
    coef: float = 0.1,
    penalty_in_return: bool = False,
) -> tuple[Floats, Floats]:
    """(scores, step returns) with the penalty for invalid actions.

    ``penalty_in_return=False`` (the seed system): each invalid step pays ``coef`` itself, after the returns
    were summed; other steps of its trajectory pay nothing. ``True``: the penalty is a reward of that step,
    so the episode's score and all earlier step returns carry it.
    """
    if penalty_in_return:
        rewards = invalid_action_penalty(rewards, valid, coef=coef)
    scores = episode_returns(rewards, trajectory_ids)
    ahead = step_returns(rewards, trajectory_ids, gamma)
    if penalty_in_return:
        return scores, ahead
    scores = invalid_action_penalty(scores, valid, coef=coef)
    return scores, invalid_action_penalty(ahead, valid, coef=coef)


def kl_penalty(log_probs: ArrayLike, ref_log_probs: ArrayLike, kind: KLKind = "k1") -> Floats:
    """Estimates of KL(policy || reference) from samples (Schulman, "Approximating KL divergence", 2020).

    With d = log_probs - ref_log_probs: ``k1`` = ``kl`` d (unbiased, may be negative); ``abs`` |d|; ``k2`` =
    ``mse`` d^2 / 2; ``k3`` = ``low_var_kl`` exp(-d) + d - 1 (unbiased, never negative), clipped to
    [-10, 10].
    """
    one_of("kind", kind, get_args(KLKind))
    policy = floats("log_probs", log_probs, ndim=np.ndim(log_probs))
    policy, reference = same_precision(policy, floats("ref_log_probs", ref_log_probs, policy.shape))
    with np.errstate(over="ignore", invalid="ignore"):
        d = policy - reference
        if kind in ("k1", "kl"):
            return d
        if kind == "abs":
            return np.abs(d)
        if kind in ("k2", "mse"):
            return d * d / 2
        ratio = np.exp(-d, dtype=np.float64).astype(
            d.dtype
        )  # float32's exp varies with the processor
        return np.clip(ratio + d - 1, -10, 10)


def kl_in_reward(
    token_rewards: ArrayLike,
    log_probs: ArrayLike,
    ref_log_probs: ArrayLike,
    mask: ArrayLike,
    *,
    coef: float = 0.001,
    kind: KLKind = "k1",
) -> tuple[Floats, float]:
    """(r_j - coef * KL_j on the response's tokens, mean KL of the batch), Ouyang et al. 2022 (InstructGPT).

    The mean is over responses of each one's mean over its tokens, as :class:`AdaptiveKL` and the log want
    it; empty responses and those with a non-finite KL do not count in it.
    """
    reward = floats("token_rewards", token_rewards, ndim=2)
    inside = flags("mask", mask, reward.shape)
    penalty = kl_penalty(
        floats("log_probs", log_probs, reward.shape),
        floats("ref_log_probs", ref_log_probs, reward.shape),
        kind,
    )
    reward, penalty = same_precision(reward, np.where(inside, penalty, 0).astype(penalty.dtype))
    lengths = inside.sum(axis=1)
    per_response = penalty.sum(axis=1)[lengths > 0] / lengths[lengths > 0]
    finite = per_response[np.isfinite(per_response)]
    mean = float(finite.mean()) if finite.size else 0.0
    return reward - reward.dtype.type(_finite("coef", coef)) * penalty, mean


def overlong_penalty(lengths: ArrayLike, *, limit: int, buffer: int, size: float = 1.0) -> Floats:
    """DAPO's soft overlong punishment (Yu et al. 2025, arXiv:2503.14476), to be added to the rewards.

    0 up to ``limit - buffer`` tokens, then linearly down to ``-size`` at ``limit``. ``buffer=0``: none.
    """
    length = floats("lengths", lengths)
    if not 0 <= buffer <= limit:
        raise OptionError(f"buffer: expected 0 to {limit} (the longest reply), got {buffer!r}")
    if not buffer:
        return np.zeros_like(length)
    return -_finite("size", size) * np.clip((length - (limit - buffer)) / buffer, 0, 1)


@dataclass
class AdaptiveKL:
    """A coefficient that steers the mean KL to ``target`` (Ziegler et al. 2019, arXiv:1909.08593)::

    coef <- coef * (1 + clip(kl / target - 1, -0.2, 0.2) * samples / horizon)
    """

    coef: float = 0.001
    target: float = 0.1
    horizon: int = 10_000

    def __post_init__(self) -> None:
        for name in ("target", "horizon"):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name}: expected a number above 0, got {getattr(self, name)!r}")

    def update(self, kl: float, samples: int) -> float:
        """Move the coefficient after a batch; a non-finite ``kl`` leaves it alone."""
        if np.isfinite(kl):
            error = min(max(kl / self.target - 1, -0.2), 0.2)
            self.coef *= max(0.0, 1 + error * samples / self.horizon)
        return self.coef


def _finite(name: str, value: float) -> float:
    if not np.isfinite(value):
        raise OptionError(f"{name}: expected a finite number, got {value!r}")
    return value
