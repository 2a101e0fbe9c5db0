"""``AgentEnv/AppWorld-v0``: tasks, checks, the environment over the embedded world."""

from __future__ import annotations

import json
import tracemalloc
import zlib

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_envs
from agent_envs.core import OptionError, StateError
from agent_envs.envs.appworld.build import make_apps
from agent_envs.envs.appworld.env import cut, shared_executor
from agent_envs.envs.appworld.episode import Report, Verdict
from agent_envs.envs.appworld.execution import Execution, Limits
from agent_envs.envs.appworld.execution.process import ProcessSession
from agent_envs.envs.appworld.sim import SimEpisode
from agent_envs.envs.appworld.tasks import Catalogue, Goal, scenario_of, task_of, verdicts
from agent_envs.envs.appworld.tasks.catalogue import SPLITS, VARIANTS
from agent_envs.envs.appworld.tasks.family import FAMILIES
from agent_envs.envs.appworld.tasks.gates import mutants, problems, survivors
from agent_envs.envs.appworld.tasks.goals import same_answer

ENV_ID = "AgentEnv/AppWorld-v0"
APPS = make_apps()
FIRST = [f"{name}_{300 if family.challenge else 0}_1" for name, family in FAMILIES.items()]


def play(task, pieces) -> Report:
    episode = SimEpisode(task, APPS, shared_executor("process", False), Limits())
    try:
        for piece in pieces:
            episode.execute(piece)
        return episode.report()
    finally:
        episode.close()


def make(**options):
    return gymnasium.make(ENV_ID, **options).unwrapped


# -- tasks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_id", FIRST)
def test_gates(task_id):
    """The solution scores 1, doing nothing 0, and broken solutions fail."""
    assert problems(task_of(task_id), play) == []


def test_mutants_that_may_survive_mostly_do_not():
    fates = [fate for name in FIRST[::4] for fate in survivors(task_of(name), play).values()]
    assert sum(fates) > len(fates) / 2
    names = {mutant.name for name in FIRST for mutant in mutants(task_of(name))}
    assert len(names) >= 8


def test_families():
    assert len(FAMILIES) >= 30
    assert {family.difficulty for family in FAMILIES.values()} == {1, 2, 3}
    assert all(len(set(family.phrases)) >= 3 for family in FAMILIES.values())
    assert any(len(family.apps) >= 3 for family in FAMILIES.values())


def test_splits_share_no_task_world_or_challenge_family():
    tasks = Catalogue()
    ids = {
        split: {tasks.task_id(split, i) for i in range(tasks.count(split))}
        for split in tasks.splits
    }
    assert list(ids) == ["train", "dev", "test_normal", "test_challenge"]
    for one in ids:
        for other in ids:
            if one < other:
                assert not ids[one] & ids[other]
                assert not set(SPLITS[one].worlds) & set(SPLITS[other].worlds)
    kept = {name.rsplit("_", 2)[0] for name in ids["test_challenge"]}
    assert kept == {name for name, family in FAMILIES.items() if family.challenge}
    assert not kept & {name.rsplit("_", 2)[0] for name in ids["train"]}
    scenarios = {scenario_of(name) for name in ids["train"]}
    assert len(ids["train"]) == VARIANTS * len(scenarios)


def test_a_task_is_the_same_in_every_process(run_python):
    code = (
        "from agent_envs.envs.appworld.tasks import task_of\n"
        f"for name in {FIRST[::5]!r}:\n"
        "    t = task_of(name)\n"
        "    print(t.instruction, t.supervisor, t.solution, t.goal.answer, t.world.digest())\n"
    )
    first = run_python(code).stdout
    assert first
    assert run_python(code).stdout == first


@pytest.mark.parametrize(
    "task_id",
    [
        "",
        "x",
        "x_1_1",
        "alarms_off_1_4",
        "alarms_off_-1_1",
        "alarms_off_1",
        "alarms_off_٣_1",
        "alarms_off_01_1",
        f"alarms_off_{'9' * 5000}_1",
    ],
)
def test_unknown_tasks(task_id):
    with pytest.raises(OptionError, match=r"no embedded task|no task"):
        task_of(task_id)


# -- checks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "found", "same"),
    [
        (3, 3, True),
        (3, "3", True),
        (3, 3.0, True),
        (3, "3.00", True),
        (3, "three", False),
        (3, 2.999, False),
        (12.5, "$12.50", True),
        (1234.5, "1,234.50", True),
        (1234.5, "$1,234.50", True),
        (1234567, "1,234,567", True),
        (30, "3,0", False),
        (12.5, "1,2.5", False),
        (12, "1_2", False),
        (3, "٣", False),
        (1, True, False),
        (3, 10**4000, False),
        (3, [10**4000], False),
        (3, -1e300, False),
        (3, "9" * 5000, False),
        (12.5, 12.51, False),
        ("Ada Stub", " 'ada stub' ", True),
        ("Ada", "Ada Stub", False),
        (["b", "A"], "a, B", True),
        (["a", "b"], "a", False),
        (["a", "b"], ["b", "a"], True),
        (3, None, False),
        (0, None, False),
        (3, "", False),
        (3, "nan", False),
        ("nan", "nan", True),
    ],
)
def test_answers(wanted, found, same):
    assert same_answer(wanted, found) is same


def checks(goal: Goal, changes: dict, answer=None) -> Report:
    return Report(verdicts(goal, changes, lambda table, number: number < 100, answer))


def test_a_goal_explains_each_change_once():
    goal = Goal(
        inserted=[("a.t", {"x": 1}), ("a.t", {"x": 1})],
        updated=[("a.u", 5, {"y": 2.0})],
        deleted=[("a.v", 7)],
    )
    new = {100: {"x": 1, "z": 0}, 101: {"x": 1}}
    right = {"a.t": new, "a.u": {5: {"y": 2.001}}, "a.v": {7: None}, "supervisor.tasks": {1: {}}}
    assert checks(goal, right).success
    assert checks(goal, {**right, "a.t": {100: {"x": 1}}}).score == 3 / 4
    for wrong in (
        {"a.t": {**new, 102: {"x": 1}}},  # one too many
        {"a.u": {5: {"y": 2}, 6: {"y": 2}}},
        {"a.v": {7: None, 8: None}},
        {"b.w": {1: {}}},
        {"a.v": {7: {}}},
    ):
        report = checks(goal, {**right, **wrong})
        assert report.score == 0.0, wrong
        assert any("nothing else is changed" in failure for failure in report.failures)
    # a row that was there before is not a new one
    assert not checks(Goal(inserted=[("a.t", {"x": 1})]), {"a.t": {5: {"x": 1}}}).success


def test_scores():
    def report(*pairs):
        return Report(tuple(Verdict("r", passed, idle) for passed, idle in pairs))

    assert Report().score == 0.0
    assert not Report().success
    assert report((True, False), (False, False), (True, True)).score == 0.5
    assert report((True, False), (True, False), (False, True)).score == 0.0
    assert report((True, True)).score == 0.0
    given_up = Report((Verdict("r", True, False),), completed=False)
    assert (given_up.success, given_up.score) == (False, 1.0)
    assert given_up.failures == ("the task is marked as complete",)


def changed(task_id: str, old: str, new: str) -> bool:
    """Whether a reference solution with another text in it still wins."""
    task = task_of(task_id)
    assert sum(old in piece for piece in task.solution) == 1
    return play(task, [piece.replace(old, new) for piece in task.solution]).success


def test_equal_shares_are_equal_however_they_are_entered():
    """Cents that cannot be split may lie anywhere; other shares are not alike."""
    head = "ms = [m['email'] for m in group['members']]\namount = 50.0\n"
    call = "apis.splitwise.add_expense(access_token=token_splitwise,"
    for rest, right in (("0", True), ("-1", True), ("None", False)):
        parts = (
            "n = len(ms)\ncents = [5000 // n] * n\n"
            + ("cents[0] += 500; cents[-1] -= 500\n" if rest == "None" else "")
            + f"cents[{rest if rest != 'None' else 0}] += 5000 - sum(cents)\n"
        )
        task = task_of("add_expense_0_1")
        amount = task.goal.inserted[0][1]["amount"]
        code = (head + parts).replace("50.0", str(amount)).replace("5000", str(round(amount * 100)))
        pieces = [
            code + piece.replace(f"amount={amount})", f"amount={amount}, sharer_emails=ms, "
            "share_amounts=[c / 100 for c in cents])") if call in piece else piece
            for piece in task.solution
        ]  # fmt: skip
        assert play(task, pieces).success is right, rest


def test_a_forwarded_receipt_has_its_attachment():
    old = "apis.gmail.forward_email(access_token=token_gmail, email_id=mail['email_id'], "
    new = (
        "full = apis.gmail.show_email(access_token=token_gmail, email_id=mail['email_id'])\n"
        "apis.gmail.send_email(access_token=token_gmail, subject='Fwd: ' + subject, body=full['body'], "
    )
    assert not changed("forward_receipt_300_1", old, new)


def test_instructions_say_which_money_moves():
    """A card would do as well where the balance is not named, and the checks would not have it."""
    for name, family in FAMILIES.items():
        goal = task_of(f"{name}_{300 if family.challenge else 0}_1").goal
        if any(table == "venmo.transactions" for table, _ in goal.inserted):
            assert all("balance" in phrase for phrase in family.phrases), name


def test_instructions_say_whether_archived_mails_count():
    for name in ("unread", "star_sender", "reply_latest", "archive_old"):
        assert all("archive" in phrase.lower() for phrase in FAMILIES[name].phrases)


# -- the environment -------------------------------------------------------------------------------


def test_the_expert_wins_everywhere_and_chance_nowhere():
    group = agent_envs.make_group(ENV_ID, 8, 2, split="dev")
    from agent_envs.agent import AgentGroup, ExpertPolicy

    rollout = AgentGroup(group).rollout(ExpertPolicy(), seed=0)
    last = [steps[-1] for steps in rollout.trajectories().values()]
    assert [step.reward for step in last] == [10.0] * 16
    assert [step.info["failed_checks"] for step in last] == [[]] * 16
    other = agent_envs.make_group(ENV_ID, 8, 1, split="dev")
    other.reset(seed=0)
    guess = "apis.supervisor.complete_task(answer=7)"
    _, rewards, terminated, *_ = other.step([guess] * 8)
    assert terminated.all()
    assert not rewards.any()


def test_rewards_and_scores():
    task = task_of(FIRST[0])
    env = make(reward="score", reward_scale=1.0)
    _, info = env.reset(options={"task_id": task.id})
    assert (info["task_id"], info["scenario"]) == (task.id, scenario_of(task.id))
    _, reward, terminated, _, info = env.step("apis.supervisor.complete_task()")
    assert terminated
    assert reward == info["score"] == 0  # to be done with it earns nothing
    assert info["failed_checks"]
    assert not info["won"]


@pytest.mark.parametrize(
    "call", ["supervisor.complete_task(answer=", "spotify.search_songs(artist_id="]
)
@pytest.mark.parametrize("number", ["10**400", "-(10**4000)", "[10**4000]"])
def test_numbers_beyond_floats_are_refused(call, number):
    env = make()
    env.reset(seed=0)
    observation, _, terminated, *_ = env.step(f"apis.{call}{number})")
    assert "too large" in observation or "must be of type integer" in observation
    assert not terminated


def test_interactions_are_limited():
    env = make(max_interactions=2)
    env.reset(seed=0)
    assert not env.step("x = 1")[3]
    observation, reward, terminated, truncated, info = env.step("print(x)")
    assert (observation.strip(), reward, terminated, truncated) == ("1", 0.0, False, True)
    assert info["failed_checks"]


def test_long_output_is_cut_in_the_middle():
    env = make(max_output=1000)
    env.reset(seed=0)
    observation = env.step("print('a' * 5000 + 'END')")[0]
    assert len(observation) < 1100
    assert observation.startswith("aaa")
    assert "characters left out" in observation
    assert observation.rstrip().endswith("END")
    assert cut("abc", 3) == "abc"


NO_CODE = [
    ("prose", "I think that I should look at the apps first.", "no <code> tag or fenced block"),
    ("two blocks", "<code>a = 1</code> and <code>b = 2</code>", "2 actions where one is asked for"),
    ("only thought", "<think><code>a = 1</code></think>", "no <code> tag"),
    ("nothing", "", "no <code> tag"),
]


@pytest.mark.parametrize(
    ("reply", "reason"), [case[1:] for case in NO_CODE], ids=[c[0] for c in NO_CODE]
)
def test_replies_without_code_are_told_why(reply, reason):
    from agent_envs.agent import AgentGroup

    agent = AgentGroup(agent_envs.make_group(ENV_ID, 1, 1))
    agent.reset(seed=0)
    (step,) = agent.step([reply]).steps
    assert step.next_observation.startswith("No code available to execute: ")
    assert reason in step.next_observation
    assert not step.action_valid


def test_code_that_is_none():
    env = make()
    env.reset(seed=0)
    observation, *_, info = env.step("look at the apps, please")
    assert observation.startswith("Syntax error in line")
    assert not info["is_action_valid"]
    assert env.step("  \n ")[0].startswith("No code available to execute")
    assert "are too many" in env.step("#" * 200_000)[0]


def test_forks_go_on_alike_and_run_no_api_twice():
    """A namespace is rebuilt by replaying code against recorded answers (StateNotPortable's way)."""
    group = agent_envs.make_group(ENV_ID, 1, 3)
    group.reset(seed=3)
    code = (
        "from random import random\nx = [random() for _ in range(3)]\n"
        "n = apis.api_docs.show_app_descriptions()\nprint(len(n), x)"
    )
    group.step([code, None, None])
    group.fork(0, [1, 2])
    before = group.get_states()
    observations, *_ = group.step(["x.append(len(n))\nprint(x)"] * 3)
    assert observations[0] == observations[1] == observations[2]
    assert "[" in observations[0]
    assert before[0] == before[1]
    observations, *_ = group.step(["import random\nprint(random.random())"] * 3)
    assert len(set(observations)) == 1
    group.close()


def test_many_answers_are_kept_small():
    """A replica keeps what its APIs answered, for its copies; an episode may hold 50,000 answers."""
    env = make()
    env.reset(options={"task_id": "follow_0_1"})
    code = "for i in range(300): x = apis.spotify.search_songs(page_index=i % 8, page_limit=20)"
    env.step(code)
    assert "300" in env.step("print(i + 1)")[0]
    tracemalloc.start()
    try:
        env.step(code)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 700_000
    copy = make()
    copy.set_state(env.get_state())
    assert copy.step("print(i, x)")[0] == env.step("print(i, x)")[0]


def test_forks_after_lost_variables_go_on_alike():
    group = agent_envs.make_group(ENV_ID, 1, 2, seconds=0.3)
    group.reset(seed=3)
    calls = "for _ in range(7): apis.api_docs.show_app_descriptions()\n"
    loop = "def f():\n  while True:\n    try:\n      for i in range(10**9): i + 1\n    except BaseException: pass\nf()"
    *_, infos = group.step([calls + loop, None])
    assert infos["variables_lost"][0]
    group.fork(0, [1])
    look = "import datetime, random, time\nprint(datetime.datetime.now(), time.monotonic(), random.random())"
    observations, *_ = group.step([look] * 2)
    assert observations[0] == observations[1]
    group.close()


def test_a_copy_that_cannot_be_made_again_says_so(monkeypatch):
    """The code that runs again may be ended this time: memory of the group, a busy machine."""
    env, copy = make(), make()
    env.reset(seed=3)
    env.step("x = 1")
    copy.set_state(env.get_state())
    run, ends = ProcessSession.run, [Execution("gone", True, True, 0)]
    monkeypatch.setattr(ProcessSession, "run", lambda *args: ends.pop() if ends else run(*args))
    observation, *_, info = copy.step("print('x' in globals())")
    assert not ends
    assert observation.startswith("All variables of earlier steps are lost")
    assert observation.strip().endswith("False")
    assert info["variables_lost"]
    assert not copy.step("y = 1")[4]["variables_lost"]


def test_a_saved_namespace_outlasts_a_failed_restore():
    """monty: what was saved is what later steps build on, also when the session has to start again."""
    pytest.importorskip("pydantic_monty", reason="needs the extra appworld-monty")
    env, copy = make(executor="monty"), make(executor="monty")
    env.reset(seed=1)
    env.step("x = 1")
    copy.set_state(env.get_state())
    copy.step("y = 2")
    content = json.loads(zlib.decompress(copy.get_state()[4:])) | {"steps": -1}
    with pytest.raises(StateError):
        copy.set_state(b"AE1:" + zlib.compress(json.dumps(content).encode()))
    assert copy.step("print(x, y)")[0].strip() == "1 2"


def test_a_world_of_its_own_for_each_replica():
    group = agent_envs.make_group(ENV_ID, 1, 2)
    group.reset(options={"task_id": "alarm_new_0_1"})
    login = task_of("alarm_new_0_1").solution[0]
    add = "apis.phone.create_alarm(access_token=token_phone, time='03:03', label='mine')"
    show = "print(len(apis.phone.show_alarms(access_token=token_phone, query='mine')))"
    group.step([login + "\n" + add, login])
    observations, *_ = group.step([show, show])
    assert [o.strip() for o in observations] == ["1", "0"]
    group.close()


def test_neutral_brands_play_the_same_tasks():
    env = make(brand="neutral")
    for index in range(0, 60, 7):
        _, info = env.reset(options={"task_index": index})
        text = info["task"]
        while not (env.terminated or env.truncated):
            action = env.expert_action()
            text += action
            *_, info = env.step(action)
        assert info["won"], info["failed_checks"]
        assert not any(name in text.lower() for name in ("spotify", "venmo", "gmail", "amazon"))


def test_states_of_another_brand_are_refused():
    """Its tokens, texts and recorded answers have the other names."""
    env, other = make(), make(brand="neutral")
    env.reset(seed=0)
    with pytest.raises(StateError, match="brand"):
        other.set_state(env.get_state())


def test_options():
    for options, message in (
        ({"backend": "x"}, "backend"),
        ({"executor": "x"}, "executor"),
        ({"executor": "inprocess"}, "unsafe"),
        ({"reward": "x"}, "reward"),
        ({"brand": "x"}, "brand"),
        ({"seconds": 0}, "seconds"),
        ({"memory_mb": 0}, "memory_mb"),
        ({"max_interactions": 0}, "max_"),
        ({"max_api_calls": -1}, "max_api_calls"),
        ({"appworld_urls": "http://x"}, "appworld_urls"),
        ({"split": "x"}, "split"),
    ):
        with pytest.raises((OptionError, ValueError), match=message):
            make(**options)
    env = make()
    for wrong in (3, None, "nope_1_1"):
        if wrong is not None:
            with pytest.raises(OptionError):
                env.reset(options={"task_id": wrong})


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.text(), st.sampled_from(["while True: pass", "1/0", "raise SystemExit", "x" * 9999])
    )
)
def test_any_text_is_a_step(shared_env, text):
    env = shared_env
    if env.terminated or env.truncated or not env.started:
        env.reset(seed=1)
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(ValueError, match=r"surrogate|encod"):
            env.step(text)
        return
    observation, *_ = env.step(text)
    assert isinstance(observation, str)
    observation.encode()


@pytest.fixture(scope="module")
def shared_env():
    env = make(seconds=0.3, max_interactions=1000)
    yield env
    env.close()


@pytest.mark.parametrize(
    "options",
    [
        {"executor": "inprocess", "unsafe": True},
        {"unsafe": False},
        {"backend": "appworld", "appworld_python": "/bin/sh", "appworld_root": "/"},
        {"backend": "appworld", "appworld_urls": ["http://127.0.0.1:1"]},
        {"memory_mb": 1_000_000},
        {"seconds": 3600},
    ],
    ids=lambda options: ", ".join(options),
)
def test_clients_cannot_lift_the_bounds_of_agents_code(options):
    """What an env server's clients send runs with the server's rights where nobody forbids it."""
    from agent_envs_server.paths import check_paths
    from agent_envs_server.refusals import Refusal

    with pytest.raises(Refusal, match="--allow-paths"):
        check_paths(ENV_ID, options)
    check_paths(ENV_ID, {"split": "dev", "executor": "process", "max_steps": 3})


def test_no_option_that_is_not_judged():
    """A new option has to be put on one side or the other."""
    harmless = {
        "backend", "executor", "brand", "reward", "reward_scale", "max_steps", "max_interactions",
        "max_api_calls", "max_output", "split", "difficulty", "data_dir", "render_mode",
    }  # fmt: skip
    kind = type(make())
    assert harmless | set(kind.local_options) == set(kind.option_names())


def test_threads_share_one_executor():
    from concurrent.futures import ThreadPoolExecutor

    from agent_envs.envs.appworld import env

    env._executor.cache_clear()
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: env.shared_executor("process", False), range(64)))
    assert len(set(map(id, found))) == 1


def test_interpreters_are_paths_or_commands(monkeypatch, tmp_path):
    from agent_envs.envs.appworld.env import _interpreter

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _interpreter("python3") == "python3"
    assert _interpreter("./python") == str(tmp_path / "python")
    assert _interpreter("~/v/bin/python") == str(tmp_path / "v/bin/python")
