"""ALFWorld without any outside data: rules, generator, expert, data handling."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path

import gymnasium
import pytest

import agent_envs
from agent_envs.agent import ExpertPolicy
from agent_envs.core import DataError, OptionError, StateError
from agent_envs.envs.alfworld import Engine, UnsupportedGame, generate, write_game_file
from agent_envs.envs.alfworld import library as lib
from agent_envs.envs.alfworld.expert import read_task
from agent_envs.envs.alfworld.game import Game
from agent_envs.envs.alfworld.generator import DIFFICULTIES, HELD_OUT, ROOMS, choose, layout
from agent_envs.envs.alfworld.problem import Goal, Problem, parse_goal
from agent_envs.envs.alfworld.tables import SENTENCES, TASK_TYPES, tables

ALFWORLD = "AgentEnv/ALFWorld-v0"

# our own miniature of the format, for tests that need files but have no official ones
GRAMMAR = 'grammar :: """{"task": [{"rhs": "Your task is to: UNKNOWN GOAL."}]}"""; action help {}'


def room(**extra: list[tuple[str, str]]) -> Problem:
    """A cabinet and a drawer that share a place, a fridge, a knife, an apple in both, a lamp."""
    facts: dict[str, list[tuple[str, str]]] = {
        "atlocation": [("agent1", "loc_bar_0")],
        "receptacletype": [
            ("cabinet_bar_1", "cabinettype"), ("countertop_bar_1", "countertoptype"),
            ("fridge_bar_1", "fridgetype"), ("sink_bar_1_bar_sinkbasin", "sinkbasintype"),
        ],
        "receptacleatlocation": [
            ("cabinet_bar_1", "loc_bar_1"), ("countertop_bar_1", "loc_bar_1"),
            ("fridge_bar_1", "loc_bar_2"), ("sink_bar_1_bar_sinkbasin", "loc_bar_3"),
        ],
        "openable": [("cabinet_bar_1", ""), ("fridge_bar_1", "")],
        "objecttype": [
            ("apple_bar_1", "appletype"), ("apple_bar_2", "appletype"), ("knife_bar_1", "knifetype"),
            ("lamp_bar_1", "desklamptype"),
        ],
        "objectatlocation": [
            ("apple_bar_1", "loc_bar_1"), ("apple_bar_2", "loc_bar_2"), ("knife_bar_1", "loc_bar_1"),
            ("lamp_bar_1", "loc_bar_1"),
        ],
        "inreceptacle": [
            ("apple_bar_1", "countertop_bar_1"), ("apple_bar_1", "cabinet_bar_1"),
            ("apple_bar_2", "fridge_bar_1"), ("knife_bar_1", "countertop_bar_1"),
            ("lamp_bar_1", "cabinet_bar_1"),
        ],
        "pickupable": [("apple_bar_1", ""), ("apple_bar_2", ""), ("knife_bar_1", "")],
        "coolable": [("apple_bar_1", ""), ("apple_bar_2", "")],
        "cleanable": [("apple_bar_1", "")],
        "sliceable": [("apple_bar_1", ""), ("apple_bar_2", "")],
        "toggleable": [("lamp_bar_1", "")],
        "cancontain": [
            ("cabinettype", "appletype"), ("countertoptype", "appletype"), ("fridgetype", "appletype"),
            ("countertoptype", "knifetype"),
        ],
    }  # fmt: skip
    facts.update(extra)
    goal = Goal("place", "appletype", "cabinettype", ("coolable", "iscool"))
    return Problem("put a cool apple in cabinet.", facts, goal)


def play(engine: Engine, *commands: str) -> str:
    observation = ""
    for command in commands:
        assert command in engine.admissible, (command, engine.admissible)
        observation = engine.step(command)[0]
    return observation


# -- rules (ALFWORLD_ENGINE.md) --------------------------------------------------------------------


def test_names_are_numbered_from_the_end_and_scenery_counts():
    engine = Engine(Game(room(objecttype=[("apple_bar_1", "appletype"), ("apple_bar_3", "x")])))
    assert engine.game.objects[:3] == ["apple 3", "apple 2", "apple 1"]
    assert "sinkbasin 1" in engine.game.receptacles


def test_colocated_receptacles_need_no_walking():
    engine = Engine(Game(room()))
    play(engine, "go to countertop 1")
    assert "go to cabinet 1" not in engine.admissible
    assert engine.step("go to cabinet 1")[0] == "Nothing happens."
    # in two receptacles at once: taken from one, it is still in the other
    assert play(engine, "open cabinet 1", "take apple 2 from countertop 1") == (
        "You pick up the apple 2 from the countertop 1."
    )
    assert "a apple 2" in play(engine, "examine cabinet 1")


def test_look_lists_what_was_moved_between_colocated_receptacles():
    engine = Engine(Game(room()))
    play(engine, "go to countertop 1", "open cabinet 1", "take apple 2 from countertop 1")
    play(engine, "move apple 2 to cabinet 1")
    assert play(engine, "look") == (
        "You are facing the cabinet 1, and countertop 1. Next to it, you see a apple 2."
    )
    play(engine, "take apple 2 from cabinet 1", "move apple 2 to countertop 1")
    assert "you see a apple 2." in play(engine, "look")  # now it is the cabinet that lacks it


def test_a_lamp_in_a_closed_cabinet_can_be_used():
    engine = Engine(Game(room()))
    assert play(engine, "go to cabinet 1", "use lamp 1") == "You turn on the lamp 1."
    assert play(engine, "use lamp 1") == "You turn on the lamp 1."


def test_slicing_cooling_and_the_words_for_it():
    engine = Engine(Game(room()))
    play(
        engine, "go to countertop 1", "take knife 1 from countertop 1", "slice apple 2 with knife 1"
    )
    play(engine, "move knife 1 to countertop 1", "take apple 2 from countertop 1")
    assert play(engine, "examine apple 2") == "This is a sliced apple 2."
    play(engine, "go to fridge 1", "cool apple 2 with fridge 1")  # may be closed
    assert engine.won  # it is still in the cabinet, too
    assert play(engine, "examine apple 2") == "This is a cool sliced apple 2."
    play(engine, "go to sinkbasin 1", "clean apple 2 with sinkbasin 1")
    assert play(engine, "examine apple 2") == "This is a cool and clean sliced apple 2."


def test_winning_and_the_score_after_it():
    engine = Engine(Game(room()))
    play(engine, "go to fridge 1", "open fridge 1", "take apple 1 from fridge 1")
    play(engine, "cool apple 1 with fridge 1", "go to cabinet 1", "open cabinet 1")
    _, _, score, won = engine.step("move apple 1 to cabinet 1")
    assert (score, won) == (1, True)
    assert (
        play(engine, "take apple 1 from cabinet 1", "examine apple 1") == "This is a cold apple 1."
    )
    assert (engine.score, engine.won) == (0, False)


@pytest.mark.parametrize(
    "text", ["", "LOOK", "go to cabinet 9", "put", "look around", "go to", "😀"]
)
def test_anything_else_changes_nothing(text: str):
    engine = Engine(Game(room()))
    before = engine.difference()
    assert engine.step(text)[0] == "Nothing happens."
    assert engine.difference() == before
    assert engine.step("  look\n")[0].startswith("You are in the middle of a room.")


def test_unsupported_goals_say_so():
    for text in (
        "(:goal (and (issliced ?o)))",
        "(:goal (and (exists (?o - object) (and (objecttype ?o a) (fancy ?o)))))",
        "(:goal (and (istoggled ?o) (objecttype ?o a)))",
        "(:goal (and (objecttype ?o a)))",
    ):
        with pytest.raises(UnsupportedGame, match="unsupported goal"):
            parse_goal(text)
    with pytest.raises(UnsupportedGame, match="goal's types"):
        Game(Problem("x", room().facts, Goal("place", "nosuchtype", "cabinettype")))


# -- the environment ---------------------------------------------------------------------------------


def make(**options):
    return gymnasium.make(ALFWORLD, **options).unwrapped


def test_rewards_and_ends():
    env = make(difficulty="toy", reward_scale=0.5)
    env.reset(seed=1)
    total = 0.0
    while not env.terminated:
        _, reward, terminated, truncated, info = env.step(env.expert_action())
        total += reward
    assert (total, truncated, info["won"], info["score"]) == (5.0, False, True, 1.0)
    env = make(max_steps=2)
    env.reset(seed=1)
    env.step("look")
    *_, terminated, truncated, _ = env.step("look")
    assert (terminated, truncated) == (False, True)


def test_the_task_is_the_sentence_with_its_full_stop():
    """F031: in info, at every step."""
    env = make()
    observation, info = env.reset(seed=4)
    assert observation.endswith("Your task is to: " + info["task"])
    assert info["task"].endswith(".")
    assert env.step("look")[4]["task"] == info["task"]


def test_old_verbs_are_flagged_never_silent():
    """F024: prompt, parser and admissible list name the same verb."""
    engine = Engine(Game(room()))
    play(engine, "go to countertop 1", "take apple 2 from countertop 1")
    assert "move apple 2 to countertop 1" in engine.admissible
    env = make(difficulty="toy")
    env.reset(seed=0)
    *_, info = env.step("put book 1 in/on desk 1")
    assert info["is_action_valid"] is False


def test_anchors():
    env = make(difficulty="toy")
    observation, info = env.reset(seed=0)
    assert info["anchor"] == observation
    env = make(difficulty="toy", anchor="view")
    _, first = env.reset(seed=0)
    *_, again = env.step("nonsense")
    *_, look = env.step("look")
    assert len({first["anchor"], again["anchor"], look["anchor"]}) == 3
    assert env.step("nonsense")[4]["anchor"] == again["anchor"]


def test_options_are_checked():
    for wrong in (
        {"difficulty": "nope"}, {"anchor": "x"}, {"split": "valid_train"}, {"annotations": True},
    ):  # fmt: skip
        with pytest.raises(OptionError):
            make(**wrong)
    with pytest.raises(OptionError, match="no option 'dificulty'; valid: split, max_steps"):
        make(dificulty="toy")


def test_expert_knowledge_travels_with_the_state():
    env, other = make(), make()
    for seed in range(5):
        env.reset(seed=seed)
        for _ in range(4):
            env.step(env.expert_action())
            if env.terminated:
                break
        other.set_state(env.get_state())
        while not (env.terminated or env.truncated):
            action = env.expert_action()
            assert other.expert_action() == action
            assert other.step(action) == env.step(action)


def test_states_are_small():
    env = make()
    sizes = []
    for seed in range(10):
        env.reset(seed=seed)
        while not (env.terminated or env.truncated):
            env.step(env.expert_action())
            sizes.append(len(env.get_state()))
    assert sum(sizes) / len(sizes) < 400
    assert max(sizes) < 900


def test_a_state_of_an_unknown_task_is_refused():
    env, real = make(), make()
    real.reset(seed=0)
    state = real.get_state()
    import zlib

    content = json.loads(zlib.decompress(state[4:]))
    for change in (
        {"task": "train/no/such/1"}, {"task": "train/pick_and_place_simple/full/x"},
        {"game": {}}, {"game": {**content["game"], "known": [1 << 200, 0, 0, 0, 0]}},
        {"game": {**content["game"], "engine": {**content["game"]["engine"], "at": 9999}}},
        {"game": {**content["game"], "seen": 5}}, {"steps": -1}, {"steps": "x"}, {"seed": None, "end": 1},
        {"last": []}, {"version": 99}, {"env": "Other"},
    ):  # fmt: skip
        forged = b"AE1:" + zlib.compress(json.dumps({**content, **change}).encode())
        env.reset(seed=3)
        before = env.get_state()
        with pytest.raises(StateError):
            env.set_state(forged)
        assert env.get_state() == before


# -- the generator -----------------------------------------------------------------------------------


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_generated_games_are_solvable_and_not_won_at_the_start(difficulty: str):
    """Each solved by the scripted expert within 50 steps (>= 99 % of any 200)."""
    solved = 0
    for index in range(200):
        game = Game(generate("train", difficulty, index))
        assert not Engine(game).won
        limit = DIFFICULTIES[difficulty]
        if limit is not None:
            assert len(game.receptacles) <= max(limit[0], 3)
            assert len(game.objects) <= limit[1] + 1
    result = agent_envs.evaluate(
        ExpertPolicy(), ALFWORLD, split="train", difficulty=difficulty, episodes=200
    )
    solved = sum(e.won for e in result.episodes)
    assert solved >= 198
    assert len(result.by_type()) == 6


@pytest.mark.parametrize(("split", "count"), [("valid_seen", 140), ("valid_unseen", 134)])
def test_expert_solves_the_generated_validation_splits(split: str, count: int):
    result = agent_envs.evaluate(ExpertPolicy(), ALFWORLD, split=split)
    assert len(result.episodes) == count
    assert sum(e.won for e in result.episodes) >= 0.99 * count
    assert all(e.steps <= 50 for e in result.episodes)


def test_unseen_games_use_held_out_layouts():
    for index in range(134):
        assert choose("valid_unseen", "full", index)[0].layout in [
            layout(room_kind, HELD_OUT) for room_kind in ROOMS
        ]
    held_out = {layout(room_kind, HELD_OUT) for room_kind in ROOMS}
    for split in ("train", "valid_seen"):
        assert held_out.isdisjoint({choose(split, "full", i)[0].layout for i in range(140)})


def test_contents_follow_the_tables():
    """Shares of empty receptacles over 300 rooms against those of the official games."""
    filled, seen = Counter(), Counter()
    for index in range(300):
        facts = generate("train", "full", index).facts
        holders = {r for _, r in facts.get("inreceptacle", ())}
        for r, kind in facts["receptacletype"]:
            seen[kind] += 1
            filled[kind] += r in holders
    for kind, empty in (("cabinettype", 0.64), ("drawertype", 0.61), ("countertoptype", 0.02)):
        assert abs(1 - filled[kind] / seen[kind] - empty) < 0.1


def test_task_types_and_rooms_come_in_the_tables_proportions():
    types = Counter(choose("train", "full", i)[0].task_type for i in range(2000))
    total = sum(tables()["goal_rooms"].values())
    for task_type in TASK_TYPES:
        share = sum(n for k, n in tables()["goal_rooms"].items() if k.startswith(task_type)) / total
        assert abs(types[task_type] / 2000 - share) < 0.05


def test_only_tasks_of_some_types():
    env, every = (
        make(difficulty="toy", task_types=["look_at_obj_in_light", 1]),
        make(difficulty="toy"),
    )
    wanted = {"look_at_obj_in_light", "pick_and_place_simple"}
    ids = [every.tasks.task_id("valid_seen", i) for i in range(140)]
    chosen = [i for i in ids if every.tasks.task_type(i) in wanted]
    count = env.tasks.count("valid_seen")
    assert [env.tasks.task_id("valid_seen", i) for i in range(count)] == chosen
    assert 0 < count < 140
    drawn = [env.reset(seed=seed)[1]["task_id"] for seed in range(100)]
    assert {env.tasks.task_type(i) for i in drawn} == wanted
    assert len(set(drawn)) == 100  # endless, and no two seeds share a game
    state = env.get_state()
    again = make(difficulty="toy")
    again.set_state(state)  # the ids are those of the whole set
    assert again.step("look")[0] == env.step("look")[0]
    for wrong in ([], ["nope"], [0], [7], [True], "pick_and_place_simple", 1):
        with pytest.raises(OptionError, match=r"task.types?"):
            make(task_types=wrong)


def test_sentences_are_read_back():
    for task_type, sentences in SENTENCES.items():
        for sentence in sentences:
            wish = read_task(sentence.format("mug", "desk"))
            assert (wish.thing, wish.target) == ("mug", "desk")
            assert wish.number == (2 if "two" in task_type else 1)
    assert read_task("do what you like.") is None


# -- files -----------------------------------------------------------------------------------------------


@pytest.fixture
def download(tmp_path: Path) -> Path:
    """A small download in the official layout, made by our own writer."""
    like = tmp_path / "like.tw-pddl"
    like.write_text(json.dumps({"pddl_domain": "(domain)", "grammar": GRAMMAR, "pddl_problem": ""}))
    for split, count in (("train", 6), ("valid_seen", 3), ("valid_unseen", 2)):
        for index in range(count):
            problem = generate("train", "easy", index)
            task_type = choose("train", "easy", index)[0].task_type
            path = tmp_path / "json_2.1.1" / split / f"{task_type}-X-None-Y-{index}" / "trial_T1"
            write_game_file(problem, like, path / "game.tw-pddl")
    return tmp_path


def test_written_games_play_like_the_generated_ones(download: Path):
    for path in sorted(download.glob("json_2.1.1/train/*/*/game.tw-pddl")):
        index = int(path.parent.parent.name.rpartition("-")[2])
        ours, theirs = Engine(Game(generate("train", "easy", index))), Engine(path)
        assert ours.reset() == theirs.reset()
        for turn in range(40):
            command = ours.admissible[(turn * 5) % len(ours.admissible)]
            assert ours.step(command) == theirs.step(command)


def test_real_data_by_folder_variable_and_pack(download: Path, monkeypatch, tmp_path):
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(tmp_path / "own-cache"))
    by_folder = make(data_dir=download)
    assert by_folder.tasks.source == download.name
    assert [by_folder.tasks.count(s) for s in by_folder.tasks.splits] == [6, 3, 2]
    ids = [by_folder.reset(options={"task_index": i})[1]["task_id"] for i in range(6)]
    assert ids == sorted(ids)
    assert all(i.startswith("train/") and not i.endswith("/") for i in ids)
    with pytest.raises(DataError, match="agent-envs data import alfworld"):
        make(data_dir="imported")
    counts = {"train": 6, "valid_seen": 3, "valid_unseen": 2}
    assert lib.import_folder(download) == (counts, {})
    by_pack = make(data_dir="imported")
    by_root = make(data_dir=str(download / "json_2.1.1"))
    for seed in range(8):
        observation, info = by_folder.reset(seed=seed)
        for other in (by_pack, by_root):
            again, other_info = other.reset(seed=seed)
            assert (again, other_info["task_id"]) == (observation, info["task_id"])
    # a cache never changes what a seed means: the pack is used only if named
    assert make().tasks.source == "embedded"
    monkeypatch.setenv("ALFWORLD_DATA", str(download))
    assert make().tasks.source == download.name
    with pytest.raises(OptionError, match="difficulty"):
        make(difficulty="easy")
    kinds = Counter(i.split("/")[1].partition("-")[0] for i in ids)
    for kind, number in kinds.items():
        assert make(task_types=[kind]).tasks.count("train") == number
    absent = next(kind for kind in TASK_TYPES if kind not in kinds)
    with pytest.raises(OptionError, match=f"no task of type {absent}; it has: "):
        make(task_types=[absent]).reset(seed=0)


def test_states_move_between_environments_of_the_same_data(download: Path):
    env, other = make(data_dir=download), make(data_dir=download)
    observation, _ = env.reset(seed=1)
    env.step(env.expert_action())
    assert other.set_state(env.get_state())[1]["steps"] == 1
    with pytest.raises(StateError):
        make().set_state(env.get_state())


def test_a_chosen_game_file_can_be_forced(download: Path):
    """F028."""
    path = next(download.glob("json_2.1.1/valid_seen/*/*/game.tw-pddl"))
    env = make()
    observation, info = env.reset(seed=3, options={"game_file": str(path)})
    assert info["task_id"] == path.parent.relative_to(download / "json_2.1.1").as_posix()
    assert env.reset(options={"game_file": path})[0] == observation
    env.step("look")
    other = make()
    other.set_state(env.get_state())
    assert other.step("look") == env.step("look")
    with pytest.raises(DataError, match="no game file"):
        env.reset(options={"game_file": "/no/such/file"})
    with pytest.raises(OptionError, match="not both"):
        env.reset(options={"game_file": path, "task_index": 1})


def test_games_are_skipped_with_a_count_and_a_reason(download: Path, caplog):
    train = download / "json_2.1.1" / "train"
    template = next(train.glob("*/*/game.tw-pddl"))
    content = json.loads(template.read_bytes())

    def add(name: str, text: str) -> None:
        (train / name / "trial_T2").mkdir(parents=True)
        (train / name / "trial_T2" / "game.tw-pddl").write_text(text)

    add("pick_x-Unsolvable-1", json.dumps({**content, "solvable": False}))
    add("movable-Recep-1", json.dumps(content))
    add("pick-AppleSliced-1", json.dumps(content))
    add("pick-foreign-1", "something else")
    odd = content["pddl_problem"].partition("(:goal")[0] + "(:goal (and (isFancy ?o))))"
    add("pick-odd-1", json.dumps({**content, "pddl_problem": odd}))
    with caplog.at_level(logging.INFO):
        tasks = lib.FolderTasks(download)
    assert tasks.count("train") == 6
    assert sum(tasks.skipped.values()) == 5
    assert set(tasks.skipped) == {
        "marked unsolvable", "not a game file", "unsupported goal",
        "movable or sliced (not part of ALFWorld's text games)",
    }  # fmt: skip
    assert "skipped games" in caplog.text


def test_odd_entries_are_skipped_not_fatal(download: Path):
    train = download / "json_2.1.1" / "train"
    real = next(train.glob("*/*"))
    for name, target in (
        ("dangling-1", "/no/such"),
        ("loop-1", train / "loop-1" / "t" / "game.tw-pddl"),
    ):
        (train / name / "t").mkdir(parents=True)
        (train / name / "t" / "game.tw-pddl").symlink_to(target)
    (train / "up-1").symlink_to(train)
    linked = download / "elsewhere"
    real.parent.rename(linked)
    (train / real.parent.name).symlink_to(linked)
    tasks = lib.FolderTasks(download)
    assert tasks.count("train") == 6
    assert tasks.skipped == {"unreadable": 2}
    cache = next((lib.cache_dir() / "alfworld").glob("index-*.json"))
    for content in ('{"train/x": 3}', '{"train/x": [1, 2]}', "[]", "no json"):
        cache.write_text(content)
        assert lib.FolderTasks(download).count("train") == 6


def test_relative_folders_survive_a_change_of_directory(download: Path, monkeypatch, tmp_path):
    monkeypatch.chdir(download.parent)
    env = make(data_dir=download.name)
    monkeypatch.chdir("/")
    env.reset(seed=3)
    assert env.tasks.source == download.name


@pytest.mark.parametrize(
    "change",
    [
        {"grammar": 'Your task is to: \\x"'},
        {"walkthrough": 5},
        {"pddl_problem": 3},
        {"grammar": None},
    ],
)
def test_odd_game_files_are_data_errors(download: Path, change: dict):
    path = next(download.glob("json_2.1.1/train/*/*/game.tw-pddl"))
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}))
    with pytest.raises(DataError, match=r"game\.tw-pddl"):
        make().reset(options={"game_file": path})
    path.write_text("[" * 100_000)
    with pytest.raises(DataError):
        make().reset(options={"game_file": str(path) + ""})


def test_without_a_home_there_is_still_a_cache_folder(run_python, monkeypatch):
    code = (
        "import os, pathlib; from agent_envs.core.files import cache_dir\n"
        "for name in ('AGENT_ENVS_CACHE', 'XDG_CACHE_HOME'): os.environ.pop(name, None)\n"
        "def none(): raise RuntimeError\n"
        "pathlib.Path.home = none; print(cache_dir())"
    )
    assert run_python(code).stdout.strip().endswith("agent-envs")


def test_the_index_is_cached_by_size_and_mtime(download: Path, monkeypatch):
    first = lib.FolderTasks(download)
    monkeypatch.setattr(lib, "_status", lambda path, task_id: pytest.fail(f"read {task_id} again"))
    assert lib.FolderTasks(download)._ids == first._ids
    monkeypatch.undo()
    path = next(download.glob("json_2.1.1/train/*/*/game.tw-pddl"))
    path.write_text(path.read_text().replace('"solvable": true', '"solvable": false'))
    assert lib.FolderTasks(download).count("train") == 5


def test_an_unwritable_cache_costs_nothing_but_time(download: Path, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(blocked))
    assert lib.FolderTasks(download).count("train") == 6


def test_bad_data_is_one_clear_line(tmp_path: Path, monkeypatch):
    for folder in (tmp_path / "absent", tmp_path):
        with pytest.raises(DataError, match="ALFWORLD_DATA") as error:
            make(data_dir=folder)
        assert str(folder) in str(error.value)
        assert "\n" not in str(error.value)
    (tmp_path / "json_2.1.1" / "train").mkdir(parents=True)
    with pytest.raises(DataError, match="no playable ALFWorld game"):
        make(data_dir=tmp_path)
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(tmp_path / "cache"))
    pack = lib.pack_path()
    pack.parent.mkdir(parents=True)
    for content in (
        b"",
        b"rubbish",
        b"agent-envs ALFWorld pack 1\n",
        b"agent-envs ALFWorld pack 1\n" + b"\x05" * 40,
    ):
        pack.write_bytes(content)
        with pytest.raises(DataError, match="no readable ALFWorld pack"):
            make(data_dir="imported")


def test_a_corrupt_block_names_the_game(download: Path, monkeypatch, tmp_path):
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(tmp_path / "own-cache"))
    lib.import_folder(download)
    path = lib.pack_path()
    content = bytearray(path.read_bytes())
    content[-200:] = bytes(200)
    path.write_bytes(content)
    tasks = lib.PackTasks(path)
    bad = 0
    for split in tasks.splits:
        for index in range(tasks.count(split)):
            try:
                tasks.problem(tasks.task_id(split, index))
            except DataError as error:
                assert "is corrupt" in str(error)
                bad += 1
    assert 0 < bad < 11


def test_an_import_that_fails_leaves_nothing_behind(download: Path, monkeypatch, tmp_path):
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(tmp_path / "own-cache"))
    lib.import_folder(download)
    before = lib.pack_path().read_bytes()

    def interrupt(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lib.import_folder(download, interrupt)
    from agent_envs.core import files

    def no_space(handle: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(OSError, match="disk full"):
        lib.import_folder(download)
    assert lib.pack_path().read_bytes() == before
    assert [p.name for p in lib.pack_path().parent.iterdir() if ".pack" in p.name] == ["games.pack"]


def test_annotations_where_the_data_has_them(download: Path, monkeypatch, tmp_path):
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(tmp_path / "own-cache"))
    folder = next(download.glob("json_2.1.1/train/*/*"))
    words = ["Do it, please.", "Could you do {it}?"]
    (folder / "traj_data.json").write_text(
        json.dumps({"turk_annotations": {"anns": [{"task_desc": w} for w in words]}})
    )
    lib.import_folder(download)
    seen = set()
    for data_dir in (download, "imported"):
        env = make(data_dir=data_dir, annotations=True)
        index = next(i for i in range(6) if env.tasks.task_id("train", i) in folder.as_posix())
        for seed in range(6):
            observation, info = env.reset(seed=seed, options={"task_index": index})
            assert info["task"] in words
            assert observation.endswith("Your task is to: " + info["task"])
            seen.add(info["task"])
        other = (index + 1) % 6  # without annotations: the template sentence
        assert read_task(env.reset(options={"task_index": other})[1]["task"]) is not None
        env.reset(seed=1, options={"task_index": index})
        assert env.expert_action() != "look"
    assert len(seen) == 2
    (folder / "traj_data.json").write_text("{}")
    with pytest.raises(DataError, match="traj_data"):
        make(data_dir=download, annotations=True).reset(options={"task_index": index})


def test_the_writer_needs_a_game_file_of_the_user(tmp_path: Path):
    for content in ("", "{}", '{"pddl_domain": "", "grammar": "no sentence"}'):
        like = tmp_path / "like"
        like.write_text(content)
        with pytest.raises(DataError, match="no game"):
            write_game_file(room(), like, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataError):
        write_game_file(room(), tmp_path / "absent", tmp_path / "out")
