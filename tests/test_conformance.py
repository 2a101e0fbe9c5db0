"""What every registered environment must do, whatever it is."""

from __future__ import annotations

import importlib
import os
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_envs
from agent_envs.agent import AgentGroup, ExpertPolicy, RandomPolicy
from agent_envs.core import INFO_KEYS, AgentEnv, OptionError, StateError, VisualEnv
from agent_envs.registration import BUILT_IN, env_class


def own_modules() -> dict[str, str]:
    """Further environments to test: ``AGENT_ENVS_CONFORMANCE="module:ID module:ID"``."""
    found = {}
    for name in os.environ.get("AGENT_ENVS_CONFORMANCE", "").split():
        module, _, env_id = name.rpartition(":")
        importlib.import_module(module)
        found[env_id] = module
    return found


OWN = own_modules()
IDS = (*BUILT_IN, *OWN)


def make(env_id: str, **options) -> AgentEnv:
    return gymnasium.make(env_id, **options).unwrapped


def pick(env: AgentEnv, info: dict, turn: int) -> str:
    actions = info["admissible_actions"]
    return actions[(turn * 7) % len(actions)] if actions else f"action {turn}"


def play(env: AgentEnv, seed: int, steps: int = 30) -> list:
    """Everything seen in an episode of scripted actions."""
    observation, info = env.reset(seed=seed)
    seen = [(observation, dict(info))]
    for turn in range(steps):
        if env.terminated or env.truncated:
            break
        observation, reward, terminated, truncated, info = env.step(pick(env, info, turn))
        seen.append((observation, reward, terminated, truncated, dict(info)))
    return seen


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasiums_checker_passes_without_silenced_warnings(env_id: str):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(env_id))


@pytest.mark.parametrize("obs_mode", ["image", "both"])
@pytest.mark.parametrize("env_id", [i for i in IDS if issubclass(env_class(i), VisualEnv)])
def test_pictures_pass_the_checker_and_round_trip(env_id: str, obs_mode: str):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(env_id, obs_mode=obs_mode))
    env, other = make(env_id, obs_mode=obs_mode), make(env_id, obs_mode=obs_mode)
    text = make(env_id)
    _, info = env.reset(seed=5)
    text.reset(seed=5)
    for turn in range(6):
        if env.terminated or env.truncated:
            break
        action = pick(env, info, turn)
        observation, *rest, info = env.step(action)
        assert env.observation_space.contains(observation)
        again, _ = other.set_state(env.get_state())
        assert pickle.dumps(again) == pickle.dumps(observation)
        seen, *same, plain = text.step(action)
        assert same == rest
        assert {**plain, "anchor": 0} == {**info, "anchor": 0}
        if obs_mode == "both":
            assert observation["text"] == seen
        elif obs_mode == "image":
            observation[:] = 0  # what is handed out is the user's own
    group = agent_envs.make_group(env_id, 2, 2, obs_mode=obs_mode)
    observations, _ = group.reset(seed=1)
    assert group.observation_space.contains(observations)
    assert pickle.dumps(observations[0]) == pickle.dumps(observations[1])
    shown = observations[0] if obs_mode == "image" else observations[0]["image"]
    with pytest.raises(ValueError, match="read-only"):  # idle replicas show it again
        shown[:] = 0
    agent = AgentGroup(group)
    prompt = agent.reset(seed=1)[0]
    assert len(prompt.images) == 1
    agent.close()


@pytest.mark.parametrize("env_id", IDS)
def test_make_works_without_an_import_before_it(env_id: str, run_python):
    name = f"{OWN.get(env_id, 'agent_envs')}:{env_id}"
    code = f"import gymnasium; print(gymnasium.make('{name}').reset(seed=1)[1]['task'])"
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == make(env_id).reset(seed=1)[1]["task"]


@pytest.mark.parametrize("env_id", IDS)
def test_same_seed_same_bytes_in_any_process_and_hash_seed(env_id: str, run_python):
    code = (
        "import hashlib, sys\n"
        "from tests.test_conformance import make, play\n"
        "env = make(sys.argv[1])\n"
        "seen = repr([play(env, seed) for seed in (0, 1, 2**40)])\n"
        "print(hashlib.sha256(seen.encode()).hexdigest())"
    )
    digests = {run_python(code, env_id, PYTHONHASHSEED=str(seed)).stdout for seed in (0, 1, 77)}
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64


@pytest.mark.parametrize("env_id", IDS)
def test_global_generators_play_no_part(env_id: str):
    import random

    env = make(env_id)
    first = play(env, 5)
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    assert play(make(env_id), 5) == first
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@pytest.mark.parametrize("env_id", IDS)
def test_seeds_mean_tasks(env_id: str):
    """F077: one seed, one start; F028: reset() goes on; F086: and the tasks vary."""
    env = make(env_id)
    starts = {repr(env.reset(seed=1234)) for _ in range(6)}
    assert len(starts) == 1
    assert len({repr(env.reset(seed=seed)) for seed in range(6)}) > 1
    env.reset(seed=1)
    following = [env.reset()[1]["task_id"] for _ in range(8)]
    env.reset(seed=1)
    assert [env.reset()[1]["task_id"] for _ in range(8)] == following
    assert len(set(following)) > 1


@pytest.mark.parametrize("env_id", IDS)
def test_task_index_names_a_task(env_id: str):
    env = make(env_id)
    ids = [env.reset(options={"task_index": i})[1]["task_id"] for i in range(5)]
    assert ids == [env.tasks.task_id(env.split, i) for i in range(5)]
    assert len(set(ids)) == 5
    for wrong in (-1, 1.5, "x", True):
        with pytest.raises(OptionError, match="task_index"):
            env.reset(options={"task_index": wrong})
    with pytest.raises(OptionError, match="valid: task_index"):
        env.reset(options={"no_such": 1})


@pytest.mark.parametrize("env_id", IDS)
def test_observations_and_infos_keep_their_types(env_id: str):
    """F081 and the info table, over whole episodes."""
    env = make(env_id)
    for seed in range(3):
        observation, info = env.reset(seed=seed)
        assert isinstance(info["data_source"], str)
        for turn in range(60):
            assert env.observation_space.contains(observation)
            for name, key in INFO_KEYS.items():
                if key.sparse or (name == "admissible_actions" and info[name] is None):
                    continue
                # bool is an int to isinstance, and must not pass for one here
                assert isinstance(info[name], key.type)
                assert isinstance(info[name], bool) == (key.type is bool)
            for value in info.values():
                assert not isinstance(value, dict | np.ndarray)
            assert 0.0 <= info["score"] <= 1.0
            assert info["steps"] == turn
            if env.terminated or env.truncated:
                break
            observation, reward, terminated, truncated, info = env.step(pick(env, info, turn))
            assert type(reward) is float
            assert type(terminated) is bool
            assert type(truncated) is bool


@pytest.mark.parametrize("env_id", IDS)
def test_misuse_is_a_defined_error(env_id: str):
    """F118: before reset and after the end; F059: no reward after the limit."""
    env = make(env_id, max_steps=3)
    with pytest.raises(ResetNeeded):
        env.step("x")
    with pytest.raises(ResetNeeded):
        env.get_state()
    _, info = env.reset(seed=0)
    for wrong in (None, 3, b"x", ["x"]):
        with pytest.raises(ValueError, match="must be a str"):
            env.step(wrong)
    with pytest.raises(ValueError, match="surrogate"):
        env.step("\ud800")
    assert info["steps"] == 0
    for turn in range(3):
        *_, truncated, info = env.step("nonsense")
    assert truncated
    assert info["steps"] == 3
    with pytest.raises(ResetNeeded):
        env.step("x")
    env.close()
    env.close()
    for name, value in (("split", "nope"), ("max_steps", 0), ("render_mode", "nope")):
        with pytest.raises(OptionError):
            type(env)(**{name: value})


@pytest.mark.parametrize("env_id", IDS)
@settings(max_examples=60, deadline=None)
@given(
    text=st.text(max_size=300) | st.sampled_from(["", " " * 9, "{0}", "\x00", "%s", "x" * 100_000])
)
def test_any_text_is_a_valid_step(env_id: str, text: str):
    env = make(env_id)
    env.reset(seed=0)
    observation, reward, terminated, _, info = env.step(text)
    assert env.observation_space.contains(observation)
    if not info["is_action_valid"]:
        assert reward <= 0.0
        assert not terminated


@pytest.mark.parametrize("env_id", IDS)
def test_state_round_trip_equals_continued_play(env_id: str):
    env, other = make(env_id), make(env_id)
    if not env.profile.portable_state:
        pytest.skip("the environment has no portable state")
    for seed in range(4):
        observation, info = env.reset(seed=seed)
        for turn in range(12):
            if env.terminated or env.truncated:
                break
            state = env.get_state()
            assert len(state) < 1500
            again, restored = other.set_state(state)
            assert again == observation
            assert restored.pop("data_source") == env.tasks.source
            assert {k: v for k, v in info.items() if k != "data_source"} == restored
            assert other.get_state() == state
            assert other.expert_action() == env.expert_action()
            action = env.expert_action() if turn % 2 else pick(env, info, turn)
            action = action or pick(env, info, turn)
            observation, *rest, info = env.step(action)
            assert other.step(action) == (observation, *rest, info)
        ended = other.set_state(env.get_state())
        assert ended[0] == observation
        if env.terminated or env.truncated:
            with pytest.raises(ResetNeeded):
                other.step("x")


@pytest.mark.parametrize("env_id", IDS)
def test_corrupt_states_change_nothing(env_id: str):
    env = make(env_id)
    env.reset(seed=0)
    env.step("nonsense")
    state = env.get_state()
    flipped = [bytes([*state[:i], state[i] ^ 0x55, *state[i + 1 :]]) for i in range(len(state))]
    for wrong in (b"", b"x", state[:-1], state[:7], b"\x00" * 50, *flipped):
        with pytest.raises(StateError):
            env.set_state(wrong)
        assert env.get_state() == state
    with pytest.raises(StateError):
        env.set_state("text")


@pytest.mark.parametrize("env_id", IDS)
def test_groups_share_their_start(env_id: str):
    """F079, F086: equal within a group, different between groups, also in the next episode."""
    group = agent_envs.make_group(env_id, 4, 3)
    for seed in (7, None):
        observations, infos = group.reset(seed=seed)
        rows = [repr((o, infos["task_id"][i])) for i, o in enumerate(observations)]
        assert all(len(set(rows[g * 3 : g * 3 + 3])) == 1 for g in range(4))
        assert len(set(rows)) > 1
        single = make(env_id)
        for g, group_seed in enumerate(group.group_seeds):
            assert single.reset(seed=group_seed)[0] == observations[g * 3]
    group.close()


@pytest.mark.parametrize("env_id", IDS)
def test_prompts_parse_back_over_an_episode(env_id: str):
    listed = make(env_id).reset(seed=3)[1]["admissible_actions"]
    agent = AgentGroup(agent_envs.make_group(env_id, 2, 2))
    rollout = agent.rollout(RandomPolicy(3) if listed else ExpertPolicy(), seed=3)
    assert rollout.steps
    assert all(step.format_valid for step in rollout.steps)
    agent.close()


@pytest.mark.parametrize("env_id", IDS)
def test_specs_and_infos_travel(env_id: str):
    spec = gymnasium.spec(env_id)
    assert gymnasium.envs.registration.EnvSpec.from_json(spec.to_json()).id == env_id
    _, info = make(env_id).reset(seed=0)
    assert pickle.loads(pickle.dumps(info)) == info


LEAK = """
import gc, os, sys
from tests.test_conformance import make
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
env = make(sys.argv[1])
for seed in range(300):
    env.reset(seed=seed)
before = resident()
for seed in range(1000):
    env.reset(seed=seed % 300)
print(resident() - before)
"""


@pytest.mark.parametrize("env_id", IDS)
def test_resets_do_not_leak(env_id: str, run_python):
    """F027: 1,000 resets in one process of its own, by its current memory."""
    assert int(run_python(LEAK, env_id).stdout) < 5_000_000  # bytes
