"""Advantages: the seed system's numbers, what holds for any batch, and faults seen elsewhere by id."""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from difflib import SequenceMatcher
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_envs
from agent_envs.agent import AgentGroup
from agent_envs.core import MissingExtra, OptionError
from tests.conftest import load_json, shared
from trainers.gigpo import (
    NonFiniteWarning,
    anchor_groups,
    episode_returns,
    gigpo_advantages,
    step_returns,
    usable_samples,
)
from trainers.trl_adapter.advantages import (
    AdaptiveKL,
    dapo_filter,
    gae,
    grpo_advantages,
    invalid_action_penalty,
    kl_in_reward,
    kl_penalty,
    on_tokens,
    penalised_returns,
    reinforce_pp_advantages,
    reinforce_pp_baseline_advantages,
    reward_on_last_token,
    rloo_advantages,
)

NORM = {"mean_norm": "mean", "mean_std_norm": "mean_std"}
QUIRKS = {  # what the folder's README says not to match
    "empty_response_writes_last_padded_slot",
    "ndarray_same_values_other_shape_collide",
}
NAN = float("nan")


# -- the seed system's own numbers (float32, its settings) --


def golden(name: str) -> list[tuple[str, dict, dict]]:
    cases = load_json(shared(f"golden/advantages/{name}.json"))["cases"]
    return [(c["name"], c["inputs"], c["outputs"]) for c in cases if c["name"] not in QUIRKS]


def f32(values) -> np.ndarray:
    return np.asarray(values, np.float32)


def response_mask(inputs: dict) -> np.ndarray:
    return np.arange(inputs["T"]) < np.array(inputs["response_len"])[:, None]


def seed_baseline(inputs: dict) -> dict:
    over = "steps" if inputs.get("compute_mean_std_cross_steps", True) else "trajectories"
    return {"baseline_over": over, "singleton": "raw"}


def same(got, expected, name: str) -> None:
    assert np.asarray(got).dtype == np.float32, name
    np.testing.assert_allclose(got, f32(expected), rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("file", "count"), [("grpo", 39), ("gigpo_episode_norm", 20)])
def test_golden_grpo(file, count):
    cases = golden(file)
    assert len(cases) == count
    for name, i, o in cases:
        norm = "mean_std" if i.get("norm_adv_by_std_in_grpo", True) else "mean"
        got = grpo_advantages(
            f32(i["score"]), i["index"], i["traj_index"], norm=norm, **seed_baseline(i)
        )
        same(got, o["adv_per_sample"], name)
        if "adv" in o:
            same(on_tokens(got, response_mask(i)), o["adv"], name)


def test_golden_rloo():
    cases = golden("rloo")
    assert len(cases) == 20
    for name, i, o in cases:
        got = rloo_advantages(f32(i["score"]), i["index"], i["traj_index"], **seed_baseline(i))
        same(got, o["adv_per_sample"], name)
        same(on_tokens(got, response_mask(i)), o["adv"], name)


def test_golden_reinforce_pp():
    cases = golden("reinforce_pp")
    assert len(cases) == 20
    for name, i, o in cases:
        placed = reward_on_last_token(f32(i["score"]), response_mask(i))
        same(placed, i["token_level_rewards"], name)
        got, returns = reinforce_pp_advantages(placed, response_mask(i), gamma=i["gamma"])
        same(got, o["adv"], name)
        same(returns, o["returns"], name)


def test_golden_reinforce_pp_baseline():
    cases = golden("reinforce_pp_baseline")
    assert len(cases) == 20
    for name, i, o in cases:
        ids = i["index"], i["traj_index"]
        got = reinforce_pp_baseline_advantages(
            f32(i["score"]), *ids, response_mask(i), **seed_baseline(i)
        )
        same(got, o["adv"], name)


def test_golden_gae():
    cases = golden("ppo_gae")
    assert len(cases) == 17
    for name, i, o in cases:
        given_ = [f32(i[k]) for k in ("token_level_rewards", "values", "response_mask")]
        settings_ = {"gamma": i["gamma"], "lam": i["lam"]}
        if "raises" in o:  # a single token
            with pytest.raises(ValueError, match="at least two response tokens"):
                gae(*given_, **settings_, value_after_end="given", remask=False)
            continue
        got, returns = gae(*given_, **settings_, value_after_end="given", remask=False)
        same(got, o["adv"], name)
        same(returns, o["returns"], name)


def test_golden_gigpo():
    cases = golden("gigpo")
    assert len(cases) == 39
    for name, i, o in cases:
        got = gigpo_advantages(
            f32(i["score"]),
            f32(i["step_rewards"]),
            i["index"],
            i["traj_index"],
            i["anchor_obs"],
            step_weight=i["step_advantage_w"],
            norm=NORM[i["mode"]],
            epsilon=i["epsilon"],
            **seed_baseline(i),
        )
        same(got, o["adv_per_sample"], name)
        same(on_tokens(got, response_mask(i)), o["adv"], name)
        assert anchor_groups(i["anchor_obs"], i["index"]).tolist() == o["step_group"], name


def test_golden_step_returns():
    cases = golden("gigpo_step_returns")
    assert len(cases) == 24
    for name, i, o in cases:
        same(step_returns(f32(i["rewards"]), i["traj_uid"], i["gamma"]), o["returns"], name)


def test_golden_anchor_groups():
    pytest.importorskip("rapidfuzz")
    cases = golden("gigpo_step_group")
    assert len(cases) == 11
    for name, i, o in cases:
        threshold = i.get("similarity_thresh", 0.5) if i.get("enable_similarity") else None
        if "raises" in o:
            with pytest.raises(ValueError, match=r"similarity"):
                anchor_groups(i["anchor_obs"], i["index"], threshold)
        else:
            got = anchor_groups(i["anchor_obs"], i["index"], threshold)
            assert got.tolist() == o["step_group"], name


def test_golden_dapo_filter():
    cases = golden("dapo_filter_groups")
    assert len(cases) == 8
    for name, i, o in cases:
        rewards = np.array([float(r) for r in i["episode_rewards"]])
        members = np.arange(len(rewards))
        keep = dapo_filter(
            rewards,
            members // i["group_n"],
            members,
            tolerance=0,
            last_try=i["last_try"],
            nonfinite="keep",
        )
        assert members[keep].tolist() == o["kept_traj"], name


def test_golden_invalid_action_penalty():
    cases = golden("invalid_action_penalty")
    assert len(cases) == 2
    for name, i, o in cases:
        scores = f32(i["token_level_scores"]).sum(axis=1)
        penalised = invalid_action_penalty(scores, i["is_action_valid"], coef=i["coef"])
        placed = reward_on_last_token(penalised, i["response_mask"])
        same(placed, o["token_level_scores"], name)
        ahead = invalid_action_penalty(f32(i["step_rewards"]), i["is_action_valid"], coef=i["coef"])
        same(ahead, o["step_rewards"], name)


def test_golden_kl_penalty():
    cases = golden("kl_penalty")
    assert len(cases) == 55
    for name, i, o in cases:
        got = kl_penalty(f32(i["log_prob"]), f32(i["ref_log_prob"]), i["kind"])
        same(got, o["kl"], name)
        if "loss_token_mean" in o:
            inside = f32(i["response_mask"]).astype(bool)
            same(got[inside].mean(dtype=np.float32), o["loss_token_mean"], name)


def test_golden_kl_in_reward():
    cases = golden("reinforce_pp_kl_in_reward")
    assert len(cases) == 8
    for name, i, o in cases:
        columns = ("token_level_scores", "old_log_probs", "ref_log_prob", "response_mask")
        rewards, mean = kl_in_reward(
            *(f32(i[k]) for k in columns), coef=i["kl_coef"], kind=i["kind"]
        )
        same(rewards, o["token_level_rewards"], name)
        assert mean == pytest.approx(o["actor/reward_kl_penalty"], abs=1e-6), name
        got, returns = reinforce_pp_advantages(rewards, i["response_mask"], gamma=i["gamma"])
        same(got, o["adv"], name)
        same(returns, o["returns"], name)


# -- one worked example, clean and as the seed computes it (ALGORITHMS.md, section 1) --

EXAMPLE = {
    "scores": [1, 1, 1, 0, 0],
    "group_ids": ["a"] * 5,
    "trajectory_ids": ["t1", "t1", "t1", "t2", "t2"],
}
ANCHORS = ["s0", "s1", "s0", "s0", "s1"]
REWARDS = [0, 0, 1, 0, 0]


def test_worked_example():
    assert episode_returns(REWARDS, EXAMPLE["trajectory_ids"]).tolist() == EXAMPLE["scores"]
    ahead = step_returns(REWARDS, EXAMPLE["trajectory_ids"], 0.95)
    np.testing.assert_allclose(ahead, [0.9025, 0.95, 1, 0, 0])
    close = {"rtol": 0, "atol": 5e-5}
    np.testing.assert_allclose(grpo_advantages(**EXAMPLE), [0.7071] * 3 + [-0.7071] * 2, **close)
    np.testing.assert_allclose(
        grpo_advantages(**EXAMPLE, baseline_over="steps"), [0.7303] * 3 + [-1.0954] * 2, **close
    )
    assert rloo_advantages(**EXAMPLE).tolist() == [1, 1, 1, -1, -1]
    np.testing.assert_allclose(
        rloo_advantages(**EXAMPLE, baseline_over="steps"), [0.5] * 3 + [-0.75] * 2
    )
    joint = gigpo_advantages(**EXAMPLE, step_returns=ahead, anchors=ANCHORS)
    step = np.array([0.2683, 0.475, 0.3658, -0.6342, -0.475])
    np.testing.assert_allclose(joint, step + np.repeat([0.5, -0.5], [3, 2]), **close)
    seed = {"baseline_over": "steps", "singleton": "raw"}
    joint = gigpo_advantages(**EXAMPLE, step_returns=ahead, anchors=ANCHORS, **seed)
    np.testing.assert_allclose(joint, [0.6683, 0.875, 0.7658, -1.2342, -1.075], **close)
    joint = gigpo_advantages(
        **EXAMPLE, step_returns=ahead, anchors=ANCHORS, norm="mean_std", **seed
    )
    np.testing.assert_allclose(joint, [1.2170, 1.4374, 1.3938, -2.2456, -1.8025], **close)


# -- what holds for every batch --


EIGHTHS = st.integers(-40, 40).map(lambda v: v / 8)


@st.composite
def batches(draw, scores=EIGHTHS, per_trajectory=True):
    """Columns of a batch: group, trajectory, score, step return, anchor; in any order of trajectories."""
    trajectory = np.array(draw(st.lists(st.integers(0, 8), min_size=1, max_size=24)))
    size = len(trajectory)
    of = draw(st.lists(scores, min_size=9 if per_trajectory else size, max_size=max(9, size)))
    score = np.array(of)[trajectory] if per_trajectory else np.array(of[:size])
    ahead = np.array(draw(st.lists(scores, min_size=size, max_size=size)))
    anchor = draw(st.lists(st.sampled_from(["x", "y", "z"]), min_size=size, max_size=size))
    return trajectory // 3, trajectory, score, ahead, np.array(anchor, object)


def estimators(options):
    """All per-sample estimators as functions of (group, trajectory, score, step return, anchor)."""
    over = {k: options[k] for k in ("baseline_over", "singleton")}
    return {
        "grpo": lambda g, t, s, a, x: grpo_advantages(s, g, t, norm=options["norm"], **over),
        "rloo": lambda g, t, s, a, x: rloo_advantages(s, g, t, **over),
        "gigpo": lambda g, t, s, a, x: gigpo_advantages(s, a, g, t, x, **options),
        "rf++": lambda g, t, s, a, x: reinforce_pp_baseline_advantages(
            s, g, t, np.ones((len(s), 2)), **over
        )[:, 0],
    }


OPTIONS = st.fixed_dictionaries(
    {
        "norm": st.sampled_from(["mean", "mean_std"]),
        "baseline_over": st.sampled_from(["trajectories", "steps"]),
        "singleton": st.sampled_from(["zero", "raw"]),
    }
)
close = pytest.approx


@given(batches(), OPTIONS, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_the_order_of_the_samples_does_not_matter(batch, options, random):
    order = np.array(random.sample(range(len(batch[0])), len(batch[0])))
    for name, estimate in estimators(options).items():
        before, after = estimate(*batch), estimate(*(column[order] for column in batch))
        np.testing.assert_allclose(after, before[order], rtol=1e-9, atol=1e-9, err_msg=name)


@given(batches(), OPTIONS, st.lists(st.integers(-40, 40), min_size=3, max_size=3))
@settings(deadline=None, max_examples=60)
def test_shifting_a_groups_scores_changes_nothing(batch, options, shifts):
    group, trajectory, score, ahead, anchor = batch
    options["singleton"] = "zero"  # the raw score does shift
    shift = np.array(shifts)[group]
    for name, estimate in estimators(options).items():
        before = estimate(*batch)
        after = estimate(group, trajectory, score + shift, ahead + shift, anchor)
        np.testing.assert_allclose(after, before, rtol=1e-7, atol=1e-7, err_msg=name)


@given(batches())
@settings(deadline=None, max_examples=40)
def test_names_of_groups_and_trajectories_do_not_matter(batch):
    group, trajectory, score, ahead, anchor = batch
    before = gigpo_advantages(score, ahead, group, trajectory, anchor, norm="mean_std")
    names = [f"uuid-{9 - k}" for k in range(9)]
    after = gigpo_advantages(
        list(score),
        tuple(ahead),
        np.array([names[g] for g in group], object),
        [(names[t],) for t in trajectory],
        [{"seen": [x, 1]} for x in anchor],
        norm="mean_std",
    )
    assert (after == before).all()


@given(batches(), OPTIONS)
@settings(deadline=None, max_examples=40)
def test_groups_do_not_influence_each_other(batch, options):
    for g in set(batch[0].tolist()):
        own = batch[0] == g
        for name in ("grpo", "rloo", "gigpo"):
            estimate = estimators(options)[name]
            alone = estimate(*(column[own] for column in batch))
            np.testing.assert_allclose(estimate(*batch)[own], alone, rtol=1e-12, atol=1e-12)


@given(batches())
@settings(deadline=None, max_examples=40)
def test_episode_baseline_sums_to_zero_over_episodes_and_leaves_one_out(batch):
    group, trajectory, score, _, _ = batch
    _, first = np.unique(trajectory, return_index=True)
    loo, mean = (
        rloo_advantages(score, group, trajectory),
        grpo_advantages(score, group, trajectory, norm="mean"),
    )
    for g in set(group.tolist()):
        episodes = first[group[first] == g]
        assert mean[episodes].sum() == close(0, abs=1e-9)
        for k in episodes:
            others = score[episodes[episodes != k]]
            expected = score[k] - others.mean() if len(others) else 0
            assert loo[k] == close(expected, abs=1e-9)


@contextmanager
def only_our_warning():
    """No overflow, no division by zero, no NaN on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NonFiniteWarning)
        yield


ANY = st.floats(width=64) | st.sampled_from(
    [0.0, 1.0, NAN, float("inf"), -float("inf"), 1e308, 1e-320]
)


@given(batches(ANY, per_trajectory=False), OPTIONS, st.sampled_from([np.float32, np.float64]))
@settings(deadline=None, max_examples=150)
def test_every_input_gives_finite_advantages(batch, options, kind):
    group, trajectory, *numbers, anchor = batch
    with np.errstate(over="ignore"):
        score, ahead = (column.astype(kind) for column in numbers)
    for name, estimate in estimators(options).items():
        with only_our_warning():
            got = estimate(group, trajectory, score, ahead, anchor)
        assert np.isfinite(got).all(), name
        assert got.dtype == kind, name
        assert not got[~usable_samples(score)].any(), name


@given(
    st.lists(st.tuples(ANY, ANY, st.booleans()), min_size=6, max_size=24),
    st.sampled_from(["zero", "given"]),
    st.booleans(),
    st.sampled_from([0.0, 0.9, 1.0]),
    st.sampled_from([np.float32, np.float64]),
)
@settings(deadline=None, max_examples=150)
def test_every_input_gives_finite_token_advantages(tokens, after_end, whiten, gamma, kind):
    table = np.array(tokens[: len(tokens) // 3 * 3], float).reshape(3, -1, 3)
    with np.errstate(over="ignore"):
        rewards, values = table[..., 0].astype(kind), table[..., 1].astype(kind)
    mask = table[..., 2]
    mask[0, :2] = 1
    options = {"lam": 0.9, "whiten": whiten, "value_after_end": after_end}
    with only_our_warning():
        got = gae(rewards, values, mask, gamma=gamma, **options)
        got += reinforce_pp_advantages(rewards, mask, gamma=gamma)
    for array in got:
        assert np.isfinite(array).all()
        assert array.dtype == kind
    assert not got[0][mask == 0].any()
    assert not got[2][mask == 0].any()


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_step_returns_follow_the_recursion(data):
    trajectory = data.draw(st.lists(st.integers(0, 3), max_size=20))
    reward = [data.draw(st.integers(-9, 9)) for _ in trajectory]
    expected, ahead = [], {}
    for r, t in reversed(list(zip(reward, trajectory, strict=True))):
        ahead[t] = r + 0.5 * ahead.get(t, 0.0)
        expected.insert(0, ahead[t])
    assert step_returns(reward, trajectory, 0.5).tolist() == expected
    assert (
        episode_returns(reward, trajectory).tolist()
        == step_returns(
            np.bincount(trajectory, reward, 4)[trajectory] if trajectory else [],
            range(len(trajectory)),
            0,
        ).tolist()
    )


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_gae_is_the_sum_of_discounted_errors(data):
    """A_j = sum_l (gamma lam)^l delta_{j+l} over the response's own tokens, wherever padding lies."""
    tokens = data.draw(st.integers(2, 6))
    numbers = st.lists(st.integers(-9, 9), min_size=tokens, max_size=tokens)
    reward, value, noise = (np.array(data.draw(numbers), float) for _ in range(3))
    padding = np.array(data.draw(st.lists(st.booleans(), min_size=8, max_size=8)), bool)
    error = reward + 0.9 * np.append(value[1:], 0) - value
    expected = [sum((0.9 * 0.8) ** m * e for m, e in enumerate(error[j:])) for j in range(tokens)]
    row = np.full((3, tokens + 2), 50.0)  # rewards, values, mask; padding holds rubbish
    left = int(padding[0]) + int(padding[1])
    inside = slice(left, left + tokens)
    row[0, inside], row[1, inside], row[2] = reward, value, 0
    row[2, inside] = 1
    got, returns = gae(row[:1], row[1:2], row[2:], gamma=0.9, lam=0.8, whiten=False)
    np.testing.assert_allclose(got[0, inside], expected, atol=1e-9)
    np.testing.assert_allclose(returns[0, inside], expected + value, atol=1e-9)
    assert got.sum() == close(sum(expected), abs=1e-9)


# -- anchors --


def naive_clusters(texts, groups, threshold):
    """The seed system's rule, without autojunk: greedy first fit over all samples."""
    clusters, found = [], []
    for text, group in zip(texts, groups, strict=True):
        for k, (own, head) in enumerate(clusters):
            match = SequenceMatcher(None, text, head, autojunk=False)
            if own == group and match.ratio() >= threshold:
                found.append(k)
                break
        else:
            found.append(len(clusters))
            clusters.append((group, text))
    return found


TEXTS = st.text("ab ", max_size=9) | st.sampled_from(["", "aaaa", "aaab", "aabb"])
THRESHOLDS = st.sampled_from([0.3, 0.5, 2 / 3, 0.7, 0.75, 0.8, 0.9]) | st.floats(0.01, 0.99)


@given(st.lists(st.tuples(TEXTS, st.integers(0, 1)), max_size=14), THRESHOLDS)
@settings(deadline=None, max_examples=300)
def test_similarity_clusters_equal_the_naive_rule(samples, threshold):
    pytest.importorskip("rapidfuzz")
    texts, groups = [t for t, _ in samples], [g for _, g in samples]
    expected = naive_clusters(texts, groups, threshold)
    assert anchor_groups(texts, groups, threshold).tolist() == expected


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 239), st.sampled_from("#_.o")), max_size=40), max_size=5
    )
)
@settings(deadline=None, max_examples=15)
def test_similarity_clusters_of_long_texts_equal_the_naive_rule(edits):
    pytest.importorskip("rapidfuzz")
    texts = []
    for changes in edits:
        grid = list("#_______o.__###\n" * 15)
        for where, what in changes:
            grid[where] = what
        texts.append("".join(grid))
    for threshold in (0.9, 0.97):
        expected = naive_clusters(texts, [0] * len(texts), threshold)
        assert anchor_groups(texts, [0] * len(texts), threshold).tolist() == expected


def test_similarity_has_no_autojunk_trap():
    pytest.importorskip("rapidfuzz")
    grid = "#_______o.__###\n" * 15
    assert anchor_groups([grid, grid.replace("o", "_", 1)], [0, 0], 0.99).tolist() == [0, 0]
    assert anchor_groups(["abcde" * 60, "x" + "abcde" * 60], [0, 0], 0.99).tolist() == [0, 0]


def test_similarity_runs_once_per_distinct_text(monkeypatch):
    pytest.importorskip("rapidfuzz")
    from trainers.gigpo import anchors as module

    calls = []
    reaches = module._ratio_reaches
    monkeypatch.setattr(module, "_ratio_reaches", lambda *a: calls.append(a) or reaches(*a))
    texts = ["a kitchen", "a garden!", "the cellar"] * 5000
    assert anchor_groups(texts, [0] * 15000, 0.9)[:4].tolist() == [0, 1, 2, 0]
    assert len(calls) == 3


def test_similarity_is_off_limits_to_what_it_cannot_compare(monkeypatch):
    with pytest.raises(OptionError, match=r"similarity: expected a number in \(0, 1\)"):
        anchor_groups(["x"], [0], 0.0)
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agent-envs\[train\]'"):
        anchor_groups(["x"], [0], 0.5)


def test_states_of_different_type_shape_or_dtype_differ():
    zeros = np.zeros(4)
    states = [
        (zeros, zeros.copy()),
        (zeros.reshape(2, 2), zeros.reshape(2, 2).copy()),  # the seed system: same as the row above
        (zeros.astype(np.int64), np.zeros(4, np.int64)),
        (1, np.int32(1)),
        (1.0, np.float64(1)),
        (True, np.bool_(True)),
        ("1", np.str_("1")),
        (b"1", b"1"),
        ([1, [2]], (1, (2,))),
        ({"p": 1, "q": [2]}, {"q": [2], "p": 1}),
        ({1, 2}, frozenset({2, 1})),
        (np.array(["x", None], object), np.array(["x", None], object)),
    ]
    flat = [state for pair in states[:-1] for state in pair]
    expected = np.repeat(np.arange(len(states) - 1), 2)
    assert anchor_groups(flat, [0] * len(flat)).tolist() == expected.tolist()
    assert anchor_groups(np.zeros((3, 2, 2)), [0, 0, 1]).tolist() == [0, 0, 1]
    assert anchor_groups([None, None, "x"], [0, 0, 0]).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"anchors\[1\]: cannot compare states of type object"):
        anchor_groups(["x", object()], [0, 0])


# -- faults seen elsewhere --


def test_f087_groups_of_one_give_zero():
    score, group, trajectory = [5, 1, 0, 3, 2, 1], [0, 1, 1, 2, 2, 2], list(range(6))
    mask = np.ones((6, 2))
    for got in (
        grpo_advantages(score, group, trajectory),  # also DAPO, GSPO
        grpo_advantages(score, group, trajectory, norm="mean"),
        rloo_advantages(score, group, trajectory),
        gigpo_advantages(score, score, group, trajectory, ["s"] * 6),
        gigpo_advantages(score, score, group, trajectory, ["s"] * 6, norm="mean_std"),
    ):
        assert np.isfinite(got).all()
        assert got[0] == 0
        assert (got[[1, 3]] > 0).all()
    raw = {"singleton": "raw", "norm": "mean"}
    assert grpo_advantages(score, group, trajectory, **raw)[0] == 5  # the seed's rule, on demand
    # REINFORCE++ has no groups; its baseline variant centres the single one on itself
    assert np.isfinite(reinforce_pp_advantages(reward_on_last_token(score, mask), mask)[0]).all()
    got = reinforce_pp_baseline_advantages(score, group, trajectory, mask)
    assert np.isfinite(got).all()
    assert got[0] == close(0, abs=1e-12)
    assert not dapo_filter(score, group, trajectory)[0]
    # several steps of one single episode are not a group either
    assert not grpo_advantages([5, 4.9], ["a", "a"], ["t", "t"]).any()


def test_f089_unset_rewards_are_not_better_than_failures():
    got = None
    with pytest.warns(NonFiniteWarning, match="2 of 4 samples"):
        got = grpo_advantages([-1, -1, None, None], [0] * 4, range(4))
    assert got.tolist() == [0, 0, 0, 0]
    with pytest.warns(NonFiniteWarning):
        got = grpo_advantages([-1, 1, None, None], [0] * 4, range(4), norm="mean")
    assert got.tolist() == [-1, 1, 0, 0]


def test_f090_one_nan_and_one_inf_are_masked_counted_and_harm_no_other():
    score = np.random.default_rng(0).normal(size=16)
    group, trajectory, anchor = np.arange(16) // 4, np.arange(16), ["s"] * 16
    broken = score.copy()
    broken[[2, 9]] = NAN, np.inf
    fine = usable_samples(broken)
    assert np.flatnonzero(~fine).tolist() == [2, 9]
    options = {"norm": "mean_std", "baseline_over": "trajectories", "singleton": "zero"}
    for name, estimate in estimators(options).items():
        columns = group, trajectory, broken, score, anchor
        with pytest.warns(NonFiniteWarning, match="2 of 16 samples") as caught:
            got = estimate(*columns)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        alone = estimate(*(np.array(c, object if c is anchor else None)[fine] for c in columns))
        assert (got[fine] == alone).all(), name
        assert not got[~fine].any(), name
    with pytest.warns(NonFiniteWarning, match="16 of 16"):
        assert not grpo_advantages([NAN] * 16, group, trajectory).any()


def test_f090_a_bad_step_return_takes_its_sample_out_of_both_parts():
    columns = [0, 0, 0, 0], [0, 0, 1, 1], ["s"] * 4
    with pytest.warns(NonFiniteWarning, match="1 of 4"):
        got = gigpo_advantages([1, 1, 0, 0], [NAN, 1, 0, 0], *columns, baseline_over="steps")
    np.testing.assert_allclose(got, [0, 4 / 3, -2 / 3, -2 / 3])


def test_f091_constant_groups_are_dropped_or_kept_on_the_last_try():
    score, group = [1, 1, 0, 1, 0, 0, 0.3, 0.1 + 0.2], [0, 0, 1, 1, 2, 2, 3, 3]
    kept = lambda **o: dapo_filter(score, group, range(8), **o).nonzero()[0].tolist()  # noqa: E731
    assert kept() == [2, 3]
    assert kept(tolerance=0) == [2, 3, 6, 7]  # the seed system: rounding makes them differ
    assert kept(last_try=True) == list(range(8))
    assert kept(last_try=True, max_groups=2) == [0, 1, 2, 3]  # filled up in order of appearance
    assert kept(tolerance=0, max_groups=1) == [2, 3]  # cut back
    assert not dapo_filter([1, 1], [0, 0], [0, 1]).any()  # no crash, nothing to keep
    assert not grpo_advantages([1, 1, 0.1, 0.1, 0.1], [0, 0, 1, 1, 1], range(5)).any()  # exactly 0
    # one episode's steps with different penalties are no difference between episodes
    assert not dapo_filter([1, 0.9, 1], [0, 0, 0], [0, 0, 1]).any()
    assert not dapo_filter([NAN, NAN, 1, NAN], [0, 0, 1, 1], range(4)).any()
    assert dapo_filter([NAN, NAN, 1, NAN], [0, 0, 1, 1], range(4), nonfinite="keep").all()


def test_f093_values_at_masked_positions_do_not_count():
    rows = [[0, 1, 0]], [[0, 0, 100]], [[1, 1, 0]]
    got, returns = gae(*rows, lam=0.95, whiten=False)
    np.testing.assert_allclose(got, [[0.95, 1.0, 0]])
    np.testing.assert_allclose(returns, [[0.95, 1.0, 0]])
    seed, _ = gae(*rows, lam=0.95, whiten=False, value_after_end="given")
    np.testing.assert_allclose(seed, [[5.7, 6.0, 0]])
    nan, _ = gae([[0, 1, NAN]], [[0, 0, NAN]], [[1, 1, 0]], lam=0.95, whiten=False)
    assert (nan == got).all()


def test_f095_every_token_of_every_step_gets_the_outcome():
    lengths = np.array([5, 2, 9])
    mask = np.arange(10) < lengths[:, None]
    tokens = on_tokens([0.5, 0.5, 0.5], mask)
    assert (tokens[mask] == 0.5).all()
    assert (tokens[~mask] == 0).all()
    assert (tokens != 0).sum(axis=1).tolist() == lengths.tolist()


def test_f096_rloo_and_two_dimensional_rewards():
    score, ids = [1] * 3 + [0] * 5, ([0] * 8, range(8))
    np.testing.assert_allclose(
        rloo_advantages(score, *ids)[[0, 7]], [0.714286, -0.428571], atol=1e-6
    )
    np.testing.assert_allclose(grpo_advantages(score, *ids)[[0, 7]], [1.20761, -0.72457], atol=1e-5)
    assert rloo_advantages([3], [0], [0]).tolist() == [0]
    for estimate in (rloo_advantages, grpo_advantages):
        with pytest.raises(ValueError, match=r"scores: expected shape \(samples,\), got \(2, 2\)"):
            estimate([[1, 0], [1, 1]], [0, 0], [0, 1])


@given(st.integers(0, 5), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=20)
def test_f098_padding_and_order_of_the_batch_do_not_leak(width, random):
    numbers = np.random.default_rng(random.randrange(99))
    reward, value = numbers.normal(size=(2, 4, 5))
    mask = np.arange(5) < np.array([5, 2, 0, 3])[:, None]
    order = random.sample(range(4), 4)
    before = *reinforce_pp_advantages(reward, mask), *gae(reward, value, mask, lam=0.9)
    wide = [np.pad(x, ((0, 0), (0, width)), constant_values=99)[order] for x in (reward, value)]
    inside = np.pad(mask, ((0, 0), (0, width)))[order]
    after = *reinforce_pp_advantages(wide[0], inside), *gae(*wide, inside, lam=0.9)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(b[:, :5], a[order], atol=1e-12)
        assert not b[:, 5:].any()


# -- penalties, empty responses, failed replicas --


def test_empty_responses_carry_nothing():
    mask = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0]])
    assert reward_on_last_token([1, 2, 3], mask).tolist() == [[0, 1, 0], [0, 0, 0], [3, 0, 0]]
    assert on_tokens([1, 2, 3], mask)[1].tolist() == [0, 0, 0]
    reward = reward_on_last_token([1, 2, 3], mask)
    full, without = gae(reward, reward, mask), gae(reward[[0, 2]], reward[[0, 2]], mask[[0, 2]])
    for got, expected in zip(full, without, strict=True):
        assert not got[1].any()
        assert (got[[0, 2]] == expected).all()
    nothing = np.zeros((2, 3))
    for got in (*gae(nothing, nothing + 5, nothing), *reinforce_pp_advantages(nothing, nothing)):
        assert got.shape == (2, 3)
        assert not got.any()
    assert not reinforce_pp_baseline_advantages([1, 0], [0, 0], [0, 1], nothing).any()
    assert not reinforce_pp_baseline_advantages([1, 0], [0, 0], [0, 1], np.zeros((2, 0))).size
    _, kl = kl_in_reward(nothing, nothing - 1, nothing - NAN, nothing)
    assert kl == 0


def test_empty_batches_give_empty_advantages():
    for got in (
        grpo_advantages([], [], []),
        rloo_advantages([], [], []),
        gigpo_advantages([], [], [], [], []),
        episode_returns([], []),
        step_returns([], [], 0.9),
        anchor_groups([], []),
        dapo_filter([], [], []),
    ):
        assert got.shape == (0,)


def test_penalty_on_the_step_or_in_the_return():
    columns = [0, 0, 1], ["t"] * 3, [1, 0, 1]
    scores, ahead = penalised_returns(*columns, gamma=0.5, coef=0.1)
    np.testing.assert_allclose(scores, [1, 0.9, 1])
    np.testing.assert_allclose(ahead, [0.25, 0.4, 1])
    scores, ahead = penalised_returns(*columns, gamma=0.5, coef=0.1, penalty_in_return=True)
    np.testing.assert_allclose(scores, [0.9, 0.9, 0.9])
    np.testing.assert_allclose(ahead, [0.2, 0.4, 1])


def test_kl_kinds():
    policy, reference = np.log([0.5, 0.25]), np.log([0.25, 0.5])
    d = policy - reference
    assert (kl_penalty(policy, reference) == d).all()
    assert (kl_penalty(policy, reference, "abs") == abs(d)).all()
    assert (kl_penalty(policy, reference, "mse") == kl_penalty(policy, reference, "k2")).all()
    np.testing.assert_allclose(kl_penalty(policy, reference, "k2"), d**2 / 2)
    np.testing.assert_allclose(kl_penalty(policy, reference, "k3"), [exp(-x) + x - 1 for x in d])
    assert kl_penalty([-1000.0], [0.0], "low_var_kl").tolist() == [10]
    with pytest.raises(OptionError, match="unknown kind 'k4'"):
        kl_penalty(policy, reference, "k4")


def test_kl_in_reward_reaches_the_advantage_only_inside_the_response():
    rewards, kl = kl_in_reward(
        [[0, 1, 0]], [[-1, -1, NAN]], [[-2, -1, 5]], [[1, 1, 0]], coef=0.5, kind="kl"
    )
    assert rewards.tolist() == [[-0.5, 1, 0]]
    assert kl == 0.5
    rewards, kl = kl_in_reward(np.zeros((2, 1)), [[NAN], [-1]], np.zeros((2, 1)), np.ones((2, 1)))
    assert kl == -1
    assert not np.isfinite(rewards[0]).any()
    with pytest.warns(NonFiniteWarning, match="1 of 2"):
        assert not reinforce_pp_advantages(rewards, np.ones((2, 1)))[0].any()


def test_adaptive_kl_moves_towards_its_target():
    control = AdaptiveKL(0.1, target=1.0, horizon=100)
    assert control.update(5.0, 100) == close(0.12)
    assert control.update(0.9, 50) == close(0.12 * 0.95)
    assert control.update(NAN, 100) == control.coef == close(0.114)
    with pytest.raises(OptionError, match="target"):
        AdaptiveKL(target=0)


def test_a_rollout_with_a_failed_replica():
    agent_envs.register("Test/Toy-v0", "tests.toy:ToyEnv")
    group = agent_envs.make_group("Test/Toy-v0", 2, 3, max_steps=3)

    class Policy:
        def act(self, prompts):
            words = ["win" if p.view.replica % 3 == 0 else "wait" for p in prompts]
            words = [
                "raise" if p.view.replica == 1 and p.view.step == 1 else w
                for p, w in zip(prompts, words, strict=True)
            ]
            return [f"<think>x</think><action>{w}</action>" for w in words]

    rollout = AgentGroup(group).rollout(Policy(), seed=0)
    group.close()
    columns = rollout.columns()
    failed = np.isin(columns["replica"], list(rollout.failures))
    assert failed.any()
    rewards = np.where(failed, np.nan, columns["reward"])
    ids = columns["group"], columns["trajectory"]
    with pytest.warns(NonFiniteWarning, match=f"{failed.sum()} of {len(failed)}"):
        got = gigpo_advantages(
            episode_returns(rewards, ids[1]),
            step_returns(rewards, ids[1], 0.95),
            *ids,
            columns["anchor"],
        )
    assert not got[failed].any()
    won = columns["terminated"]
    assert (got[won] > 0).all()
    assert (got[~won & ~failed] < 0).all()


# -- bad input --


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: grpo_advantages([1, 2], [0], [0, 1]),
            r"group_ids: expected shape \(2,\), got \(1,\)",
        ),
        (
            lambda: grpo_advantages([1, 2], [0, 0], np.zeros((2, 1))),
            r"trajectory_ids: .* got \(2, 1\)",
        ),
        (lambda: grpo_advantages(3, [0], [0]), r"scores: expected shape \(samples,\), got \(\)"),
        (lambda: grpo_advantages(["x"], [0], [0]), "scores: expected an array of numbers"),
        (lambda: grpo_advantages([[1], [1, 2]], [0], [0]), "scores: expected an array of numbers"),
        (
            lambda: grpo_advantages([1], [[0]], [0]),
            "group_ids: expected one hashable id per sample",
        ),
        (lambda: grpo_advantages([1], None, [0]), "group_ids: expected one hashable id per sample"),
        (
            lambda: grpo_advantages([1], [0], [0], norm="std"),
            "unknown norm 'std'; valid: mean, mean_std",
        ),
        (
            lambda: rloo_advantages([1], [0], [0], baseline_over="all"),
            "unknown baseline_over 'all'",
        ),
        (lambda: rloo_advantages([1], [0], [0], singleton="one"), "unknown singleton 'one'"),
        (lambda: grpo_advantages([1], [0], [0], epsilon=-1), "epsilon: expected a number >= 0"),
        (
            lambda: gigpo_advantages([1], [1, 2], [0], [0], ["s"]),
            r"step_returns: .*\(1,\), got \(2,\)",
        ),
        (
            lambda: gigpo_advantages([1], [1], [0], [0], []),
            r"anchors: expected shape \(1,\), got \(0,\)",
        ),
        (
            lambda: gigpo_advantages([1], [1], [0], [0], "s"),
            "anchors: expected one per sample, got str",
        ),
        (lambda: gigpo_advantages([1], [1], [0], [0], ["s"], step_weight=NAN), "step_weight"),
        (lambda: step_returns([1], [0], 1.5), r"gamma: expected a number in \[0, 1\], got 1.5"),
        (lambda: gae([[1]], [[1]], [[1]], lam=-1), "lam: expected"),
        (lambda: gae([[1]], [[1, 2]], [[1]]), r"values: expected shape \(1, 1\), got \(1, 2\)"),
        (
            lambda: gae([1], [1], [1]),
            r"token_rewards: expected shape \(samples, tokens\), got \(1,\)",
        ),
        (
            lambda: reinforce_pp_advantages([[1, 2]], [[1, 0.5]]),
            "mask: expected only 0 and 1, got 0.5",
        ),
        (
            lambda: reinforce_pp_advantages([[1, 2]], [[1, 0]]),
            "mask: expected at least two response",
        ),
        (
            lambda: reinforce_pp_baseline_advantages([1], [0], [0], [[1], [1]]),
            r"mask: .*\(1, tokens\)",
        ),
        (lambda: dapo_filter([1], [0], [0], max_groups=0), "max_groups must be a positive integer"),
        (lambda: dapo_filter([1], [0], [0], tolerance=NAN), "tolerance: expected"),
        (lambda: invalid_action_penalty([1], [1, 0]), r"valid: expected shape \(1,\), got \(2,\)"),
        (lambda: invalid_action_penalty([1], [1], coef=NAN), "coef: expected a finite number"),
    ],
)
def test_errors_name_the_argument_and_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_precision_follows_the_inputs():
    half = f32([1, 0])
    assert grpo_advantages(half, [0, 0], [0, 1]).dtype == np.float32
    assert grpo_advantages(np.array([1, 0], np.float16), [0, 0], [0, 1]).dtype == np.float64
    mixed = gigpo_advantages(half, np.array([1.0, 0.0]), [0, 0], [0, 1], ["s", "s"])
    assert mixed.dtype == np.float64
    assert gigpo_advantages(half, half, [0, 0], [0, 1], ["s", "s"]).dtype == np.float32


@pytest.mark.filterwarnings("ignore::trainers.gigpo.NonFiniteWarning")
def test_inputs_stay_as_they_are():
    score, mask = np.array([1.0, NAN, 0.0]), np.ones((3, 2))
    kept = score.copy()
    rewards = reward_on_last_token(score, mask)
    copy = rewards.copy()
    grpo_advantages(score, [0] * 3, range(3))
    gigpo_advantages(score, score, [0] * 3, range(3), ["s"] * 3)
    gae(rewards, rewards, mask)
    reinforce_pp_advantages(rewards, mask)
    np.testing.assert_array_equal(score, kept)
    np.testing.assert_array_equal(rewards, copy)
