"""Sokoban: recordings, rules, generator, solver, levels, batch, pictures."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_envs
from agent_envs.agent import AgentGroup, ExpertPolicy
from agent_envs.core import DataError, OptionError, StateError
from agent_envs.envs.sokoban import Room, RoomError, generate, solve
from agent_envs.envs.sokoban import env as rules
from agent_envs.envs.sokoban.generator import split_of
from agent_envs.envs.sokoban.levels import level_text, parse_level, read_levels
from agent_envs.envs.sokoban.room import DIRECTIONS, cells, move, room_from_codes
from agent_envs.envs.sokoban.solver import (
    difficulty,
    expand,
    is_deadlocked,
    solve_moves,
    solve_pushes,
)
from agent_envs.group import Process
from tests.conftest import load_json, shared

SOKOBAN = "AgentEnv/Sokoban-v0"
SIZES = [(6, 1), (6, 2), (8, 3), (10, 4)]
LIMITS = {1: 30, 2: 30, 3: 80, 4: 120}


def make(**options):
    return gymnasium.make(SOKOBAN, **options).unwrapped


def rooms(side: int, boxes: int, count: int, split: str = "train") -> list[Room]:
    return [generate(side, side, boxes, split, i, LIMITS[boxes]) for i in range(count)]


# -- recordings ---------------------------------------------------------------------------------------


def test_recordings_replay_equal():
    """34 episodes of gym-sokoban's rules (no-ops are not counted there: count_noops=False)."""
    content = load_json(shared("golden/sokoban/episodes.json"))
    names = ("still", *DIRECTIONS)
    steps = 0
    for episode in content["episodes"]:
        options = {
            "dim_room": tuple(episode["dim"]),
            "num_boxes": episode["num_boxes"],
            "max_steps": episode["max_steps"],
            "count_noops": False,
        }
        start = {"room": {"fixed": episode["fixed"], "state": episode["state"]}}
        env = make(**options)
        group = agent_envs.make_group(SOKOBAN, 1, 1, **options)
        env.reset(options=start)
        group.reset(options=start)
        for step in episode["steps"]:
            action = names[step["a"]]
            observation, reward, terminated, truncated, info = env.step(action)
            assert reward == pytest.approx(step["r"], abs=1e-9)
            assert (terminated, truncated) == (step["done"], False)
            assert info["won"] == step["won"]
            assert info["room_state"] == step["state"]
            seen, rewards, ended, _, infos = group.step([action])
            assert (seen[0], rewards[0], ended[0]) == (observation, reward, terminated)
            assert infos["room_state"][0] == step["state"]
            steps += 1
    assert (len(content["episodes"]), steps) == (34, 950)


def test_shortest_solutions_agree_with_the_recordings():
    content = load_json(shared("golden/sokoban/episodes.json"))
    compared = 0
    for episode in content["episodes"]:
        if episode["shortest"] is None:
            continue
        room = room_from_codes(episode["fixed"], episode["state"])
        moves = solve_moves(room, room.player, room.boxes, 10**6)
        assert len(moves) == episode["shortest"]
        compared += 1
    assert compared > 10


# -- rules ---------------------------------------------------------------------------------------------

ROOM = parse_level(["#######", "#@$.  #", "#  $ .#", "#     #", "#######"])


def start(room: Room) -> dict:
    fixed = room.codes(room.player, 0)
    fixed[room.player] = 2 if room.targets >> room.player & 1 else 1
    return {
        "room": {"fixed": room.rows(fixed), "state": room.rows(room.codes(room.player, room.boxes))}
    }


def test_rewards_of_boxes_and_the_win():
    env = make(dim_room=(5, 7), num_boxes=2)
    env.reset(options=start(ROOM))
    rewards = [env.step(a)[1] for a in ("right", "right", "left", "left", "down", "right", "right")]
    assert rewards[:2] == pytest.approx([0.9, -1.1])
    env = make(dim_room=(5, 7), num_boxes=1)
    env.reset(options=start(parse_level(["#######", "#@$.  #", "#######", "#######", "#######"])))
    _, reward, terminated, truncated, info = env.step("Right ")
    assert (reward, terminated, truncated) == (pytest.approx(10.9), True, False)
    assert (info["won"], info["score"]) == (True, 1.0)


def test_words_are_matched_whole():
    """F010: never a substring."""
    env = make()
    before, _ = env.reset(seed=1)
    for text in ("From what I gathered, upward is blocked, so: Right", "upward", "ups", "u p", ""):
        observation, reward, *_, info = env.step(text)
        assert observation == before
        assert (reward, info["is_action_valid"]) == (-0.1, False)
    assert info["steps"] == 5


def test_the_limit_holds_after_several_actions():
    """F059: no reward and no step after the end; `still` counts."""
    env = make(max_steps=5)
    env.reset(seed=1)
    flags = [env.step("still")[3] for _ in range(5)]
    assert flags == [False] * 4 + [True]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("up")


@pytest.mark.parametrize(
    ("symbols", "row"),
    [
        ("plain", "# P X O _ _ #"),
        ("seed", " # \t P \t X \t O \t _ \t _ \t # \t"),
        ("list", "# P X O _ _ #"),
        ("xsb", "#@$.  #"),
    ],
)
def test_symbol_sets(symbols: str, row: str):
    env = make(dim_room=(5, 7), num_boxes=2, symbols=symbols)
    observation, _ = env.reset(options=start(ROOM))
    assert observation.split("\n")[1] == row
    group = agent_envs.make_group(SOKOBAN, 1, 1, dim_room=(5, 7), num_boxes=2, symbols=symbols)
    assert group.reset(options=start(ROOM))[0][0] == observation
    env.step("right")
    boxed = {"plain": "*", "xsb": "*"}.get(symbols, "\u221a")
    assert boxed in env.step("still")[0]


@settings(max_examples=200, deadline=None)
@given(
    actions=st.lists(st.sampled_from([*DIRECTIONS, "still", "x", " Up\n"]), max_size=40),
    seed=st.integers(0, 50),
)
def test_batch_and_single_steps_are_equal(actions: list[str], seed: int):
    options = {"num_boxes": 2, "max_steps": 25}
    group = agent_envs.make_group(SOKOBAN, 1, 2, **options)
    group.reset(seed=[seed])
    env = make(**options)
    env.reset(seed=seed)
    for action in actions:
        if env.terminated or env.truncated:
            break
        observation, reward, terminated, truncated, info = env.step(action)
        seen, rewards, ends, cuts, infos = group.step([action, None])
        assert (seen[0], rewards[0], ends[0], cuts[0]) == (
            observation,
            reward,
            terminated,
            truncated,
        )
        assert {k: v[0] for k, v in infos.items() if not k.startswith("_")} == info
        assert group.get_states()[0] == env.get_state()


def test_batches_are_used_where_they_can_be():
    assert agent_envs.make_group(SOKOBAN, 1, 2).backend.batch is not None
    for options in ({"obs_mode": "image"}, {"deadlock_info": True}):
        assert agent_envs.make_group(SOKOBAN, 1, 2, **options).backend.batch is None


def test_backends_agree_with_experts_and_states():
    histories = []
    for backend in ("inline", Process(2)):
        agent = AgentGroup(agent_envs.make_group(SOKOBAN, 2, 2, backend=backend, num_boxes=2))
        columns = agent.rollout(ExpertPolicy(), seed=4).columns()
        histories.append({k: v.tolist() for k, v in columns.items()})
        agent.close()
    assert histories[0] == histories[1]
    assert all(histories[0]["won"][-1:])


# -- the generator ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "boxes"), SIZES)
def test_rooms_are_solvable_and_not_solved(side: int, boxes: int):
    """F054: no exception, bounded tries, each solved; no box starts on a target."""
    pushes = []
    for room in rooms(side, boxes, 60):
        assert not room.boxes & room.targets
        assert room.boxes.bit_count() == room.targets.bit_count() == boxes
        assert not room.boxes >> room.player & 1
        assert split_of(room) == "train"
        solution = solve(room, room.player, room.boxes)
        assert solution is not None
        player, at = room.player, room.boxes
        for direction in solution.moves:
            player, at = move(room, player, at, direction)
        assert at == room.targets
        pushes.append(solution.pushes)
    median = sorted(pushes)[30]
    assert median >= {1: 3, 2: 3, 3: 7, 4: 10}[boxes]


def test_splits_share_no_floor_plan():
    plans = {
        split: {(r.walls, r.targets) for r in rooms(6, 1, 400, split)}
        for split in ("train", "val", "test")
    }
    assert not plans["train"] & plans["test"]
    assert not plans["train"] & plans["val"]
    assert not plans["test"] & plans["val"]
    assert make().tasks.count("test") == 1000
    assert make().tasks.count("train") is None


def test_rooms_come_from_their_seed_alone():
    """F057: global generators, threads and order play no part."""
    expected = [generate.__wrapped__(6, 6, 2, "train", i, 30) for i in range(8)]
    random.seed(0)
    np.random.seed(0)
    state, numpy_state = random.getstate(), np.random.get_state()[1].tolist()
    found: dict[int, Room] = {}
    threads = [
        threading.Thread(
            target=lambda i=i: found.__setitem__(i, generate.__wrapped__(6, 6, 2, "train", i, 30))
        )
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(8)] == expected
    assert random.getstate() == state
    assert np.random.get_state()[1].tolist() == numpy_state


def test_a_group_generates_its_room_once(monkeypatch):
    calls = []
    original = rules.generate

    def counting(*args):
        calls.append(args)
        return original(*args)

    monkeypatch.setattr(rules, "generate", counting)
    group = agent_envs.make_group(SOKOBAN, 3, 8, dim_room=(7, 9))
    group.reset(seed=123)
    assert len(calls) == 3


def test_known_solutions_fit_the_limit():
    """Every generated room of a named size can be won within the default limit."""
    for side, boxes, count in ((6, 1, 100), (6, 2, 100), (8, 3, 20), (10, 4, 20)):
        for room in rooms(side, boxes, count):
            pushes = solve_pushes(room, room.player, room.boxes, weight=2, node_limit=10**5)
            moves = expand(room, room.player, room.boxes, pushes)
            if boxes <= 2:
                moves = solve_moves(room, room.player, room.boxes)
            # the known solution is the generator's own; the solver's is rarely longer
            assert len(moves) <= LIMITS[boxes] + 10


@pytest.mark.parametrize(
    ("side", "boxes"), [(5, 1), (5, 2), (6, 4), (10, 16), (12, 25), (20, 20), (20, 81), (64, 3)]
)
def test_crowded_and_odd_sizes_are_dealt_within_bounds(side: int, boxes: int):
    """F055: bounded by counts of states and plans; what is dealt is solvable and not solved."""
    import time

    begin = time.process_time()
    room = generate.__wrapped__(side, side, boxes, "train", 0, rules.default_max_steps(boxes))
    assert time.process_time() - begin < 60
    assert room.boxes.bit_count() == room.targets.bit_count() == boxes
    assert room.boxes != room.targets
    assert not room.boxes >> room.player & 1


def test_the_limit_does_not_change_the_rooms():
    """An id names one room, whatever max_steps is; states cross over only where it is the same."""
    short, long = make(max_steps=3, num_boxes=2), make(max_steps=None, num_boxes=2)
    for seed in range(20):
        assert short.reset(seed=seed)[0] == long.reset(seed=seed)[0]
    state = short.get_state()
    assert long.set_state(state)[0] == short.reset(seed=19)[0]


STARRED = {
    "room": {
        "fixed": [
            [0] * 6,
            [0, 1, 1, 2, 1, 0],
            [0, 1, 1, 1, 1, 0],
            [0, 1, 2, 1, 1, 0],
            [0, 1, 1, 1, 1, 0],
            [0] * 6,
        ],
        "state": [
            [0] * 6,
            [0, 5, 4, 2, 1, 0],
            [0, 1, 1, 1, 1, 0],
            [0, 1, 3, 1, 1, 0],
            [0, 1, 1, 1, 1, 0],
            [0] * 6,
        ],
    }
}


def test_a_box_that_starts_on_its_target():
    """The score counts it from the start, the reward as in the original from the first step."""
    env = make(num_boxes=2)
    _, info = env.reset(options=STARRED)
    assert info["score"] == 0.5
    assert env.step("still")[1] == -0.1
    for backend in ("inline", Process(1)):
        group = agent_envs.make_group(SOKOBAN, 1, 1, num_boxes=2, backend=backend)
        env.reset(options=STARRED)
        _, infos = group.reset(options=STARRED)
        assert infos["score"][0] == 0.5
        for action in ("still", "down", "up", "right"):
            observation, reward, *_, info = env.step(action)
            seen, rewards, *_, infos = group.step([action])
            assert (seen[0], rewards[0], infos["score"][0]) == (observation, reward, info["score"])
        group.close()


def test_a_group_that_cannot_start_shows_nothing_of_its_past():
    bad = {"room": {"fixed": [[0]], "state": [[0]]}}
    seen = []
    for backend in ("inline", Process(1)):
        group = agent_envs.make_group(SOKOBAN, 2, 1, backend=backend)
        mask = np.array([True, False])
        _, infos = group.reset(seed=1, options={"reset_mask": mask})
        before = {k: v.tolist() for k, v in infos.items()}
        group.reset(seed=1)
        group.step(["up", "down"])
        observations, infos = group.reset(options={**bad, "reset_mask": mask})
        assert observations[0] == ""
        assert infos["steps"].tolist() == [0, 1]
        assert "exactly one player" in infos["error"][0] or "rows" in infos["error"][0]
        after = {k: v.tolist() for k, v in infos.items()}
        seen.append((before, observations, after, group.expert_actions()))
        group.close()
    assert seen[0] == seen[1]


def test_callers_may_change_their_lists_afterwards():
    given = start(generate(6, 6, 1, "train", 0, 30))
    env, other = make(), make()
    observation, _ = env.reset(options=given)
    state = env.get_state()
    given["room"]["fixed"][2][2] = given["room"]["state"][2][2] = 0
    assert env.get_state() == state
    assert other.set_state(state)[0] == observation


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim_room": (4, 6)}, "height must be an integer of at least 5"),
        ({"dim_room": (6, -1)}, "width must be a positive integer"),
        ({"dim_room": 6}, "dim_room must be"),
        ({"dim_room": (100, 6)}, "at most 64x64"),
        ({"num_boxes": 0}, "num_boxes must be a positive"),
        ({"num_boxes": 5}, "at most 4 boxes"),
        ({"difficulty": "x"}, "valid: easy"),
        ({"difficulty": "easy", "num_boxes": 1}, "either difficulty"),
        ({"symbols": "x"}, "valid: plain"),
        ({"obs_mode": "x"}, "valid: text, image, both"),
        ({"tile_size": 1}, "tile_size"),
        ({"levels": "/no/such"}, "nothing at"),
        ({"deadlock_info": "yes"}, "must be True or False"),
        ({"reward_scale": "a"}, "must be a finite number"),
    ],
)
def test_wrong_options(options: dict, message: str):
    with pytest.raises(OptionError, match=message):
        make(**options)


def test_explicit_rooms_are_checked():
    env = make()
    good = start(generate(6, 6, 1, "train", 0, 30))
    env.reset(options=good)
    env.step(env.expert_action())
    other = make()
    other.set_state(env.get_state())
    assert other.step("up") == env.step("up")
    fixed, state = good["room"]["fixed"], good["room"]["state"]
    for wrong, message in (
        ({"room": 5}, "room needs"),
        ({"room": {"fixed": fixed}}, "room needs"),
        ({"room": {"fixed": fixed, "state": state[:-1]}}, "same shape"),
        ({"room": {"fixed": fixed, "state": [[9] * 6] * 6}}, "codes are"),
        ({"room": {"fixed": fixed, "state": fixed}}, "exactly one player"),
        (start(ROOM), "one size"),
        ({"room": {"fixed": [["a"]], "state": [["a"]]}}, "whole numbers"),
        ({"room": {"fixed": fixed, "state": [[float("nan")] * 6] * 6}}, "whole numbers"),
    ):
        with pytest.raises(OptionError, match=message):
            env.reset(options=wrong)
    as_arrays = {"room": {key: np.array(rows) for key, rows in good["room"].items()}}
    assert env.reset(options=as_arrays)[0] == make().reset(options=good)[0]
    assert env.get_state()


def test_states_that_do_not_fit_are_refused():
    env = make()
    env.reset(seed=1)
    small = make(num_boxes=2)
    small.reset(seed=1)
    with pytest.raises(StateError):
        env.set_state(small.get_state())


# -- the solver ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boxes", [1, 2])
def test_push_search_is_optimal(boxes: int):
    """Against breadth-first search over single moves: no fewer pushes exist."""
    for room in rooms(6, boxes, 40):
        pushes = solve_pushes(room, room.player, room.boxes)
        assert len(pushes) == brute_pushes(room)
        assert difficulty(room) == len(pushes)
        player, at = room.player, room.boxes
        for direction in expand(room, player, at, pushes):
            player, at = move(room, player, at, direction)
        assert at == room.targets


def brute_pushes(room: Room) -> int:
    """Fewest pushes by 0-1 breadth-first search over moves."""
    from collections import deque

    best = {(room.player, room.boxes): 0}
    queue = deque(best)
    while queue:
        state = queue.popleft()
        if state[1] == room.targets:
            return best[state]
        for direction in range(4):
            child = move(room, *state, direction)
            cost = best[state] + (child[1] != state[1])
            if cost < best.get(child, 10**9):
                best[child] = cost
                (queue.append if cost > best[state] else queue.appendleft)(child)
    raise AssertionError("unsolvable")


def test_deadlocks_are_sound():
    """A position called lost really is, by exhaustive search; and corners are recognised."""
    lost = checked = 0
    for room in rooms(6, 2, 30):
        draw = random.Random(room.player)
        player, at = room.player, room.boxes
        for _ in range(40):
            player, at = move(room, player, at, draw.randrange(4))
            if is_deadlocked(room, at):
                assert solve_moves(room, player, at, 10**6) is None or at == room.targets
                lost += 1
                break
            checked += 1
    assert lost > 5
    assert checked > 100
    corner = parse_level(["#####", "#$ .#", "# @ #", "#####"])
    assert is_deadlocked(corner, corner.boxes)
    env = make(deadlock_info=True)
    _, info = env.reset(seed=1)
    assert info["deadlock"] is False


def test_the_expert_solves_test_rooms_and_gives_up_on_lost_ones():
    for env_id, least in (
        ("AgentEnv/Sokoban-6x6-1box-v0", 40), ("AgentEnv/Sokoban-6x6-2box-v0", 40),
        ("AgentEnv/Sokoban-8x8-3box-v0", 38), ("AgentEnv/Sokoban-10x10-4box-v0", 38),
    ):  # fmt: skip
        result = agent_envs.evaluate(ExpertPolicy(), env_id, split="test", episodes=40)
        assert sum(e.won for e in result.episodes) >= least
    env = make(dim_room=(5, 5))
    env.reset(options=start(parse_level(["#####", "#$ .#", "# @ #", "#   #", "#####"])))
    assert env.expert_action() == "still"


# -- level files ----------------------------------------------------------------------------------------------

BOXOBAN = "; 0\n#####\n#@$.#\n#####\n\n; 1\n#####\n#.$@#\n#####\n"


def test_level_files_play(tmp_path: Path):
    path = tmp_path / "levels.txt"
    path.write_text(BOXOBAN)
    env = make(levels=path)
    assert env.tasks.count("train") == 2
    ids = [env.reset(options={"task_index": i})[1]["task_id"] for i in range(2)]
    assert ids == ["levels.txt#0", "levels.txt#1"]
    assert env.step("left")[4]["won"]
    group = agent_envs.make_group(SOKOBAN, 2, 1, levels=str(tmp_path))
    assert group.reset(options={"task_index": [0, 1]})[0][0].startswith("# # # # #\n# P X O #")
    other = make(levels=path)
    env.reset(options={"task_index": 0})
    other.set_state(env.get_state())
    assert other.step("right")[4]["won"]
    with pytest.raises(StateError):
        make().set_state(env.get_state())


def test_levels_bring_their_own_size_and_limit(tmp_path: Path):
    path = tmp_path / "mixed.txt"
    large = rooms(10, 4, 3)
    path.write_text("\n\n".join(map(level_text, large)) + "\n\n" + BOXOBAN)
    env = make(levels=path)
    assert env.max_steps == 120
    for obs_mode in ("image", "both"):
        env = make(data_dir=path, obs_mode=obs_mode, tile_size=8)
        for index in range(5):
            observation, _ = env.reset(options={"task_index": index})
            assert env.observation_space.contains(observation)
            assert env.observation_space.contains(env.step("left")[0])
    agent = AgentGroup(agent_envs.make_group(SOKOBAN, 3, 1, levels=path))
    rollout = agent.rollout(ExpertPolicy(), options={"task_index": [0, 1, 2]})
    assert sum(s.terminated for s in rollout.steps) == 3


def test_levels_refuse_options_that_shape_rooms(tmp_path: Path):
    path = tmp_path / "levels.txt"
    path.write_text(BOXOBAN)
    for options in (
        {"dim_room": (6, 6)}, {"num_boxes": 1}, {"difficulty": "easy"}, {"data_dir": path},
    ):  # fmt: skip
        with pytest.raises(OptionError, match=r"leave it out|one of them"):
            make(levels=path, **options)
    with pytest.raises(OptionError, match="nothing at"):
        make(levels="")
    make(levels=path)
    path.write_text(BOXOBAN + BOXOBAN)  # a changed file is read again
    env = make(levels=path)
    assert env.tasks.count("train") == 4
    assert len({env.tasks.task_id("train", i) for i in range(4)}) == 4


def test_odd_level_files(tmp_path: Path):
    path = tmp_path / "odd.txt"
    path.write_bytes(b"\xef\xbb\xbf" + b"#####\r\n#@$.#\r\n#####\r\n")
    assert make(levels=path).tasks.count("train") == 1
    path.write_text("\t#####\n\t#@$.#\n\t#####\n")
    assert make(levels=path).tasks.count("train") == 1
    path.write_text("#####\n#x$.#\n#####\n#####\n")
    path.write_text("#####\n#@$.#\n#x  #\n#####\n")
    with pytest.raises(DataError, match=r"odd.txt, level 0, line 3: \['x'\] is no symbol"):
        make(levels=path)
    path.write_text(" $ . ####\n     #@ #\n     ####\n")
    with pytest.raises(DataError, match="walled off"):
        make(levels=path)


def test_level_texts_round_trip():
    for side, boxes in SIZES:
        for room in rooms(side, boxes, 10):
            assert parse_level(level_text(room).split("\n")) == room


@pytest.mark.parametrize(
    ("level", "message"),
    [
        ("#####\n#@$ #\n#####", "1 boxes, 0 targets"),
        ("#####\n# $.#\n#####", "exactly one player, found 0"),
        ("#####\n#@@$.#\n#####", "exactly one player, found 2"),
        ("#####\n#@$. \n#####", "the wall is open at row 1, column 4"),
        ("#####\n#@ .#\n#####", "0 boxes"),
    ],
)
def test_bad_levels_name_file_level_and_line(tmp_path: Path, level: str, message: str):
    path = tmp_path / "bad.xsb"
    path.write_text("; good\n#####\n#@$.#\n#####\n\n; odd one\n" + level + "\n")
    with pytest.raises(DataError, match=message) as error:
        list(read_levels(path))
    assert "bad.xsb, level odd one, line 7" in str(error.value)
    with pytest.raises(RoomError):
        parse_level(level.split("\n"))


def test_files_without_levels(tmp_path: Path):
    (tmp_path / "x.txt").write_text("nothing here\n")
    (tmp_path / "binary.xsb").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="no Sokoban levels"):
        make(levels=tmp_path / "x.txt")
    with pytest.raises(DataError, match="cannot read"):
        make(levels=tmp_path / "binary.xsb")


# -- pictures ----------------------------------------------------------------------------------------------------


def test_pictures_follow_the_state(run_python):
    env = make(obs_mode="both", tile_size=16)
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert observation["image"].shape == (96, 96, 3)
    first = observation["image"].copy()
    seen = {first.tobytes()}
    for action in ("left", "up", "right", "right"):
        observation = env.step(action)[0]
        fresh = make(obs_mode="image", tile_size=16)
        fresh.reset(seed=1)
        fresh.set_state(env.get_state())
        assert (fresh._picture() == observation["image"]).all()
        seen.add(observation["image"].tobytes())
    assert len(seen) >= 3
    assert (first == make(obs_mode="image", tile_size=16).reset(seed=1)[0]).all()
    kept = observation["image"]
    kept[:] = 0  # it is the user's own
    assert env.step("still")[0]["image"].any()
    code = (
        "import gymnasium, hashlib; e = gymnasium.make('agent_envs:AgentEnv/Sokoban-v0', obs_mode='image');"
        "print(hashlib.sha256(e.reset(seed=3)[0].tobytes()).hexdigest())"
    )
    assert len({run_python(code, PYTHONHASHSEED=str(i)).stdout for i in range(2)}) == 1


def test_tiles_differ_in_brightness_too():
    """Colour-blind safe: any two tiles differ in a grey picture."""
    from agent_envs.envs.sokoban.drawing import tiles

    grey = tiles(32).astype(float).mean(axis=3)
    for a in range(7):
        for b in range(a):
            assert np.abs(grey[a] - grey[b]).mean() > 4, (a, b)


def test_groups_of_pictures():
    group = agent_envs.make_group(SOKOBAN, 2, 2, obs_mode="image", tile_size=8)
    observations, _ = group.reset(seed=3)
    assert group.observation_space.contains(observations)
    assert (observations[0] == observations[1]).all()
    blank, *_ = agent_envs.make_group(SOKOBAN, 1, 1, obs_mode="both", tile_size=8).step([None])
    assert blank[0]["image"].shape == (48, 48, 3)


def test_rendering():
    env = make(render_mode="rgb_array")
    env.reset(seed=1)
    assert env.render().shape == (192, 192, 3)
    env = make(render_mode="ansi")
    assert env.reset(seed=1)[0] == env.render()


def test_without_pillow_the_error_names_the_extra(run_python):
    code = (
        "import sys; sys.modules['PIL'] = None; import gymnasium\n"
        "gymnasium.make('agent_envs:AgentEnv/Sokoban-v0').reset(seed=1)\n"
        "try: gymnasium.make('agent_envs:AgentEnv/Sokoban-v0', obs_mode='image')\n"
        "except ImportError as error: print(error)"
    )
    assert "pip install 'agent-envs[vision]'" in run_python(code).stdout


def test_cells_lists_lowest_first():
    assert list(cells(0b1010010)) == [1, 4, 6]
