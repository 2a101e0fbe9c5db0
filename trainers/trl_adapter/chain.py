"""GAE along whole episodes: the replies of an episode as one sequence of tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trainers.gigpo.columns import Floats, flags, floats, labels, same_precision
from trainers.trl_adapter.advantages import gae, whitened


def rewards_along_episodes(
    step_rewards: ArrayLike,
    mask: ArrayLike,
    trajectory_ids: ArrayLike | Sequence[Hashable],
) -> Floats:
    """Token rewards, (samples, tokens): each step's own on the last token of its reply.

    The reward of a reply without tokens that count goes to the last such token before it in the episode,
    or to the first one after it where there is none before: the return of no action taken loses it. Only an
    episode without any token loses its rewards. Samples of a trajectory must stand in time order.
    """
    inside = flags("mask", mask, ndim=2)
    reward = floats("step_rewards", step_rewards, (len(inside),))
    trajectory = labels("trajectory_ids", trajectory_ids, len(inside))
    result = np.zeros(inside.shape, reward.dtype)
    last: dict[int, tuple[int, int]] = {}  # trajectory -> its last token so far
    waiting: dict[int, float] = {}  # rewards before the first token
    for sample, t in enumerate(trajectory.tolist()):
        tokens = np.flatnonzero(inside[sample])
        if len(tokens):
            result[sample, tokens[0]] += waiting.pop(t, 0.0)
            last[t] = sample, int(tokens[-1])
        if t in last:
            result[last[t]] += reward[sample]
        else:
            waiting[t] = waiting.get(t, 0.0) + float(reward[sample])
    return result


def gae_along_episodes(
    token_rewards: ArrayLike,
    values: ArrayLike,
    mask: ArrayLike,
    trajectory_ids: ArrayLike | Sequence[Hashable],
    *,
    whiten: bool = True,
    reduce: Any = None,
    **settings: Any,
) -> tuple[Floats, Floats]:
    """(A, returns), each (samples, tokens), with the replies of a trajectory chained in order.

    The last token of step t is followed by the first token of step t + 1, so it bootstraps from
    V there and gets the step's own reward r_t: the token-level MDP of the episode, where :func:`gae`
    ends at each reply. ``gamma`` and ``lam`` count tokens (:func:`gae`); the value after the
    episode's last token is 0. Samples of a trajectory must stand in time order.
    """
    reward = floats("token_rewards", token_rewards, ndim=2)
    reward, value = same_precision(reward, floats("values", values, reward.shape))
    inside = flags("mask", mask, reward.shape)
    trajectory = labels("trajectory_ids", trajectory_ids, len(reward))
    samples, tokens = np.nonzero(inside)  # by sample, then token
    order = np.argsort(trajectory[samples], kind="stable")
    samples, tokens = samples[order], tokens[order]
    row = trajectory[samples]
    lengths = np.bincount(row, minlength=int(trajectory.max(initial=-1)) + 1)
    column = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    shape = (len(lengths), int(lengths.max(initial=0)))

    def chained(source: Floats) -> Floats:
        result = np.zeros(shape, source.dtype)
        result[row, column] = source[samples, tokens]
        return result

    there = np.arange(shape[1]) < lengths[:, None]
    # an episode with an unusable reward is unusable as a whole, even where the reply has no token
    lost = np.isin(trajectory, trajectory[~np.isfinite(reward).all(axis=1)])
    reward = np.where(lost[:, None], np.nan, reward).astype(reward.dtype)
    long_advantages, long_returns = gae(
        chained(reward), chained(value), there, whiten=False, **settings
    )
    advantages, returns = np.zeros_like(reward), np.zeros_like(reward)
    advantages[samples, tokens] = long_advantages[row, column]
    returns[samples, tokens] = long_returns[row, column]
    if whiten:
        advantages = whitened(advantages, inside, ~lost, reduce=reduce)
    return advantages, returns
