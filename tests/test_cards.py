"""The card games: recordings of the original, field cases, solver, experts, pictures."""

from __future__ import annotations

import builtins
import hashlib
import json
import random
from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise
from math import factorial, prod

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_envs
from agent_envs.agent import ExpertPolicy, JsonParser, RandomPolicy, TagParser, parser_for
from agent_envs.core import MissingExtra, OptionError, StateError
from agent_envs.envs.cards import FormulaError, drawing, evaluate, solve
from agent_envs.envs.cards.deck import RANKS, card_value
from agent_envs.envs.cards.game import TEST_TASKS
from agent_envs.envs.cards.solver import plan
from tests.conftest import load_json, shared

NUMBER_LINE, EZ_POINTS, POINTS24, BLACKJACK = IDS = tuple(
    f"AgentEnv/{name}-v0" for name in ("NumberLine", "EZPoints", "Points24", "Blackjack")
)
POINTS = (EZ_POINTS, POINTS24)
HARD_24 = ["H3", "D8", "S3", "C8"]  # 8 / (3 - 8 / 3)
PIXELS = 84  # small pictures where only their bytes matter


def make(env_id: str, **options):
    return gymnasium.make(env_id, **options).unwrapped


def press(env, actions, **start):
    """Reset to an explicit start and act; returns the last step, (observation, None...) if none."""
    observation, info = env.reset(options=start)
    step = observation, None, False, False, info
    for action in actions:
        step = env.step(action)
    return step


def outcome(env_id: str, cards, actions, **options):
    """(reward, terminated, formula) of the last of the actions."""
    _, reward, terminated, _, info = press(make(env_id, **options), actions, cards=cards)
    return reward, terminated, info["formula"]


# -- recordings of the original ----------------------------------------------------------------


def recorded(game: str) -> list[dict]:
    return load_json(shared("golden/cards/episodes.json"))[game]


def differences(env, episode: dict, start: dict, seen) -> list[tuple]:
    """Steps in which play differs from the recording; ``seen(info, step)``: ours and theirs."""
    env.reset(options=start)
    found = []
    for number, step in enumerate(episode["steps"]):
        _, reward, terminated, truncated, info = env.step(step["a"])
        ours, theirs = seen(info, step)
        ours = (reward, terminated, truncated, *ours)
        theirs = (step["r"], step["terminated"], step.get("truncated", False), *theirs)
        if ours != theirs:
            found.append((number, step["a"], ours, theirs))
    last = episode["steps"][-1]
    assert last["terminated"] or last.get("truncated")  # all recordings are whole episodes
    return found


def counts(episodes: list[dict]) -> tuple[int, int]:
    return len(episodes), sum(len(episode["steps"]) for episode in episodes)


def test_number_line_plays_as_recorded():
    def seen(info, step):
        return [info["position"]], [step["current"]]

    episodes, env = recorded("numberline"), make(NUMBER_LINE)
    assert counts(episodes) == (37, 392)
    for episode in episodes:
        start = {key: episode[key] for key in ("start", "target", "max_position")}
        assert differences(env, episode, start, seen) == []


def points_differences(env, episodes: list[dict]) -> dict[str, list[tuple]]:
    """Differing steps by the formula that was played."""
    found = {}
    for episode in episodes:
        numbers = episode["numbers"]

        def seen(info, step, numbers=numbers):
            return [info["formula"], info["numbers"]], [step["formula"], numbers]

        different = differences(env, episode, {"cards": episode["cards"]}, seen)
        if different:
            found.setdefault(episode["steps"][-1]["formula"], []).extend(different)
    return found


def test_ez_points_plays_as_recorded_but_for_signs():
    """Rule "unary plus is refused": 4 of 45 recordings, each in its last reward only.

    The original's ``eval`` took ``+7+5``; with ``compat="original"`` all recordings are equal.
    """
    episodes = recorded("ezpoints")
    assert counts(episodes) == (45, 160)
    found = points_differences(make(EZ_POINTS), episodes)
    assert {formula: len(steps) for formula, steps in found.items()} == {
        "+7+5": 1,
        "+2+10": 2,
        "+4+8": 1,
    }
    for steps in found.values():
        for _, action, ours, theirs in steps:
            assert action == "="
            assert (ours[0], theirs[0]) == (-1, 10)
            assert ours[1:] == theirs[1:]
    assert points_differences(make(EZ_POINTS, compat="original"), episodes) == {}


@pytest.mark.parametrize("compat", [None, "original"])
def test_points24_plays_as_recorded(compat):
    episodes, env = recorded("points24"), make(POINTS24, compat=compat)
    assert counts(episodes) == (60, 665)
    assert points_differences(env, episodes) == {}
    for episode in episodes:
        assert env.reset(options={"cards": episode["cards"]})[1]["solvable"] == episode["solvable"]


def test_blackjack_plays_as_recorded():
    """Rule "the hidden card is not told": before the end our ``dealer`` is the recorded first card."""
    episodes = recorded("blackjack")
    assert counts(episodes) == (45, 63)
    for episode in episodes:
        env, last = make(BLACKJACK, natural=episode["natural"]), episode["steps"][-1]
        start = {key: episode[key] for key in ("player", "dealer")}
        start["draws"] = last["player"][2:] + last["dealer"][2:]

        def seen(info, step):
            shown = step["dealer"] if step["terminated"] else step["dealer"][:1]
            total = f"(total {step['player_sum']}"
            return [info["player"], info["dealer"], total in info["anchor"]], [
                step["player"],
                shown,
                True,
            ]

        assert differences(env, episode, start, seen) == []


# -- rules -------------------------------------------------------------------------------------


def test_number_line_rewards_and_limits():
    env = make(NUMBER_LINE)
    start = {"start": 0, "target": 2, "max_position": 3}
    observation, *_ = press(env, [], **start)
    assert observation == "Target: 2\nCurrent: 0\nThe line goes from 0 to 3."
    rewards = [press(env, actions, **start)[1] for actions in (["-"], ["+"], [" + ", "+"], ["up"])]
    assert rewards == [-1, 0, 1, -1]
    _, reward, terminated, truncated, info = press(
        env, ["+", "\u2212", "+", "x", "-", "+"], **start
    )
    assert (terminated, truncated, info["steps"], info["position"]) == (False, True, 6, 1)
    assert press(make(NUMBER_LINE, max_steps=2), ["+", "-"], **start)[3]
    assert press(make(NUMBER_LINE, reward_scale=0.5), ["+", "+"], **start)[1] == 0.5


def test_number_line_draws_unequal_pairs_uniformly():
    env = make(NUMBER_LINE)
    drawn = Counter()
    for index in range(6000):
        info = env.reset(options={"task_index": index})[1]
        drawn[info["position"], info["target"]] += 1
    assert len(drawn) == 30
    assert all(start != target for start, target in drawn)
    assert 150 < min(drawn.values()) < 200 < max(drawn.values()) < 250


def test_blackjack_rules_of_a_natural():
    """sab is the default and overrides natural."""
    start = {"player": [10, 1], "dealer": [10, 6], "draws": [5]}  # the dealer comes to 21 too
    assert press(make(BLACKJACK), ["stand"], **start)[1] == 1.0
    assert press(make(BLACKJACK, natural=True), ["stand"], **start)[1] == 1.0
    assert press(make(BLACKJACK, sab=False, natural=True), ["stand"], **start)[1] == 0.0
    start["draws"] = [10]
    assert press(make(BLACKJACK, sab=False, natural=True), ["stand"], **start)[1] == 1.5
    assert press(make(BLACKJACK, sab=False), ["stand"], **start)[1] == 1.0
    both = {"player": [10, 1], "dealer": [1, 10]}
    _, reward, _, _, info = press(make(BLACKJACK), ["stand"], **both)
    assert (reward, info["won"], info["score"]) == (0.0, False, 0.5)


def test_blackjack_turns():
    env = make(BLACKJACK)
    start = {"player": [5, 5], "dealer": [10, 7], "draws": [3, 10]}
    _, reward, terminated, _, info = press(env, [" HIT ", "Stand?"], **start)
    assert (reward, terminated, info["is_action_valid"], info["player"]) == (
        0,
        False,
        False,
        [5, 5, 3],
    )
    observation, reward, terminated, _, info = press(env, ["hit", "hit"], **start)
    assert (reward, terminated, info["player"], info["dealer"]) == (
        -1,
        True,
        [5, 5, 3, 10],
        [10, 7],
    )
    assert observation.endswith("The dealer's cards: 10, 7 (total 17)\nYou lose.")
    *_, truncated, info = press(env, ["what"] * 30, **start)
    assert truncated
    assert info["dealer"] == [10]  # nobody won, nothing is turned over
    env = make(BLACKJACK, max_steps=None)
    assert not press(env, ["what"] * 100, **start)[3]


def test_blackjack_deck_has_four_times_as_many_tens():
    values = Counter()
    for seed in range(400):
        env = make(BLACKJACK)
        env.reset(seed=seed, options={"player": [1, 1], "dealer": [5, 5]})
        while not env.terminated:
            *_, info = env.step("hit")
        values.update(info["player"][2:])
    total = values.total()
    assert set(values) == set(range(1, 11))
    assert abs(values[10] / total - 4 / 13) < 0.03
    assert all(abs(values[n] / total - 1 / 13) < 0.025 for n in range(1, 10))


def test_formula_full_ends_the_episode():
    env = make(POINTS24)
    *_, terminated, truncated, info = press(env, ["("] * 21, cards=HARD_24)
    assert (terminated, truncated, len(info["formula"])) == (False, False, 21)
    _, reward, terminated, truncated, info = env.step("=")
    assert (reward, terminated, truncated, info["formula"]) == (-1, False, True, "(" * 21)
    assert info["won"] is False
    short = make(EZ_POINTS, max_steps=2)
    assert press(short, ["+", "+"], cards=["H5", "D7"])[3]


def test_ez_points_always_deals_a_pair_that_makes_12():
    for faces_as_10 in (True, False):
        env = make(EZ_POINTS, treat_face_cards_as_10=faces_as_10)
        sums, firsts = Counter(), Counter()
        for index in range(4000):
            info = env.reset(options={"task_index": index})[1]
            a, b = info["numbers"]
            assert info["solvable"]
            assert a + b == 12 or a * b == 12
            sums[a + b == 12] += 1
            firsts[info["cards"][0][1]] += 1
        share = 10 / 12 if faces_as_10 else 8.5 / 12
        assert abs(sums[True] / 4000 - share) < 0.03
        assert set(firsts) == set(RANKS) - {"A" if faces_as_10 else "K"}
    free = make(EZ_POINTS, solvable_only=False)
    flags = Counter(free.reset(options={"task_index": i})[1]["solvable"] for i in range(400))
    assert flags[True] > 20
    assert flags[False] > 200


# -- field cases -------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", IDS)
def test_f060_a_seed_means_one_hand_whatever_else_draws(env_id):
    env = make(env_id, obs_mode="both", image_size=PIXELS)

    def look(observation) -> tuple:
        return observation["text"], observation["image"].tobytes()

    first = {seed: look(env.reset(seed=seed)[0]) for seed in range(12)}
    for seed in (11, 3, 0, 7):
        random.seed(seed)
        np.random.seed(seed)
        assert look(env.reset(seed=seed)[0]) == first[seed]
        assert (
            look(make(env_id, obs_mode="both", image_size=PIXELS).reset(seed=seed)[0])
            == first[seed]
        )
    assert len(set(first.values())) > 6


def test_f060_group_members_share_hands_in_other_processes_too():
    for env_id in IDS:
        inline = agent_envs.make_group(env_id, 3, 2)
        expected = inline.reset(seed=3)[0]
        inline.close()
        group = agent_envs.make_group(env_id, 3, 2, backend="process")
        assert group.reset(seed=3)[0] == expected
        group.close()


TEN = ["HT", "DT", "ST", "CT"]


@pytest.mark.parametrize(
    "actions",
    [
        "10 * * 10 * * 10 * * 10",
        "10 / / 10 + 10 + 10",
        "10 - - 10 + 10 + 10",
        "- 10 + 10 + 10 + 10",
        "10 * ( - 10 ) + 10 + 10",
    ],
)
def test_f063_operators_in_a_row_and_signs_are_no_formula(actions):
    assert outcome(POINTS24, TEN, [*actions.split(), "="])[:2] == (-1.0, True)


def test_f063_digits_are_not_glued():
    assert outcome(POINTS24, ["H2", "D4", "HA", "DA"], ["2", "4", "*", "1", "*", "1", "="])[0] == -1
    assert outcome(EZ_POINTS, ["HA", "D2"], ["1", "2", "="]) == (-1.0, True, "12")


def test_f064_every_card_exactly_once_as_a_multiset():
    assert (
        outcome(POINTS24, ["H8", "D3", "SA", "CA"], ["8", "*", "3", "="])[0] == -1
    )  # cards are left
    assert (
        outcome(POINTS24, ["H8", "D3", "SA", "CA"], ["8", "*", "3", "*", "1", "*", "1", "="])[0]
        == 10
    )
    # a second 3 is refused, so the formula lacks a number
    assert outcome(POINTS24, ["H8", "D3", "SA", "CA"], ["8", "*", "3", "*", "3"])[2] == "8*3* "
    near = ["D7", "S7", "H2", "C4"]  # 7 * 7 / 2 = 24.5, and 24.5 is not 24
    assert outcome(POINTS24, near, "7 * 7 / 2 =".split())[0] == -1
    assert outcome(POINTS24, ["DT", "ST", "H4", "C4"], "( 10 * 10 - 4 ) / 4 =".split())[0] == 10
    assert outcome(POINTS24, ["DT", "ST", "H4", "C4"], "( 10 * 10 - 4 / 4 ) =".split())[0] == -1


@pytest.mark.parametrize(
    "actions", ["8 / ( 4 - 4 ) =", "8 / 0 =", "( 8 + =", "( 8 =", "8 ) =", "( ) =", "="]
)
def test_f065_divisions_by_zero_and_half_formulas_are_ordinary_failures(actions):
    assert outcome(POINTS24, ["H8", "D4", "S4", "CA"], actions.split())[:2] == (-1.0, True)


def test_f065_exact_fractions():
    assert outcome(POINTS24, HARD_24, list("8/(3-8/3)="))[:2] == (10.0, True)
    assert solve((3, 3, 8, 8), 24) == tuple("8/(3-8/3)")
    assert evaluate(tuple("8/(3-8/3)")) == 24
    with pytest.raises(FormulaError, match="divides by zero"):
        evaluate(tuple("1/(2-2)"))


@pytest.mark.parametrize(
    "action", ["10+", "1 0", "11", "01", "1.0", "\uff11\uff10", "1", "ten", "10."]
)
def test_f067_only_10_is_10(action):
    env = make(POINTS24)
    _, reward, _, _, info = press(env, [action], cards=["HT", "DK", "S2", "C3"])
    assert (reward, info["formula"], info["is_action_valid"]) == (-1, " ", False)
    _, reward, _, _, info = press(env, [" 10 "], cards=["HT", "DK", "SA", "C3"])
    assert (reward, info["formula"], info["is_action_valid"]) == (0, "10", True)
    assert env.step("1")[4]["formula"] == "101"


def test_f067_typographic_signs():
    _, reward, *_, info = press(
        make(POINTS24), ["8", "\u00d7", "4", "\u00f7", "\u2212"], cards=["H8", "D4", "S4", "CA"]
    )
    assert (reward, info["formula"]) == (0, "8*4/-")
    assert outcome(EZ_POINTS, ["H3", "D4"], ["3", "\u00d7", "4", "="])[0] == 10
    assert outcome(EZ_POINTS, ["H3", "D4"], ["3", "\u00f7"])[0] == -1  # no such key here


@pytest.mark.parametrize("env_id", IDS)
def test_f067_both_answer_formats(env_id):
    parser = parser_for(env_id)
    assert isinstance(parser, TagParser)
    assert parser.parse("<think>1?</think><action>10</action>").action == "10"
    for text in ('{"action": "10"}', '{"action": 10}', '{"thoughts": "1", "action": "10"}'):
        assert JsonParser().parse(text).action == "10"
    for action in make(env_id).reset(seed=1)[1]["admissible_actions"]:
        for either in (parser, JsonParser()):
            assert either.parse(either.format(action)).action == action


def test_f077_f086_six_seeds_several_starts():
    for env_id in IDS:
        starts = {make(env_id).reset(seed=seed)[0] for seed in range(6)}
        assert len(starts) > 2


# -- hostile text ------------------------------------------------------------------------------

KEYS = [
    "+",
    "-",
    "*",
    "/",
    "(",
    ")",
    "=",
    "hit",
    "stand",
    "\u00d7",
    "\u2212",
    " ",
    "",
    *map(str, range(14)),
]


@pytest.mark.parametrize("env_id", IDS)
@settings(max_examples=80, deadline=2000)
@given(
    actions=st.lists(st.sampled_from(KEYS) | st.text(max_size=12), max_size=30),
    seed=st.integers(0, 2**70),
)
def test_any_texts_leave_the_rules_intact(env_id, actions, seed):
    env, other = make(env_id), make(env_id)
    observation, info = env.reset(seed=seed)
    for action in actions:
        valid = {*info["admissible_actions"], "\u00d7", "\u00f7", "\u2212"}
        state = env.get_state()
        step = env.step(action)
        observation, reward, terminated, truncated, info = step
        assert env.observation_space.contains(observation)
        assert reward in (-1.0, 0.0, 1.0, 10.0)
        assert info["is_action_valid"] <= (action.strip().lower() in valid)
        other.set_state(state)
        assert other.step(action) == step
        assert other.set_state(env.get_state())[0] == observation
        if terminated or truncated:
            break
    assert info["steps"] <= 30


# -- tasks, groups, states ---------------------------------------------------------------------


@pytest.mark.parametrize("env_id", IDS)
def test_splits_are_streams_of_their_own(env_id):
    train, test = make(env_id), make(env_id, split="test")
    assert (train.tasks.count("train"), test.tasks.count("test")) == (None, TEST_TASKS)
    deals = [
        [env.reset(seed=0, options={"task_index": i})[0] for i in range(TEST_TASKS)]
        for env in (train, test, make(env_id, split="test"))
    ]
    assert deals[1] == deals[2] != deals[0]
    ids = {test.reset(seed=seed)[1]["task_id"] for seed in range(TEST_TASKS)}
    assert ids == {f"test/{i}" for i in range(TEST_TASKS)}
    # the task alone decides the deal, whatever the seed
    assert {test.reset(seed=seed, options={"task_index": 7})[0] for seed in range(5)} == {
        deals[1][7]
    }


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("obs_mode", ["image", "both"])
def test_groups_share_deal_and_draws_in_pictures(env_id, obs_mode):
    group = agent_envs.make_group(env_id, 3, 4, obs_mode=obs_mode, image_size=PIXELS)

    def looks(observations) -> list:
        return [
            tuple(np.asarray(v).tobytes() for v in o.values())
            if isinstance(o, dict)
            else o.tobytes()
            for o in observations
        ]

    observations, infos = group.reset(seed=5)
    for turn in range(3):
        assert group.observation_space.contains(observations)
        rows = looks(observations)
        assert all(len(set(rows[g * 4 : g * 4 + 4])) == 1 for g in range(3))
        assert len(set(rows)) > 1
        actions = [list(a)[turn % len(a)] for a in infos["admissible_actions"]]
        observations, _, terminated, truncated, infos = group.step(actions)
        if (terminated | truncated).all():
            break
    group.close()


def drawn_by_group(**options) -> list[list[tuple]]:
    """Player's cards of 4 groups of 4 after two hits from small cards."""
    group = agent_envs.make_group(BLACKJACK, 4, 4, **options)
    group.reset(seed=9, options={"player": [1, 2], "dealer": [2, 10]})
    for _ in range(2):
        infos = group.step(["hit"] * 16)[4]
    rows = [tuple(cards) for cards in infos["player"]]
    states = group.get_states()
    singles = make(BLACKJACK)
    assert [tuple(singles.set_state(states[i])[1]["player"]) for i in range(16)] == rows
    group.close()
    return [rows[g * 4 : g * 4 + 4] for g in range(4)]


def test_share_randomness():
    shared_draws = drawn_by_group()
    assert all(len(set(rows)) == 1 for rows in shared_draws)
    assert len({rows[0] for rows in shared_draws}) > 1
    own_draws = drawn_by_group(share_randomness=False)
    assert all(len(set(rows)) > 1 for rows in own_draws)
    env = make(BLACKJACK, share_randomness=False)
    start = {"player": [1, 2], "dealer": [2, 10]}
    hands = []
    for _ in range(2):
        env.reset(seed=4, options=start)
        hands.append([env.step("hit")[4]["player"] for _ in range(2)])
    assert hands[0] == hands[1]  # an object repeats itself


def test_states_of_other_options_are_refused():
    for env_id, options in (
        (NUMBER_LINE, {"max_position": 9}),
        (POINTS24, {"solvable_only": False}),
    ):
        env, other = make(env_id), make(env_id, **options)
        refused = 0
        for seed in range(12):
            env.reset(seed=seed)
            try:
                other.set_state(env.get_state())
            except StateError as error:
                assert "other options" in str(error)
                refused += 1
            else:
                assert other._text() == env._text()
        assert refused > 2


@pytest.mark.parametrize("env_id", IDS)
def test_explicit_starts_travel_in_states_and_end_states_too(env_id):
    start = {
        NUMBER_LINE: {"start": 1, "target": 7, "max_position": 9},
        EZ_POINTS: {"cards": ["H10", "d2"]},
        POINTS24: {"cards": ("H3", "DK", "DK", "SA")},
        BLACKJACK: {"player": [2, 3], "dealer": np.array([10, 6]), "draws": [4, 5, 6, 7]},
    }[env_id]
    env, other = make(env_id), make(env_id)
    observation, info = env.reset(options=start)
    for action in [*info["admissible_actions"][:3], info["admissible_actions"][-1]]:
        assert other.set_state(env.get_state())[0] == observation
        observation, reward, *ends, info = env.step(action)
        assert other.step(action) == (observation, reward, *ends, info)
        if env.terminated:
            break
    again, restored = other.set_state(env.get_state())
    assert again == observation
    assert {k: v for k, v in restored.items() if k != "data_source"} == info


@pytest.mark.parametrize(
    ("env_id", "start", "words"),
    [
        (NUMBER_LINE, {"start": 1}, "target is missing"),
        (NUMBER_LINE, {"start": 1, "target": 1}, "must differ"),
        (NUMBER_LINE, {"start": 1, "target": 6}, "target must be 0 to 5"),
        (NUMBER_LINE, {"start": "1", "target": 3}, "start must be a whole number"),
        (EZ_POINTS, {"cards": ["H3"]}, "needs 2 cards, got 1"),
        (POINTS24, {"cards": ["H3", "X4", "S1", "S2"]}, "'X4' is no card"),
        (POINTS24, {"cards": "H3"}, "must be a list"),
        (BLACKJACK, {"player": [10, 5]}, "dealer is missing"),
        (BLACKJACK, {"player": [10, 5, 9], "dealer": [1, 2]}, "at most 21"),
        (BLACKJACK, {"player": [10, 5], "dealer": [1, 11]}, "1 to 10"),
        (BLACKJACK, {"player": [10, 5], "dealer": [1]}, "two cards"),
    ],
)  # fmt: skip
def test_wrong_starts_say_what_is_wrong(env_id, start, words):
    env = make(env_id)
    with pytest.raises(OptionError, match=words):
        env.reset(options=start)


def test_wrong_options_list_the_valid_ones():
    for env_id in IDS:
        with pytest.raises(OptionError, match="valid: text, image, both"):
            make(env_id, obs_mode="sound")
        with pytest.raises(OptionError, match="image_size must be 64 to 2048"):
            make(env_id, image_size=3)
        with pytest.raises(OptionError, match=r"valid: .*obs_mode, image_size"):
            make(env_id, no_such=1)
    with pytest.raises(OptionError, match="unknown compat"):
        make(POINTS24, compat="seed")
    with pytest.raises(OptionError, match="max_position"):
        make(NUMBER_LINE, max_position=0)


# -- the hidden card ---------------------------------------------------------------------------


def test_the_hidden_card_is_told_only_at_the_end():
    def looks(hidden: int, actions) -> list:
        env = make(BLACKJACK, obs_mode="both", image_size=PIXELS)
        start = {"player": [2, 3], "dealer": [9, hidden], "draws": [2, 3, 10, 10]}
        observation, info = env.reset(seed=1, options=start)
        seen = [(observation["text"], observation["image"].tobytes(), info)]
        for action in actions:
            observation, *_, info = env.step(action)
            seen.append((observation["text"], observation["image"].tobytes(), info))
        return seen

    played = [looks(hidden, ["hit", "x", "hit"]) for hidden in range(1, 11)]
    assert all(seen == played[0] for seen in played)
    assert played[0][0][2]["dealer"] == [9]
    ended = [looks(hidden, ["hit", "stand"])[-1] for hidden in (8, 9, 10)]
    assert [info["dealer"] for *_, info in ended] == [[9, 8], [9, 9], [9, 10]]
    assert len({image for _, image, _ in ended}) == 3


# -- solver and experts ------------------------------------------------------------------------


def reachable(numbers: tuple[Fraction, ...]) -> set[Fraction]:
    """All values of a hand, by brute force: join any two, again and again."""
    if len(numbers) == 1:
        return {numbers[0]}
    found = set()
    for i, a in enumerate(numbers):
        for j, b in enumerate(numbers):
            if i != j:
                rest = tuple(n for k, n in enumerate(numbers) if k not in (i, j))
                joined = [a + b, a - b, a * b] + ([a / b] if b else [])
                found |= {value for c in joined for value in reachable((*rest, c))}
    return found


def test_solver_agrees_with_brute_force():
    stream = random.Random(24)
    hands = [tuple(sorted(stream.randint(1, 13) for _ in range(4))) for _ in range(25)]
    for hand in [*hands, (3, 3, 8, 8), (1, 1, 1, 1), (1, 3, 4, 6), (4, 4, 10, 10)]:
        values = reachable(tuple(map(Fraction, hand)))
        for target in (24, 12, 7, 100):
            formula = solve(hand, target)
            assert (formula is not None) == (target in values), (hand, target)
            if formula is not None:
                assert evaluate(formula) == target
                assert sorted(int(t) for t in formula if t.isdecimal()) == list(hand)


def test_a_quarter_of_all_hands_has_no_solution():
    """26.9 % with replacement and faces as 10, exactly and in deals."""
    weights = Counter(card_value("S" + rank) for rank in RANKS)
    unsolvable = 0
    for hand in combinations_with_replacement(range(1, 11), 4):
        if solve(hand, 24) is None:
            repeats = prod(map(factorial, Counter(hand).values()))
            unsolvable += factorial(4) // repeats * prod(weights[n] for n in hand)
    assert round(unsolvable / 13**4, 3) == 0.269
    env = make(POINTS24, solvable_only=False)
    flags = [env.reset(options={"task_index": i})[1]["solvable"] for i in range(6000)]
    assert abs(1 - np.mean(flags) - 0.269) < 0.015


@pytest.mark.parametrize("faces_as_10", [True, False])
def test_solvable_only_deals_are_solved_by_the_expert(faces_as_10):
    env = make(POINTS24, treat_face_cards_as_10=faces_as_10)
    largest = 0
    for index in range(300):
        info = env.reset(options={"task_index": index})[1]
        assert info["solvable"]
        largest = max(largest, *info["numbers"])
        while not (env.terminated or env.truncated):
            *_, info = env.step(env.expert_action())
        assert info["won"], info
    assert largest == (10 if faces_as_10 else 13)


def test_expert_goes_on_from_where_others_left():
    env = make(POINTS24)
    press(env, ["nonsense", "(", "5", "+"], cards=["H5", "D7", "S8", "C4"])
    while not env.terminated:
        *_, info = env.step(env.expert_action())
    assert info["won"]
    press(env, ["5", ")"], cards=["H5", "D7", "S8", "C4"])
    assert env.expert_action() == "="  # hopeless
    press(env, ["no"] * 16, cards=HARD_24)
    assert env.expert_action() == "="  # nine entries do not fit any more
    press(env, [], cards=["HA", "DA", "SA", "CA"])
    assert env.expert_action() == "="  # no solution
    continued = plan(("3", "*", "("), (1, 3, 3, 10), 24, "+-*/")
    assert continued is not None
    assert continued[:3] == ("3", "*", "(")
    assert evaluate(continued) == 24


@pytest.mark.parametrize("env_id", [NUMBER_LINE, EZ_POINTS, POINTS24])
def test_experts_win_all_test_tasks(env_id):
    result = agent_envs.evaluate(ExpertPolicy(), env_id, split="test", num_envs=50)
    assert len(result.episodes) == TEST_TASKS
    assert result.success_rate == 1.0


def test_blackjack_expert_beats_random_play():
    rates = [
        agent_envs.evaluate(policy, BLACKJACK, split="test", num_envs=50).success_rate
        for policy in (ExpertPolicy(), RandomPolicy(1))
    ]
    assert rates[0] >= 0.40 > 0.36 > rates[1]


# -- pictures ----------------------------------------------------------------------------------


def pictures(env_id: str, size: int = PIXELS) -> list[np.ndarray]:
    """Pictures of one episode of an expert with some nonsense."""
    env = make(env_id, obs_mode="image", image_size=size)
    seen = [env.reset(seed=4)[0]]
    for action in ("x", None, "x", *[None] * 30):
        if env.terminated or env.truncated:
            break
        seen.append(env.step(env.expert_action() if action is None else action)[0])
    return seen


def forget_pictures() -> None:
    for function in (drawing.points_picture, drawing.blackjack_picture, drawing.number_line_picture,
                     drawing._card, drawing._table, drawing._font):  # fmt: skip
        function.cache_clear()


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("size", [64, 84, 300])
def test_pictures_are_the_same_bytes_each_time(env_id, size):
    first = pictures(env_id, size)
    for picture in first:
        assert (picture.shape, picture.dtype) == ((size, size, 3), np.uint8)
    forget_pictures()
    assert [p.tobytes() for p in pictures(env_id, size)] == [p.tobytes() for p in first]


def test_pictures_are_the_same_bytes_in_other_processes(run_python):
    code = (
        "import hashlib\n"
        "from tests.test_cards import IDS, pictures\n"
        "joined = b''.join(p.tobytes() for i in IDS for p in pictures(i))\n"
        "print(hashlib.sha256(joined).hexdigest())"
    )
    joined = b"".join(p.tobytes() for i in IDS for p in pictures(i))
    for hash_seed in ("0", "77"):
        done = run_python(code, PYTHONHASHSEED=hash_seed)
        assert done.stdout.strip() == hashlib.sha256(joined).hexdigest(), done.stderr


@pytest.mark.parametrize("env_id", POINTS)
def test_pictures_differ_where_states_differ(env_id):
    """Every step of the points games changes the picture, a refused entry too."""
    seen = pictures(env_id, 300)
    assert len(seen) > 5
    assert all(not np.array_equal(a, b) for a, b in pairwise(seen))


def test_pictures_of_what_runs_together_differ():
    env = make(POINTS24, obs_mode="image")
    ways = (["10"], ["1"], ["1", "x"], ["x", "1"], ["(", "x"], ["(", "x", "x"], ["-"], ["-", "-"])
    images = [press(env, way, cards=["HA", "DT", "S5", "C5"])[0].tobytes() for way in ways]
    images += [
        press(env, [], cards=cards)[0].tobytes()
        for cards in (["DA", "DT", "S5", "C5"], ["HA", "DJ", "S5", "C5"])
    ]
    assert len(set(images)) == len(images)
    line = make(NUMBER_LINE, obs_mode="image")
    images = [
        press(line, [], start=a, target=b)[0].tobytes()
        for a in range(6)
        for b in range(6)
        if a != b
    ]
    assert len(set(images)) == 30


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("obs_mode", ["image", "both"])
def test_gymnasiums_checker_passes_on_pictures(env_id, obs_mode):
    check_env(make(env_id, obs_mode=obs_mode, render_mode="rgb_array"))


def test_observations_are_the_users_own_and_the_cache_is_read_only():
    env = make(NUMBER_LINE, obs_mode="image")
    observation, _ = env.reset(seed=0)
    kept = observation.copy()
    observation[:] = 0
    assert np.array_equal(env.reset(seed=0)[0], kept)
    cached = drawing.number_line_picture(300, 1, 2, 5)
    with pytest.raises(ValueError, match="read-only"):
        cached[:] = 0


@pytest.mark.parametrize("env_id", IDS)
def test_render(env_id):
    env = make(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (300, 300, 3)
    env = make(env_id, render_mode="ansi")
    assert env.reset(seed=0)[0] == env.render()


def test_without_pillow_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.partition(".")[0] == "PIL":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    forget_pictures()
    monkeypatch.setattr(builtins, "__import__", refuse)
    for env_id in IDS:
        with pytest.raises(MissingExtra, match=r"agent-envs\[vision\]"):
            make(env_id, obs_mode="image")
        env = make(env_id, render_mode="rgb_array")
        env.reset(seed=0)  # text needs no Pillow
        env.step("x")
        with pytest.raises(MissingExtra, match=r"agent-envs\[vision\]"):
            env.render()


def test_infos_are_plain_data_of_constant_types():
    for env_id in IDS:
        env = make(env_id)
        kinds: dict = {}
        for seed in range(20):
            infos = [env.reset(seed=seed)[1]]
            while not (env.terminated or env.truncated):
                infos.append(env.step(env.expert_action())[4])
            for info in infos:
                json.dumps(info)
                for key, value in info.items():
                    kinds.setdefault(key, set()).add(type(value))
        assert all(len(found) == 1 for found in kinds.values()), kinds
