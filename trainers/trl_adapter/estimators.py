"""Advantage estimators by name: from samples (and what the model said of them) to advantages.

All have one signature, so that the trainer knows no algorithm: ``estimate(samples, tokens, config,
reduce)`` returns (B,) or (B, T) float32, 0 where nothing is to be learned. The equations and their
sources stand in :mod:`trainers.gigpo` and :mod:`trainers.trl_adapter.advantages`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainers.gigpo import NonFiniteWarning, gigpo_advantages
from trainers.gigpo.columns import Flags, Floats
from trainers.trl_adapter.advantages import (
    gae,
    grpo_advantages,
    invalid_action_penalty,
    kl_in_reward,
    penalised_returns,
    reinforce_pp_advantages,
    reinforce_pp_baseline_advantages,
    reward_on_last_token,
    rloo_advantages,
)
from trainers.trl_adapter.chain import gae_along_episodes, rewards_along_episodes
from trainers.trl_adapter.config import AdvantageConfig
from trainers.trl_adapter.samples import Reduce, Samples


@dataclass(frozen=True)
class Tokens:
    """Token arrays of the samples, (B, T): the reply's mask, log-probabilities, the critic's values."""

    mask: Flags
    log_probs: Floats | None = None
    ref_log_probs: Floats | None = None
    values: Floats | None = None


@dataclass(frozen=True)
class Estimate:
    """``advantages`` (B,) or (B, T); ``returns`` (B, T) are the critic's targets, where there is one."""

    advantages: Floats
    returns: Floats | None = None
    kl: float | None = None


Estimator = Callable[[Samples, Tokens, AdvantageConfig, Reduce], Estimate]


def scores_of(samples: Samples, config: AdvantageConfig) -> tuple[Floats, Floats]:
    """(episode returns, step returns), float32, with the penalty for invalid actions."""
    return penalised_returns(
        samples.reward,
        samples.trajectory,
        _verdict(samples, config),
        gamma=_gamma(config),
        coef=config.invalid_penalty,
        penalty_in_return=config.penalty_in_return,
    )


def gigpo(samples: Samples, tokens: Tokens, config: AdvantageConfig, reduce: Reduce) -> Estimate:
    scores, ahead = scores_of(samples, config)
    return Estimate(
        gigpo_advantages(
            scores,
            ahead,
            samples.group,
            samples.trajectory,
            samples.anchor,
            step_weight=config.step_weight,
            norm=config.norm or "mean",  # type: ignore[arg-type]
            similarity=config.similarity,
            **_baseline(config),
        )
    )


def grpo(samples: Samples, tokens: Tokens, config: AdvantageConfig, reduce: Reduce) -> Estimate:
    scores, _ = scores_of(samples, config)
    return Estimate(
        grpo_advantages(
            scores,
            samples.group,
            samples.trajectory,
            norm=config.norm or "mean_std",  # type: ignore[arg-type]
            **_baseline(config),
        )
    )


def rloo(samples: Samples, tokens: Tokens, config: AdvantageConfig, reduce: Reduce) -> Estimate:
    scores, _ = scores_of(samples, config)
    return Estimate(rloo_advantages(scores, samples.group, samples.trajectory, **_baseline(config)))


def reinforce_pp(
    samples: Samples, tokens: Tokens, config: AdvantageConfig, reduce: Reduce
) -> Estimate:
    """REINFORCE++, or its baseline variant (``group_baseline``)."""
    scores, _ = scores_of(samples, config)
    if config.group_baseline:
        return Estimate(
            reinforce_pp_baseline_advantages(
                scores, samples.group, samples.trajectory, tokens.mask, reduce=reduce,
                **_baseline(config),
            )
        )  # fmt: skip
    rewards, kl = _with_kl(reward_on_last_token(scores, tokens.mask), tokens, config)
    advantages, _ = reinforce_pp_advantages(
        rewards, tokens.mask, gamma=_gamma(config), reduce=reduce
    )
    return Estimate(advantages, kl=kl)


def ppo(samples: Samples, tokens: Tokens, config: AdvantageConfig, reduce: Reduce) -> Estimate:
    """GAE with the critic's values, inside each reply or along the episode."""
    assert tokens.values is not None, "ppo needs the critic's values"
    settings: dict[str, Any] = {
        "gamma": _gamma(config), "lam": config.lam, "whiten": config.whiten, "reduce": reduce
    }  # fmt: skip
    if config.chain == "episode":
        step_rewards = invalid_action_penalty(
            samples.reward, _verdict(samples, config), coef=config.invalid_penalty
        )
        placed = rewards_along_episodes(step_rewards, tokens.mask, samples.trajectory)
        rewards, kl = _with_kl(placed, tokens, config)
        advantages, returns = gae_along_episodes(
            rewards, tokens.values, tokens.mask, samples.trajectory, **settings
        )
    else:
        scores, _ = scores_of(samples, config)
        rewards, kl = _with_kl(reward_on_last_token(scores, tokens.mask), tokens, config)
        advantages, returns = gae(rewards, tokens.values, tokens.mask, **settings)
    return Estimate(advantages, returns, kl)


ESTIMATORS: dict[str, Estimator] = {
    "gigpo": gigpo,
    "grpo": grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "ppo": ppo,
}


def estimate(
    name: str, samples: Samples, tokens: Tokens, config: AdvantageConfig, reduce: Reduce
) -> Estimate:
    """Run an estimator; failed samples are expected and counted elsewhere, so they warn nobody."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonFiniteWarning)
        return ESTIMATORS[name](samples, tokens, config, reduce)


def _verdict(samples: Samples, config: AdvantageConfig) -> Flags:
    return samples.format_valid if config.penalise == "format" else samples.action_valid


def _gamma(config: AdvantageConfig) -> float:
    return 1.0 if config.gamma is None else config.gamma


def _baseline(config: AdvantageConfig) -> dict[str, Any]:
    return {"baseline_over": config.baseline_over, "singleton": config.singleton}


def _with_kl(
    rewards: Floats, tokens: Tokens, config: AdvantageConfig
) -> tuple[Floats, float | None]:
    if not config.kl_in_reward:
        return rewards, None
    assert tokens.log_probs is not None
    assert tokens.ref_log_probs is not None
    return kl_in_reward(
        rewards, tokens.log_probs, tokens.ref_log_probs, tokens.mask, coef=config.kl_in_reward
    )
