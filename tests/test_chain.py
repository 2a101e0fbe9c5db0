"""PPO along whole episodes: rewards reach a token that was sampled, values of the next reply are seen."""

from __future__ import annotations

import numpy as np
import pytest

from trainers.gigpo import NonFiniteWarning
from trainers.trl_adapter.advantages import gae, whitened
from trainers.trl_adapter.chain import gae_along_episodes, rewards_along_episodes

ROWS, TOKENS, EPISODES = 40, 5, 6


def episodes(seed: int):
    """Samples of several episodes, mixed up but each in time order; some replies have no token."""
    rng = np.random.default_rng(seed)
    trajectory = rng.integers(EPISODES, size=ROWS)
    mask = np.arange(TOKENS) < rng.integers(TOKENS + 1, size=ROWS)[:, None]
    mask[::7, 1] = False  # tokens in the middle may be left out too
    return rng.normal(size=ROWS), rng.normal(size=(ROWS, TOKENS)), mask, trajectory


def places_of(mask, trajectory, episode):
    """(sample, token) of the episode's tokens, in time order."""
    return [(k, j) for k in np.flatnonzero(trajectory == episode) for j in np.flatnonzero(mask[k])]


@pytest.mark.parametrize("seed", range(5))
def test_an_episode_is_one_sequence_of_tokens(seed):
    """Equation 16 of GAE, written out over the tokens of each episode."""
    _, values, mask, trajectory = episodes(seed)
    rewards = np.random.default_rng(seed + 100).normal(size=mask.shape) * mask
    gamma, lam = 0.9, 0.7
    advantages, returns = gae_along_episodes(
        rewards, values, mask, trajectory, whiten=False, gamma=gamma, lam=lam
    )
    expected = np.zeros_like(rewards)
    for episode in range(EPISODES):
        places = places_of(mask, trajectory, episode)
        for n, place in enumerate(places):
            for m in range(n, len(places)):
                after = values[places[m + 1]] if m + 1 < len(places) else 0.0
                delta = rewards[places[m]] + gamma * after - values[places[m]]
                expected[place] += (gamma * lam) ** (m - n) * delta
    np.testing.assert_allclose(advantages, expected, atol=1e-12)
    np.testing.assert_allclose(returns, (expected + values) * mask, atol=1e-12)
    white, same = gae_along_episodes(rewards, values, mask, trajectory, gamma=gamma, lam=lam)
    np.testing.assert_array_equal(same, returns)
    np.testing.assert_allclose(white, whitened(expected, mask, np.ones(ROWS, bool)), atol=1e-9)


def test_episodes_of_one_reply_are_gae_inside_the_reply():
    _, values, mask, _ = episodes(1)
    rewards = values[::-1] * mask
    settings = {"gamma": 0.9, "lam": 0.8, "whiten": False}
    chained = gae_along_episodes(rewards, values, mask, range(ROWS), **settings)
    for one, other in zip(chained, gae(rewards, values, mask, **settings), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_one_unusable_reward_takes_its_whole_episode_out_and_no_other():
    _, values, mask, trajectory = episodes(2)
    rewards = values * mask
    broken = rewards.copy()
    broken[np.flatnonzero(trajectory == 3)[0]] = np.nan
    with pytest.warns(NonFiniteWarning):
        advantages, returns = gae_along_episodes(broken, values, mask, trajectory, whiten=False)
    clean, clean_returns = gae_along_episodes(rewards, values, mask, trajectory, whiten=False)
    lost = trajectory == 3
    assert not advantages[lost].any()
    np.testing.assert_array_equal(returns[lost], (values * mask)[lost])
    np.testing.assert_array_equal(advantages[~lost], clean[~lost])
    np.testing.assert_array_equal(returns[~lost], clean_returns[~lost])


def test_rewards_go_to_the_last_token_so_far_or_to_the_first_one_ahead():
    mask = np.array([[0, 0], [1, 1], [0, 0], [0, 1], [1, 0], [0, 0]], bool)
    rewards = rewards_along_episodes([1, 2, 4, 8, 16, 32], mask, [0, 0, 0, 0, 1, 2])
    assert rewards.tolist() == [[0, 0], [1, 2 + 4], [0, 0], [0, 8], [16, 0], [0, 0]]


@pytest.mark.parametrize("seed", range(5))
def test_no_reward_is_lost_on_the_way(seed):
    """The return of an episode, as its first token sees it, is the sum of its steps' rewards."""
    step_rewards, _, mask, trajectory = episodes(seed)
    rewards = rewards_along_episodes(step_rewards, mask, trajectory)
    assert not rewards[~mask].any()
    returns, _ = gae_along_episodes(
        rewards, np.zeros(mask.shape), mask, trajectory, whiten=False, gamma=1.0, lam=1.0
    )
    for episode in range(EPISODES):
        first = places_of(mask, trajectory, episode)[0]
        assert returns[first] == pytest.approx(step_rewards[trajectory == episode].sum())


def test_a_failed_step_without_tokens_spoils_its_episode():
    mask = np.array([[1], [0], [1]], bool)
    rewards = rewards_along_episodes([1.0, np.nan, 1.0], mask, [0, 0, 1])
    assert np.isnan(rewards[0, 0])
    assert rewards[2, 0] == 1
