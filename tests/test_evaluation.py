"""Exact-once evaluation, trajectory files and their replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agent_envs
from agent_envs.agent import AgentGroup, Completion, ExpertPolicy, RandomPolicy, TagParser
from agent_envs.core import DataError, ListedTasks, OptionError, PromptSpec, TemplateError
from agent_envs.evaluation import wilson_interval
from agent_envs.group import Process
from agent_envs.trajectories import TrajectoryWriter, read_trajectories, replay

agent_envs.register("Test/Toy-v0", "tests.toy:ToyEnv")
ALFWORLD = "AgentEnv/ALFWorld-v0"


@pytest.mark.parametrize("num_envs", [64, 128, 9])
def test_every_task_exactly_once(num_envs: int):
    """F030: 140 games with any batch size: none dropped, none twice, denominator 140."""
    result = agent_envs.evaluate(ExpertPolicy(), ALFWORLD, split="valid_seen", num_envs=num_envs)
    assert [e.index for e in result.episodes] == list(range(140))
    assert len({e.task_id for e in result.episodes}) == 140
    assert result.success_rate == 1.0
    assert result.to_dict()["num_episodes"] == 140
    assert sum(part["num_episodes"] for part in result.to_dict()["by_type"].values()) == 140
    assert len(result.by_type()) == 6


def test_results_depend_on_neither_batch_nor_backend():
    def run(**options):
        return agent_envs.evaluate(
            RandomPolicy(1), ALFWORLD, split="train", difficulty="toy", episodes=23, **options
        )

    first = run(num_envs=23)
    assert first == run(num_envs=4) == run(num_envs=5, backend=Process(2))
    assert 0 < first.success_rate < 1
    assert first != run(num_envs=4, seed=1)


def test_tasks_that_cannot_start_are_counted_as_failed():
    result = agent_envs.evaluate(
        ExpertPolicy(),
        "Test/Toy-v0",
        split="test",
        num_envs=2,
        bad_tasks=("task-0", "task-3", "task-6"),
    )
    assert [e.won for e in result.episodes] == [i not in (0, 3, 6) for i in range(7)]
    assert result.errors == 3
    assert "cannot start task-3" in result.episodes[3].error
    every = tuple(f"task-{i}" for i in range(7))
    result = agent_envs.evaluate(
        ExpertPolicy(), "Test/Toy-v0", split="test", num_envs=3, bad_tasks=every
    )
    assert (len(result.episodes), result.success_rate) == (7, 0.0)


def test_invalid_actions_are_counted():
    class Sloppy:
        def act(self, prompts):
            return ["no tag" if p.view.step % 2 else TagParser().format("wait") for p in prompts]

    result = agent_envs.evaluate(Sloppy(), "Test/Toy-v0", split="test", max_steps=4)
    assert result.invalid_action_rate == 0.5
    assert result.episodes[0].invalid_formats == 2
    assert (result.success_rate, result.mean_steps) == (0.0, 4.0)


def test_failed_calls_do_not_stop_the_panel():
    class Flaky:
        def act(self, prompts):
            return [
                Completion("", error="down")
                if p.view.task.endswith("2")
                else TagParser().format("win")
                for p in prompts
            ]

    result = agent_envs.evaluate(Flaky(), "Test/Toy-v0", split="test", num_envs=2)
    assert [e.won for e in result.episodes] == [i != 2 for i in range(7)]
    assert result.episodes[2].error == "down"


def test_progress_is_reported():
    seen = []
    agent_envs.evaluate(
        ExpertPolicy(),
        "Test/Toy-v0",
        split="test",
        num_envs=2,
        on_episode=lambda *a: seen.append(a),
    )
    assert seen == [(i, 7) for i in range(1, 8)]


def test_wrong_arguments():
    with pytest.raises(OptionError, match="endless"):
        agent_envs.evaluate(RandomPolicy(), ALFWORLD, split="train")
    with pytest.raises(OptionError, match="valid"):
        agent_envs.evaluate(RandomPolicy(), ALFWORLD, split="nope")


def test_a_bad_prompt_leaves_no_worker_behind():
    import multiprocess

    before = set(multiprocess.active_children())
    with pytest.raises(TemplateError):
        agent_envs.evaluate(
            RandomPolicy(),
            "Test/Toy-v0",
            split="test",
            prompt=PromptSpec("{bad}"),
            backend="process",
        )
    assert set(multiprocess.active_children()) <= before


def test_panels():
    tasks = ListedTasks({"train": [str(i) for i in range(10)]})
    assert list(tasks.panel("train", 4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert list(tasks.panel("train", 4, 3)) == [[0, 1, 2]]
    assert list(tasks.panel("train", 100)) == [list(range(10))]
    with pytest.raises(OptionError):
        list(tasks.panel("train", 0))


@pytest.mark.parametrize("count", [1, 2, 7, 134, 140, 3553])
def test_consecutive_seeds_meet_every_task_once(count: int):
    """F033: an evaluation pass of N seeds covers N different tasks."""
    tasks = ListedTasks({"train": [str(i) for i in range(count)]})
    for start in (0, 12345, 2**63):
        assert len({tasks.index_for_seed("train", start + i) for i in range(count)}) == count


def test_wilson_interval_known_values():
    # R: prop.test(90, 100, correct = FALSE) and binom::binom.wilson
    low, high = wilson_interval(90, 100)
    assert (round(low, 5), round(high, 5)) == (0.82563, 0.94477)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(0, 10)[0] == 0.0
    assert wilson_interval(10, 10)[1] == 1.0


# -- trajectory files ----------------------------------------------------------------------------------


def saved(path, policy=None, forks: bool = False):
    group = agent_envs.make_group(ALFWORLD, 2, 2, difficulty="easy", max_steps=8)
    agent = AgentGroup(group)
    rollout = agent.rollout(policy or RandomPolicy(2), seed=6)
    with TrajectoryWriter(path, group.definition, label="random") as file:
        file.write(rollout)
    return rollout


def test_files_replay(tmp_path):
    path = tmp_path / "new" / "t.jsonl"
    rollout = saved(path)
    report = replay(path)
    assert (report.trajectories, report.steps, report.difference) == (4, len(rollout.steps), None)
    content = read_trajectories(path)
    assert content.header["env_id"] == ALFWORLD
    assert content.header["options"] == {"difficulty": "easy", "max_steps": 8}
    row = content.steps[0][0]
    assert row["observation"] == rollout.trajectories()[0][0].observation
    assert row["prompt"].startswith("You control")


@pytest.mark.parametrize("field", ["observation", "reward", "truncated", "won", "next_observation"])
def test_the_first_difference_is_named(tmp_path, field: str):
    path = tmp_path / "t.jsonl"
    saved(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    index = next(i for i, row in enumerate(lines) if row.get("step") == 7 and field in row)
    lines[index][field] = "changed"
    path.write_text("\n".join(map(json.dumps, lines)))
    difference = replay(path).difference
    assert (difference.trajectory, difference.step, difference.field) == (0, 7, field)
    assert "recorded 'changed'" in str(difference)


def test_forked_trajectories_replay(tmp_path):
    group = agent_envs.make_group(ALFWORLD, 1, 3, difficulty="easy", max_steps=6)
    agent = AgentGroup(group)
    policy, steps = RandomPolicy(5), []

    def advance(turns: int) -> None:
        for _ in range(turns):
            prompts = agent.waiting
            steps.extend(agent.step(policy.act(prompts), prompts).steps)

    agent.reset(seed=3)
    advance(2)
    agent.fork(0, [1])
    advance(2)
    agent.fork(1, [2])
    advance(2)
    from agent_envs.agent import Rollout

    path = tmp_path / "t.jsonl"
    with TrajectoryWriter(path, group.definition, prompts=False) as file:
        file.write(Rollout(steps, agent.starts, {}))
    report = replay(path)
    assert (report.trajectories, report.steps, report.difference) == (5, 18, None)
    assert "prompt" not in path.read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_names_the_file():
    group = agent_envs.make_group("Test/Toy-v0", 1, 1)
    writer = TrajectoryWriter("/dev/full", group.definition)
    with pytest.raises(OSError, match="/dev/full"):
        writer.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no trajectory file"),
        ("not json", "line 1: not JSON"),
        ("[]", "line 1: not a JSON object"),
        ('{"record": "header", "schema": 99}', "schema 1"),
        ('{"record": "header", "schema": 1}\n{"record": "else"}', "line 2"),
        ('{"record": "header", "schema": 1}\n{"x": 1}', "line 2"),
    ],
)
def test_bad_files_name_the_line(tmp_path, content: str, message: str):
    path = tmp_path / "t.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        replay(path)
    with pytest.raises(DataError, match="cannot read"):
        replay(tmp_path / "absent")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="UTF-8"):
        replay(path)
