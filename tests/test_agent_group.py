"""The agent's side of a group: records, subsets, forks, failures."""

from __future__ import annotations

import numpy as np
import pytest

import agent_envs
from agent_envs.agent import (
    AgentGroup,
    Completion,
    ConversationPrompt,
    ExpertPolicy,
    RandomPolicy,
    ReplayPolicy,
    TagParser,
    TemplatePrompt,
    memory,
)
from agent_envs.core import OptionError, PolicyError, PromptSpec, StalePrompt
from agent_envs.group import Process

agent_envs.register("Test/Toy-v0", "tests.toy:ToyEnv")
ALFWORLD = "AgentEnv/ALFWorld-v0"


def toy(num_groups: int = 2, group_size: int = 2, backend="inline", **options) -> AgentGroup:
    agent = {k: options.pop(k) for k in list(options) if k in AgentGroup.__init__.__kwdefaults__}
    return AgentGroup(
        agent_envs.make_group("Test/Toy-v0", num_groups, group_size, backend=backend, **options),
        **agent,
    )


def say(action: str) -> str:
    return f"<think>x</think><action>{action}</action>"


def test_steps_record_what_was_seen_and_what_came():
    agent = toy()
    prompts = agent.reset(seed=3)
    assert [p.view.replica for p in prompts] == [0, 1, 2, 3]
    assert [p.view.member for p in prompts] == [0, 1, 0, 1]
    turn = agent.step([say("Wait"), say("win"), "no action here", say("wait")])
    waited, won, invalid, _ = turn.steps
    assert waited.action == "wait"
    assert waited.observation == prompts[0].view.observation == waited.anchor
    assert waited.next_observation == "said 1: wait"
    assert (won.reward, won.terminated, won.info["won"]) == (1.0, True, True)
    assert (invalid.action, invalid.format_valid, invalid.action_valid) == ("", False, False)
    assert [p.view.replica for p in turn.prompts] == [0, 2, 3]
    assert "H:[Observation 1: '" in turn.prompts[0].text
    assert turn.prompts[0].view.step == 1


def test_subsets_give_identical_records():
    """Asynchronous answers, in any order, equal lock step."""

    def run(order):
        agent = toy(2, 3)
        prompts = agent.reset(seed=5)
        steps = []
        while prompts:
            chosen = order(prompts)
            turn = agent.step(
                [say(f"a{p.view.step}") if p.view.step < 3 else say("win") for p in chosen], chosen
            )
            steps += turn.steps
            prompts = [p for p in prompts if p not in chosen] + turn.prompts
        return sorted((s.replica, s.step, s.prompt.text, s.action, s.reward) for s in steps)

    lock_step = run(lambda prompts: prompts)
    assert run(lambda prompts: prompts[:1]) == lock_step
    assert run(lambda prompts: prompts[::-1][:2]) == lock_step


def test_stale_prompts_are_refused():
    agent = toy()
    first = agent.reset(seed=1)
    agent.step([say("wait")], first[:1])
    for stale in ([first[0]], [first[1], first[1]]):
        with pytest.raises(StalePrompt, match="does not wait"):
            agent.step([say("wait")] * len(stale), stale)
    with pytest.raises(ValueError, match="expected 4 completions, got 1"):
        agent.step([say("wait")])
    agent.reset(seed=1)
    with pytest.raises(StalePrompt):
        agent.step([say("wait")], first[1:2])


def test_forks_copy_state_and_history():
    agent = toy(1, 3)
    agent.reset(seed=1)
    agent.step([say("a"), say("b"), say("win")])
    prompts = agent.fork(0, [1, 2])
    assert [p.view.replica for p in prompts] == [1, 2]
    assert all("Action 1: 'a'" in p.text for p in prompts)
    trajectories = {p.view.trajectory for p in agent.waiting}
    assert len(trajectories) == 3
    turn = agent.step([say("x"), say("y"), say("z")])
    assert [s.step for s in turn.steps] == [1, 1, 1]
    assert len(agent.past(1)) == 2
    start = agent.starts[turn.steps[1].trajectory]
    assert (start.parent, start.parent_steps) == (turn.steps[0].trajectory, 1)
    agent.step([say("p"), say("q"), say("r")])
    assert [s.action for s in agent.past(0)] == ["a", "x", "p"]
    assert [s.action for s in agent.past(1)] == ["a", "y", "q"]


def test_a_failed_call_closes_its_replica_only():
    agent = toy()
    agent.reset(seed=1)
    answers = [Completion(say("wait")), Completion("", error="HTTP 500"), say("wait"), say("wait")]
    turn = agent.step(answers)
    failed = turn.steps[1]
    assert (failed.truncated, failed.error, failed.reward) == (True, "HTTP 500", 0.0)
    assert failed.format_valid  # no format fault: a trainer must not punish it
    assert [p.view.replica for p in turn.prompts] == [0, 2, 3]
    assert agent.failures == {1: "HTTP 500"}
    assert 1 in [p.view.replica for p in agent.reset()]


def test_a_reply_cut_at_the_limit_is_no_format_error():
    """F019 b, and its switch; a cut reply that holds an action counts as it is."""
    cut = Completion("<think>so long", finish_reason="length")
    agent = toy(1, 2)
    agent.reset(seed=1)
    turn = agent.step([cut, Completion(say("wait"), finish_reason="length")])
    assert turn.steps[0].truncated
    assert turn.steps[0].format_valid
    assert "token limit" in turn.steps[0].error
    assert not turn.steps[1].truncated
    agent = toy(1, 1, on_length="invalid")
    agent.reset(seed=1)
    (step,) = agent.step([cut]).steps
    assert (step.truncated, step.format_valid) == (False, False)
    with pytest.raises(OptionError, match="valid: truncate, invalid"):
        toy(on_length="x")


def test_an_overflowing_prompt_ends_the_episode_as_truncated():
    """F019 a and c: no exception; a final answer keeps its reward."""
    spec = PromptSpec(first="{task}|{observation}")
    agent = toy(1, 2, prompt=TemplatePrompt(spec, max_prompt_chars=60), memory=memory.none())
    prompts = agent.reset(seed=1)
    assert len(prompts) == 2
    # observations can be cut, so only a budget below task and mark overflows
    turn = agent.step([say("x" * 200), say("win")])
    assert all(len(p.text) <= 60 for p in turn.prompts)
    assert turn.steps[1].reward == 1.0
    agent = toy(1, 2, prompt=ConversationPrompt(spec, max_prompt_chars=260))
    agent.reset(seed=1)
    turn = agent.step([say("x" * 300), say("win")])
    long, final = turn.steps
    assert (long.truncated, long.terminated) == (True, False)
    assert "budget" in long.error
    assert (final.terminated, final.truncated, final.reward) == (True, False, 1.0)
    assert turn.prompts == []
    assert agent.past(0)[-1] is long


def test_a_task_that_fits_no_budget_starts_no_episode():
    agent = toy(1, 2, prompt=TemplatePrompt(PromptSpec(first="{task}"), max_prompt_chars=3))
    assert agent.reset(seed=1) == []
    assert set(agent.failures) == {0, 1}


def test_an_env_that_raises_ends_in_a_step_with_its_error():
    agent = toy()
    agent.reset(seed=1)
    turn = agent.step([say("raise"), *[say("wait")] * 3])
    assert turn.steps[0].error == "RuntimeError: raised on command"
    assert turn.steps[0].truncated
    assert len(turn.prompts) == 3


def test_a_memory_that_raises_closes_its_replica_and_the_rest_stay_in_step():
    def fragile(past):
        if past and past[-1].replica == 1:
            raise KeyError("lost")
        return past

    agent = toy(1, 3, memory=fragile)
    agent.reset(seed=1)
    turn = agent.step([say("wait")] * 3)
    assert [p.view.replica for p in turn.prompts] == [0, 2]
    assert [s.truncated for s in turn.steps] == [False, True, False]
    assert "no prompt could be built: KeyError" in turn.steps[1].error
    turn = agent.step([say("wait")] * 2)
    assert [s.info["steps"] for s in turn.steps] == [2, 2]


def test_an_expert_that_fails_closes_its_replica():
    agent = toy(1, 3, expert=True)
    agent.reset(seed=1)
    turn = agent.step([say("wait"), say("confuse"), say("wait")])
    assert [p.view.replica for p in turn.prompts] == [0, 2]
    assert turn.steps[1].error == "expert: RuntimeError: the expert is confused"
    agent.step(ExpertPolicy().act(turn.prompts))


def test_forks_leave_out_an_answer_that_was_never_executed():
    agent = toy(1, 2)
    agent.reset(seed=1)
    agent.step([say("a"), say("b")])
    agent.step([Completion("", error="down"), say("c")])
    (prompt,) = agent.fork(0, [1])
    assert prompt.view.step == 1
    assert len(agent.past(1)) == 1
    assert agent.starts[prompt.view.trajectory].parent_steps == 1


def test_memory_of_starts_stays_flat_over_resets():
    agent = toy(2, 2)
    for i in range(1000):
        mask = np.array([True, True, i % 7 == 0, i % 7 == 0])
        agent.reset(seed=i, options={"reset_mask": mask} if i else None)
        assert len(agent.starts) == 4
    assert [s.replica for s in agent.starts.values()] == [2, 3, 0, 1]
    first = agent.starts
    agent.reset(seed=1)
    assert len(first) == 4  # what a caller holds is not taken away


def test_starts_of_replaced_episodes_stay_until_the_reset():
    agent = toy(2, 2)
    agent.reset(seed=1)
    agent.step([say("wait")] * 4)
    agent.fork(0, [1])
    assert list(agent.starts) == [0, 1, 2, 3, 4]  # 1 was replaced, its steps may be written yet
    agent.reset(seed=2, options={"reset_mask": np.array([False, False, True, True])})
    assert sorted(agent.starts) == [0, 1, 4, 5, 6]
    agent.fork(1, [0])
    assert agent.starts[7].parent == 4
    assert agent.starts[4].parent == 0
    agent.reset(seed=3)
    assert sorted(agent.starts) == [8, 9, 10, 11]


def test_completions_are_checked():
    agent = toy(1, 3)
    agent.reset(seed=1)
    with pytest.raises(ValueError, match="must be a list, got one str"):
        agent.step("abc")
    with pytest.raises(
        ValueError, match="completion 1 must be a str or a Completion, got NoneType"
    ):
        agent.step([say("wait"), None, say("wait")])
    assert len(agent.waiting) == 3


def test_an_async_policy_is_told_when_a_rollout_breaks_off():
    class Counting:
        def __init__(self):
            self.held, self.cancelled = [], 0

        def submit(self, prompts):
            self.held += prompts

        def collect(self):
            return [(self.held.pop(), Completion(say("win")))]

        def cancel(self):
            self.held, self.cancelled = [], self.cancelled + 1

    def boom(turn):
        raise RuntimeError("broken off")

    policy, agent = Counting(), toy(1, 3)
    with pytest.raises(RuntimeError, match="broken off"):
        agent.rollout(policy, seed=1, on_turn=boom)
    assert (policy.held, policy.cancelled) == ([], 1)
    assert len(agent.rollout(policy, seed=1).steps) == 3


def test_templates_memory_and_parser_are_replaceable():
    agent = toy(
        1, 1, memory=memory.full(), parser=TagParser(tag="do"),
        prompt=PromptSpec(first="F {task}", later="L {history_length}"),
    )  # fmt: skip
    assert agent.reset(seed=1)[0].text.startswith("F win")
    for turn in range(1, 8):
        prompt = agent.step(["<do>wait</do>"]).prompts[0]
        assert prompt.text == f"L {turn}"


def test_prompts_do_not_grow_with_the_episode():
    agent = AgentGroup(
        agent_envs.make_group(ALFWORLD, 1, 1, max_steps=None), memory=memory.window(3)
    )
    prompt = agent.reset(seed=1)[0]
    sizes = []
    for _ in range(60):
        prompt = agent.step([prompt.view.format_action("look")]).prompts[0]
        sizes.append(len(prompt.text))
    assert max(sizes[10:]) <= min(sizes[10:]) + 10


# -- policies and rollouts -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_experts_work_on_every_backend(backend: str):
    agent = AgentGroup(agent_envs.make_group(ALFWORLD, 2, 2, backend=backend))
    rollout = agent.rollout(ExpertPolicy(), seed=2)
    assert all(steps[-1].info["won"] for steps in rollout.trajectories().values())
    assert not agent.expert
    agent.close()


def test_experts_say_why_they_cannot_act():
    agent = toy(1, 1)
    prompts = agent.reset(seed=1)
    with pytest.raises(PolicyError, match="expert=True"):
        ExpertPolicy().act(prompts)
    agent = toy(1, 1, expert=True)
    assert ExpertPolicy().act(agent.reset(seed=1)) == [TagParser().format("wait")]


def test_random_draws_do_not_depend_on_who_is_active():
    def actions(num_groups: int, order=lambda prompts: prompts):
        agent = AgentGroup(agent_envs.make_group(ALFWORLD, num_groups, 2, max_steps=8))
        seeds = list(range(num_groups))
        policy, steps = RandomPolicy(7), []
        prompts = agent.reset(seed=seeds)
        while prompts:
            chosen = order(prompts)
            turn = agent.step(policy.act(chosen), chosen)
            steps += turn.steps
            prompts = [p for p in prompts if p not in chosen] + turn.prompts
        return {(s.group, s.replica % 2, s.step): s.action for s in steps if s.group < 2}

    few = actions(2)
    assert few == actions(4) == actions(2, lambda prompts: prompts[-1:])
    assert len(set(few.values())) > 4
    assert few != {k: v for k, v in actions(2).items() if k[1] == 0}


def test_replay_policy_plays_and_closes():
    agent = toy(1, 2)
    rollout = agent.rollout(ReplayPolicy({0: ["a", "win"], 1: ["b"]}), seed=1)
    assert [s.action for s in rollout.trajectories()[0]] == ["a", "win"]
    assert rollout.failures == {1: "the script ends after 1 actions"}


def test_columns_are_in_time_order_within_trajectories():
    agent = AgentGroup(agent_envs.make_group(ALFWORLD, 2, 3, difficulty="toy", max_steps=6))
    columns = agent.rollout(RandomPolicy(1), seed=4).columns()
    assert set(map(len, columns.values())) == {len(columns["step"])}
    for trajectory in np.unique(columns["trajectory"]):
        rows = columns["trajectory"] == trajectory
        assert columns["step"][rows].tolist() == list(range(rows.sum()))
        assert not (columns["terminated"] | columns["truncated"])[rows][:-1].any()
    assert columns["reward"].dtype == np.float64
    assert columns["anchor"].dtype == object


def test_rollouts_are_the_same_on_every_backend():
    def run(backend):
        agent = AgentGroup(agent_envs.make_group(ALFWORLD, 3, 2, backend=backend, max_steps=10))
        columns = agent.rollout(RandomPolicy(1), seed=4).columns()
        agent.close()
        return {name: column.tolist() for name, column in columns.items()}

    assert run("inline") == run(Process(2))


def test_an_async_policy_lets_quick_replicas_run_ahead():
    class Slow:
        """Answers the youngest prompt first and replica 0 last."""

        def __init__(self):
            self.held, self.log = [], []

        def submit(self, prompts):
            self.held += prompts

        def collect(self):
            self.held.sort(key=lambda p: (p.view.replica == 0, p.view.step))
            prompt = self.held.pop(0)
            self.log.append((prompt.view.replica, prompt.view.step))
            return [(prompt, Completion(say("win" if prompt.view.step == 2 else "wait")))]

    policy = Slow()
    rollout = toy(1, 3).rollout(policy, seed=1)
    assert len(rollout.steps) == 9
    assert policy.log[-3:] == [(0, 0), (0, 1), (0, 2)]
