"""The Stable-Baselines3 adapter: SB3's contract, the features, and that PPO learns on it."""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest

import agent_envs
from agent_envs.adapters._choices import AdmissibleActions, FixedActions, find_choices
from agent_envs.adapters._features import (
    HashedText,
    Image,
    LineOneHots,
    RoomPlanes,
    find_features,
    hashed_words,
)
from agent_envs.core.errors import AgentEnvError, OptionError
from agent_envs.registration import env_class
from tests.conftest import ROOT

needs_sb3 = pytest.mark.skipif(
    find_spec("stable_baselines3") is None,
    reason="stable_baselines3 is not installed: pip install 'agent-envs[sb3]'",
)
SOKOBAN, LINE, TOY = "AgentEnv/Sokoban-v0", "AgentEnv/NumberLine-v0", "AgentEnv/ALFWorld-v0"
KINDS = {  # name -> id, options of the environment, arguments of the adapter
    "planes": (SOKOBAN, {}, {}),
    "room image": (SOKOBAN, {"obs_mode": "image", "tile_size": 8}, {}),
    "line": (LINE, {}, {}),
    "line image": (LINE, {"obs_mode": "image", "image_size": 64}, {}),
    "both": (LINE, {"obs_mode": "both", "image_size": 64}, {"observation": "image"}),
    "cards": ("AgentEnv/Blackjack-v0", {}, {"actions": ["hit", "stand"]}),
    "text": (TOY, {"difficulty": "toy", "max_steps": 10}, {"actions": 16}),
    "points": ("AgentEnv/Points24-v0", {}, {"observation": "text", "actions": 12}),
}


def make(kind: str = "planes", num_envs: int = 4, tasks=None, backend="inline", **options):
    from agent_envs.adapters.sb3 import SB3VecEnv

    env_id, own, arguments = KINDS[kind]
    group = agent_envs.make_group(env_id, num_envs, backend=backend, **{**own, **options})
    return SB3VecEnv(group, **arguments, tasks=tasks)


def play(venv, steps: int, seed: int = 0):
    """Everything that a random player sees, as a list of bytes and plain values."""
    draw = np.random.default_rng(seed)
    seen = [venv.reset().tobytes()]
    for _ in range(steps):
        observations, rewards, done, infos = venv.step(
            draw.integers(venv.action_space.n, size=venv.num_envs)
        )
        seen += [observations.tobytes(), rewards.tolist(), done.tolist()]
        seen += [[info["task_id"], info["TimeLimit.truncated"]] for info in infos]
    return seen


# -- features and choices: without SB3 -----------------------------------------------------------


def test_planes_show_walls_targets_boxes_and_player():
    rows = [[0, 0, 0, 0, 0], [0, 2, 1, 1, 0], [0, 5, 4, 3, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]]
    (planes,) = RoomPlanes(5, 5)([""], {"room_state": [rows]})
    codes = np.array(rows)
    assert planes.dtype == np.uint8
    assert RoomPlanes(5, 5).space.contains(planes)
    for plane, shown in zip(planes, ([0], [2, 3], [3, 4], [5]), strict=True):
        assert np.array_equal(plane, np.isin(codes, shown))


def test_planes_show_the_target_below_the_player():
    fixed = [[0] * 5, [0, 2, 1, 1, 0], [0, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0] * 5]
    state = [[0] * 5, [0, 2, 5, 1, 0], [0, 1, 4, 1, 0], [0, 1, 1, 1, 0], [0] * 5]
    env = env_class(SOKOBAN)(dim_room=(5, 5))
    seen, info = env.reset(options={"room": {"fixed": fixed, "state": state}})
    planes = RoomPlanes(5, 5)
    before = planes([seen], {"room_state": [info["room_state"]]})[0]
    seen, *_, info = env.step("left")
    after = planes([seen], {"room_state": [info["room_state"]]})[0]
    assert info["room_state"][1][1] == 5  # where the target is
    assert np.array_equal(before[1], after[1])
    assert after[3, 1, 1] == after[1, 1, 1] == 1


def test_line_shows_position_and_target():
    rows = LineOneHots(5)(["", ""], {"position": [0, 3], "target": [5, 1]})
    assert np.array_equal(rows, np.eye(6, dtype=np.float32)[[[0, 5], [3, 1]]].reshape(2, 12))


def test_words_hash_the_same_in_every_process(run_python):
    code = (
        "from agent_envs.adapters._features import hashed_words as h\n"
        "print(h('Put the APPLE 1 on shelf 2; caf\\u00e9 \\ud800!', 32).tobytes().hex())"
    )
    printed = {run_python(code, PYTHONHASHSEED=str(seed)).stdout.strip() for seed in (0, 1, 77)}
    assert printed == {hashed_words("Put the APPLE 1 on shelf 2; café \ud800!", 32).tobytes().hex()}
    # CRC-32 of "a" is e8b7be43, of "b" 71beeff9: columns 1 and 4, both negative; "a b" is in 1 too
    assert hashed_words("a b", 8) * 5**0.5 == pytest.approx([0, -2, 0, 0, -1, 0, 0, 0])


def test_text_rows_describe_each_offered_action():
    text = HashedText(size=16, num_actions=3, action_size=10, hidden=("help",))
    infos = {
        "task": ["put apple on shelf", "put apple on shelf"],
        "admissible_actions": [["help", "take apple"], ["a", "b", "c", "d"]],
        "history": [[], ["b", "a", "b", "x"]],
    }
    rows = text(["You see an apple.", {"text": "You see an apple."}], infos)
    assert text.space.contains(rows[0])
    assert np.array_equal(rows[0, :32], rows[1, :32])
    actions = rows[:, 32:].reshape(2, 3, 10)
    assert actions[:, :, 0].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert actions[0, 0, 1] == 0.5  # apple, but not take
    assert actions[1, :, 2].tolist() == pytest.approx([1 / 2, 2 / 3, 0])
    assert np.array_equal(actions[0, 0, 3:], hashed_words("take apple", 7))
    assert not actions[0, 1:].any()


def test_choice_beyond_the_list_is_the_counted_no_op():
    choices = AdmissibleActions(4, hidden=("help",))
    infos = {"admissible_actions": [["look", "help", "go"], None]}
    assert choices.texts(np.array([1, 0]), infos) == ["go", ""]
    assert choices.texts(np.array([2, 3]), infos) == ["", ""]
    assert choices.masks(infos).tolist() == [[True, True, False, False], [False] * 4]
    env = env_class(TOY)(difficulty="toy")
    env.reset(seed=0)
    *_, info = env.step(find_choices(4, env).beyond)
    assert info["steps"] == 1
    assert not info["is_action_valid"]


def test_names_find_the_features():
    room = env_class(SOKOBAN)(dim_room=(7, 8))
    assert find_features(None, room, None) == RoomPlanes(7, 8)
    assert find_features("grid", env_class(LINE)(max_position=9), None) == LineOneHots(9)
    assert isinstance(find_features(None, env_class(LINE)(obs_mode="both"), None), Image)
    toy = env_class(TOY)(difficulty="toy")
    assert find_features(None, toy, 16) == HashedText(num_actions=16, hidden=("help",))
    own = LineOneHots(2)
    assert find_features(own, toy, None) is own


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ("image", "obs_mode='image'"),
        ("grid", "room_state; position and target"),
        ("planes", "valid: image, grid, text"),
    ],
)
def test_unknown_or_absent_observations_are_named(observation, message):
    with pytest.raises(OptionError, match=message):
        find_features(observation, env_class(TOY)(difficulty="toy"), 16)


def test_fixed_actions_are_found_or_asked_for():
    assert find_choices(None, env_class(SOKOBAN)()).names == ("up", "down", "left", "right")
    assert find_choices(("a",), env_class(SOKOBAN)()) == FixedActions(("a",))
    with pytest.raises(OptionError, match="change from start to start"):
        find_choices(None, env_class(TOY)(difficulty="toy"))
    for wrong in (0, -1, True, "up", [], [1]):
        with pytest.raises(OptionError, match="actions"):
            find_choices(wrong, env_class(SOKOBAN)())


def test_missing_sb3_names_the_extra(run_python):
    done = run_python(
        "import sys; sys.modules['stable_baselines3'] = None; import agent_envs.adapters.sb3"
    )
    assert "pip install 'agent-envs[sb3]'" in done.stderr


# -- the vector environment ----------------------------------------------------------------------


@needs_sb3
@pytest.mark.parametrize("kind", KINDS)
def test_vec_env_keeps_the_contract(kind):
    venv = make(kind)
    venv.seed(3)
    observations = venv.reset()
    space, n = venv.observation_space, venv.action_space.n
    assert observations.shape == (4, *space.shape)
    assert observations.dtype == space.dtype
    assert all(info["task_id"] for info in venv.reset_infos)
    draw, ends = np.random.default_rng(0), 0
    for _ in range(60):
        observations, rewards, done, infos = venv.step(draw.integers(n, size=4))
        assert observations.shape == (4, *space.shape)
        assert observations.dtype == space.dtype
        assert all(space.contains(row) for row in observations)
        assert rewards.dtype == np.float32
        assert rewards.shape == done.shape == (4,)
        assert done.dtype == bool
        assert isinstance(infos, list)
        for i, info in enumerate(infos):
            assert ("terminal_observation" in info) == done[i]
            assert type(info["TimeLimit.truncated"]) is bool
            if done[i]:
                ends += 1
                assert space.contains(info["terminal_observation"])
                assert info["is_success"] == info["won"]
                assert info["steps"] > 0
                assert venv.reset_infos[i]["steps"] == 0
    assert ends
    venv.close()


@needs_sb3
def test_image_observations_are_the_pictures():
    venv = make("room image", num_envs=2)
    assert venv.observation_space.shape == (48, 48, 3)
    seeds = venv.seed(5)
    for row, seed in zip(venv.reset(), seeds, strict=True):
        env = env_class(SOKOBAN)(obs_mode="image", tile_size=8)
        assert np.array_equal(row, env.reset(seed=seed)[0])


@needs_sb3
def test_a_finished_replica_starts_anew_alone():
    from agent_envs.adapters.sb3 import RoomPlanes as Planes
    from agent_envs.adapters.sb3 import SB3VecEnv

    group = agent_envs.make_group(SOKOBAN, 3, max_steps=30)
    venv = SB3VecEnv(group, Planes(6, 6), ["up", "down", "left", "right", "still"])
    venv.seed(1)
    before = venv.reset()
    names = venv.choices.names
    while True:  # replica 1 plays the expert, the others stand still
        choices = [4, names.index(group.expert_actions([1])[1]), 4]
        observations, rewards, done, infos = venv.step(np.array(choices))
        if done.any():
            break
    assert done.tolist() == [False, True, False]
    assert np.array_equal(observations[[0, 2]], before[[0, 2]])
    final, fresh = infos[1]["terminal_observation"], observations[1]
    assert np.array_equal(final[1], final[2])  # the box is on the target
    assert not np.array_equal(fresh[1], fresh[2])
    assert infos[1]["is_success"]
    assert not infos[1]["TimeLimit.truncated"]
    assert rewards[1] == pytest.approx(10.9)
    assert infos[0]["steps"] == infos[1]["steps"]
    assert venv.group.active.all()
    while not done[0]:
        observations, _, done, infos = venv.step(np.array([4, 4, 4]))
    assert infos[0]["steps"] == 30
    assert infos[0]["TimeLimit.truncated"]
    assert np.array_equal(infos[0]["terminal_observation"], before[0])


@needs_sb3
@pytest.mark.parametrize("kind", ["planes", "line", "text"])
def test_seeds_reproduce_everything(kind):
    venv, twin = make(kind), make(kind)
    venv.seed(7), twin.seed(7)
    first = play(venv, 70)
    assert first == play(twin, 70)
    venv.seed(7)
    assert first == play(venv, 70)
    venv.seed(8)
    assert first != play(venv, 70)


@needs_sb3
def test_worker_processes_give_the_same():
    venv, twin = make(), make(backend=agent_envs.Process(workers=2))
    venv.seed(7), twin.seed(7)
    try:
        assert play(venv, 40) == play(twin, 40)
    finally:
        twin.close()


@needs_sb3
def test_episodes_come_from_the_pool():
    pool = [3, 5, 8]
    venv, twin = make(tasks=pool, max_steps=3), make(tasks=pool, max_steps=3)
    venv.seed(0), twin.seed(0)
    seen = play(venv, 60)
    assert seen == play(twin, 60)
    ids = {item[0] for item in seen if isinstance(item, list) and isinstance(item[0], str)}
    assert {int(name.rpartition("/")[2]) for name in ids} == set(pool)
    with pytest.raises(OptionError, match="empty"):
        make(tasks=[])


@needs_sb3
def test_options_choose_tasks_for_one_reset():
    venv = make(num_envs=2)
    venv.set_options([{"task_index": 4}, {"task_index": 9}])
    venv.reset()
    assert [info["task_id"] for info in venv.reset_infos] == [f"train/6x6-1box/{i}" for i in (4, 9)]
    venv.reset()
    assert venv.reset_infos[0]["task_id"] != "train/6x6-1box/4"
    line = make("line", num_envs=2)
    line.set_options({"start": 1, "target": 4})
    assert np.array_equal(*line.reset())
    line.set_options([{"start": 1, "target": 4}, {"start": 2, "target": 4}])
    with pytest.raises(OptionError, match="'start' must be the same"):
        line.reset()


@needs_sb3
def test_panel_plays_each_task_once():
    from agent_envs.adapters.sb3 import play_tasks

    class Still:
        def predict(self, observation, *, deterministic=True):
            return np.zeros(len(observation), int), None

    infos = play_tasks(Still(), make(num_envs=4, max_steps=3), range(10))
    assert [info["task_id"] for info in infos] == [f"train/6x6-1box/{i}" for i in range(10)]
    assert play_tasks(Still(), make(), []) == []


@needs_sb3
@pytest.mark.parametrize("kind", ["planes", "text"])
def test_a_step_before_reset_is_refused(kind):
    from agent_envs.adapters.sb3 import DiscreteActionEnv

    env_id, options, arguments = KINDS[kind]
    single = DiscreteActionEnv(env_class(env_id)(**options), **arguments)
    for env, action in ((make(kind), np.zeros(4, int)), (single, 0)):
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(action)


@needs_sb3
def test_groups_of_several_are_refused():
    from agent_envs.adapters.sb3 import SB3VecEnv

    with pytest.raises(OptionError, match="num_groups=4, group_size=1"):
        SB3VecEnv(agent_envs.make_group(SOKOBAN, 2, 2))


@needs_sb3
def test_failing_replicas_are_cut_off_or_reported():
    venv = make("line", num_envs=2)
    venv.reset()
    broken = venv.group.backend.shard.envs[1]
    broken._act = None  # fails when called
    _, _, done, infos = venv.step(np.array([0, 0]))
    assert done[1]
    assert infos[1]["TimeLimit.truncated"]
    assert "TypeError" in infos[1]["error"]
    assert "error" not in infos[0]
    venv.step(np.array([0, 0]))  # both play on
    venv.group.backend.shard.envs[0]._start = None
    with pytest.raises(AgentEnvError, match="replica 0 cannot start"):
        venv.reset()


@needs_sb3
def test_monitor_counts_episodes():
    from stable_baselines3.common.vec_env import VecMonitor

    venv = VecMonitor(make(max_steps=5), info_keywords=("won",))
    venv.reset()
    for _ in range(5):
        *_, done, infos = venv.step(np.zeros(4, int))
    for i in np.flatnonzero(done):
        assert infos[i]["episode"]["l"] <= 5
        assert infos[i]["episode"]["won"] is infos[i]["won"]


@needs_sb3
def test_masks_are_there_for_maskable_policies():
    venv = make("text", num_envs=2)
    venv.reset()
    masks = np.stack(venv.env_method("action_masks"))
    counts = [len(info["admissible_actions"]) - 1 for info in venv.reset_infos]  # without help
    assert masks.shape == (2, 16)
    assert masks.sum(axis=1).tolist() == counts
    assert venv.has_attr("action_masks")
    assert not venv.has_attr("no_such_thing")
    assert venv.env_is_wrapped(gymnasium.Wrapper) == [False, False]
    for call in (venv.env_method, venv.set_attr):
        with pytest.raises(AttributeError, match="replicas"):
            call("reset", 1)


# -- single environments -------------------------------------------------------------------------


@needs_sb3
@pytest.mark.parametrize("kind", KINDS)
def test_single_form_passes_check_env_of_sb3(kind):
    from stable_baselines3.common.env_checker import check_env

    from agent_envs.adapters.sb3 import DiscreteActionEnv

    env_id, options, arguments = KINDS[kind]
    env = DiscreteActionEnv(gymnasium.make(env_id, **options), **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if kind == "planes":  # a small grid, which SB3 takes for a picture
            warnings.filterwarnings("ignore", ".*(not in \\[0, 255\\]|minimal resolution)", UserWarning)  # fmt: skip
        check_env(env)
    assert env.action_masks().shape == (env.action_space.n,)


@needs_sb3
def test_single_and_vector_form_see_the_same():
    from agent_envs.adapters.sb3 import DiscreteActionEnv

    venv = make(num_envs=1)
    (seed,) = venv.seed(4)
    env = DiscreteActionEnv(gymnasium.make(SOKOBAN))
    assert np.array_equal(venv.reset()[0], env.reset(seed=seed)[0])
    for choice in (0, 3, 1, 2):
        observations, rewards, *_ = venv.step(np.array([choice]))
        observation, reward, *_ = env.step(choice)
        assert np.array_equal(observations[0], observation)
        assert rewards[0] == np.float32(reward)
    with pytest.raises(OptionError, match="hub"):
        DiscreteActionEnv(gymnasium.make("CartPole-v1"))


# -- learning ------------------------------------------------------------------------------------


def example():
    import importlib.util

    path = ROOT / "examples" / "sb3_ppo.py"
    spec = importlib.util.spec_from_file_location("sb3_ppo", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["sb3_ppo"] = module
    spec.loader.exec_module(module)
    return module


@needs_sb3
def test_ppo_learns_the_number_line():
    ppo = example()
    task = ppo.TASKS["numberline"]
    model, curve = ppo.train(task, 4_000, seed=0)
    assert curve.points[0]["watched"] < 0.9
    assert ppo.success_rate(model, ppo.make(task, "test", 200), 200) >= 0.95


@needs_sb3
def test_policy_never_chooses_what_is_not_there(tmp_path):
    ppo = example()
    from stable_baselines3 import PPO

    model, _ = ppo.train(ppo.TASKS["alfworld-toy"], 2048, seed=0)
    venv = make("text", num_envs=8)
    observations = venv.reset()
    model.save(tmp_path / "model")
    again = PPO.load(tmp_path / "model")
    for _ in range(40):
        choices, _ = model.predict(observations, deterministic=False)
        assert venv.action_masks()[np.arange(8), choices].all()
        best, _ = model.predict(observations, deterministic=True)
        assert np.array_equal(best, again.predict(observations, deterministic=True)[0])
        observations, *_ = venv.step(choices)
