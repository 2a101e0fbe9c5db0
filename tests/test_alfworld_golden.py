"""The engine against recordings of TextWorld 1.7.0 + alfworld 0.4.2, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import agent_envs
from agent_envs.agent import ExpertPolicy
from agent_envs.envs.alfworld import Engine
from agent_envs.envs.alfworld.library import import_folder, load_game, open_tasks
from tests.conftest import SHARED, load_json, shared

GOLDEN = SHARED / "golden" / "alfworld"
RECORDINGS = sorted(p.relative_to(GOLDEN).as_posix() for p in GOLDEN.glob("**/*.json"))
COUNTS = {"train": 3553, "valid_train": 200, "valid_seen": 140, "valid_unseen": 134}


def game_file(recording: str, content: dict, official: Path) -> Path:
    if "generated/" in recording:
        return shared(f"data/alfworld/generated_games/{content['game']}")
    if "legacy/" in recording:
        return shared(f"data/alfworld/legacy_games/{content['game']}/game.tw-pddl")
    return official / "json_2.1.1" / content["game"] / "game.tw-pddl"


def differences(engine: Engine, content: dict) -> Iterator[str]:
    """Everything in which play differs from the recording, with where."""
    for episode in content["episodes"]:
        steps = [{"a": None, "score": int(episode["won"]), **episode}, *episode["steps"]]
        for number, step in enumerate(steps):
            played = engine.reset() if number == 0 else engine.step(step["a"])
            admissible = [content["commands"][i] for i in step["adm"]]
            recorded = (step["obs"], admissible, step["score"], step["won"])
            for name, ours, theirs in zip(
                ("observation", "admissible", "score", "won"), played, recorded, strict=True
            ):
                if ours != theirs:
                    yield f"{episode['kind']} {number} {step['a']!r} {name}: {ours!r} != {theirs!r}"


def test_recordings_are_there_or_absent_as_a_whole():
    shared("golden/alfworld")
    kinds = {name.partition("/")[0] for name in RECORDINGS}
    assert kinds == {"walk", "adversarial", "generated", "legacy", "probes"}
    assert len(RECORDINGS) == 145


@pytest.mark.parametrize("recording", RECORDINGS)
def test_play_equals_recording(recording: str, official: Path):
    content = load_json(GOLDEN / recording)
    engine = Engine(game_file(recording, content, official))
    assert list(differences(engine, content)) == []


def test_all_official_walkthroughs_win_with_every_command_admissible(official: Path):
    tasks = open_tasks(official, None)
    assert {split: tasks.count(split) for split in tasks.splits} == COUNTS
    assert tasks.skipped == {}
    for split, count in COUNTS.items():
        for index in range(count):
            task_id = tasks.task_id(split, index)
            engine = Engine(official / "json_2.1.1" / task_id / "game.tw-pddl")
            assert not engine.won, task_id
            for command in engine.game.walkthrough:
                assert not engine.won, task_id
                assert command in engine.admissible, (task_id, command)
                engine.step(command)
            assert engine.won, task_id


def test_packed_games_play_as_the_files_do(official: Path):
    """One import, then all recordings of official games from the pack."""
    counts, skipped = import_folder(official)
    assert (counts, skipped) == (COUNTS, {})
    tasks = open_tasks("imported", None)
    assert tasks.source == "imported"
    assert {split: tasks.count(split) for split in tasks.splits} == COUNTS
    compared = 0
    for recording in RECORDINGS:
        if recording.startswith(("generated", "legacy")) or recording.count("/") == 2:
            continue
        content = load_json(GOLDEN / recording)
        engine = Engine(load_game(tasks, content["game"]))
        assert list(differences(engine, content)) == [], recording
        compared += 1
    assert compared == 113
    assert tasks.pack.path.stat().st_size < 500_000
    # the walkthroughs came along, in every block
    for split, count in COUNTS.items():
        for index in range(0, count, 37):
            engine = Engine(load_game(tasks, tasks.task_id(split, index)))
            for command in engine.game.walkthrough:
                engine.step(command)
            assert engine.won


@pytest.mark.parametrize(("split", "count"), [("valid_unseen", 134), ("valid_seen", 140)])
def test_expert_solves_all_official_validation_games(official: Path, split: str, count: int):
    result = agent_envs.evaluate(
        ExpertPolicy(), "AgentEnv/ALFWorld-v0", split=split, data_dir=official, num_envs=64
    )
    assert len(result.episodes) == count
    assert [e.task_id for e in result.episodes if not e.won] == []
    assert all(e.steps <= 50 for e in result.episodes)


def test_legacy_dialect_is_recognised_from_the_file():
    path = next(shared("data/alfworld/legacy_games").glob("**/game.tw-pddl"))
    engine = Engine(path)
    _, admissible, _, _ = engine.reset()
    assert "help" not in admissible
    observation, _, _, _ = engine.step(next(a for a in admissible if a.startswith("go to ")))
    assert observation.startswith("You arrive at loc ")


def test_mutating_a_rule_is_noticed(official: Path, monkeypatch: pytest.MonkeyPatch):
    """The recordings can fail: 'cold' for 'cool' is seen by several of them."""
    from agent_envs.envs.alfworld import engine as module

    mutated = tuple((flags, text.replace("cold", "cool")) for flags, text in module._CONDITIONS)
    monkeypatch.setattr(module, "_CONDITIONS", mutated)
    found = 0
    for recording in RECORDINGS:
        content = load_json(GOLDEN / recording)
        found += any(differences(Engine(game_file(recording, content, official)), content))
    assert found > 3
