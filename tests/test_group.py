"""Groups on every backend: same bytes, same rules."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from functools import cache

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import agent_envs
from agent_envs.core import (
    AgentEnv,
    ListedTasks,
    OptionError,
    Outcome,
    StateError,
    StateNotPortable,
    TextSpace,
)
from agent_envs.group import GroupVectorEnv, Process
from tests.conftest import ROOT
from tests.serving import Served
from tests.toy import TASKS, ToyEnv

agent_envs.register("Test/Toy-v0", "tests.toy:ToyEnv")
ALFWORLD = "AgentEnv/ALFWorld-v0"
BACKENDS = {
    "inline": lambda: "inline",
    "process": lambda: Process(2, timeout=2),
    "remote": lambda: remote(2),
    "ray": lambda: ray(2),
}


@cache
def server() -> Served:
    """One server for the whole module, started when first needed."""
    pytest.importorskip("msgpack", reason="the remote backend needs the extra server")
    for module in ("websockets", "starlette", "uvicorn"):
        pytest.importorskip(module, reason="the remote backend needs the extra server")
    return Served("--workers", "2")


@pytest.fixture(scope="module", autouse=True)
def _stop_server():
    yield
    if server.cache_info().currsize:
        server().stop()


def remote(connections: int):
    return agent_envs.Remote([server().url] * connections)


def ray(workers: int):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra 'ray'")
    return agent_envs.Ray(workers, timeout=2, actor_options={"num_cpus": 0.1})


@pytest.fixture(params=BACKENDS)
def toy(request):
    groups = []

    def make(num_groups=2, group_size=4, **options):
        groups.append(
            agent_envs.make_group(
                "Test/Toy-v0", num_groups, group_size, backend=BACKENDS[request.param](), **options
            )
        )
        return groups[-1]

    make.backend = request.param
    yield make
    for group in groups:
        group.close()


def script(group: GroupVectorEnv, turns: int = 12) -> list:
    """A long mixed history, as plain data."""
    seen = []
    observations, infos = group.reset(seed=11)
    for turn in range(turns):
        actions = [
            None if (i + turn) % 5 == 0 else choices[(i * 3 + turn * 7) % len(choices)]
            for i, choices in enumerate(infos["admissible_actions"])
        ]
        observations, *rest, infos = group.step(actions)
        seen.append(
            (observations, [r.tolist() for r in rest], {k: v.tolist() for k, v in infos.items()})
        )
    mask = np.repeat([True, False, True], group.group_size)
    observations, infos = group.reset(options={"reset_mask": mask})
    seen.append((observations, {k: v.tolist() for k, v in infos.items()}, group.group_seeds))
    observations, infos = group.fork(0, [1, 2])
    seen.append((observations, infos["steps"].tolist(), group.get_states()))
    seen.append(group.expert_actions())
    return seen


def test_all_backends_give_the_same_bytes():
    histories = []
    for backend in ("inline", Process(1), Process(2), Process(5), remote(1), remote(3)):
        group = agent_envs.make_group(ALFWORLD, 3, 4, backend=backend, difficulty="medium")
        histories.append(script(group))
        group.close()
    assert all(history == histories[0] for history in histories)


def test_shapes_and_types(toy):
    group = toy()
    assert group.num_envs == 8
    assert group.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    observations, infos = group.reset(seed=1)
    assert isinstance(observations, tuple)
    assert group.observation_space.contains(observations)
    observations, rewards, terminated, truncated, infos = group.step(["wait"] * 8)
    assert group.observation_space.contains(observations)
    assert rewards.dtype == np.float64
    assert terminated.dtype == truncated.dtype == np.bool_
    assert infos["score"].dtype == np.float64
    assert infos["steps"].dtype == np.int64
    assert infos["won"].dtype == np.bool_
    assert infos["admissible_actions"].dtype == object
    assert infos["admissible_actions"][3] == ["wait", "win"]
    for key in infos:
        if not key.startswith("_"):
            assert infos["_" + key].dtype == np.bool_
            assert infos["_" + key].shape == (8,)


def test_infos_agree_with_gymnasiums_own_vector_env():
    """Our columns against those of SyncVectorEnv over the same single environments."""
    peer = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.make(ALFWORLD)] * 3, autoreset_mode=AutoresetMode.DISABLED
    )
    group = agent_envs.make_group(ALFWORLD, 3, 1)
    _, theirs = peer.reset(seed=[5, 6, 7])
    _, ours = group.reset(seed=[5, 6, 7])
    assert ours.keys() == theirs.keys()
    for key in ours:
        assert ours[key].dtype == theirs[key].dtype, key
        assert ours[key].tolist() == theirs[key].tolist(), key
    peer.close()


def test_none_leaves_alone_and_finished_ones_never_step(toy):
    group = toy()
    group.reset(seed=1)
    group.step(["win", "wait", None, "wait", *["wait"] * 4])
    observations, rewards, terminated, truncated, infos = group.step(["wait"] * 8)
    assert observations[0].startswith("said 1: win")
    assert terminated.tolist() == [True, *[False] * 7]
    assert infos["steps"].tolist() == [1, 2, 1, 2, 2, 2, 2, 2]
    assert rewards[0] == 0.0
    assert infos["won"][0]
    assert infos["is_action_valid"][0]


def test_before_the_first_reset_everything_counts_as_finished(toy):
    group = toy()
    observations, rewards, terminated, truncated, infos = group.step(["win"] * 8)
    assert truncated.all()
    assert not rewards.any()
    assert observations == ("",) * 8
    assert infos["task"].tolist() == [""] * 8


def test_wrong_actions_are_refused_before_anything_steps(toy):
    group = toy()
    group.reset(seed=1)
    with pytest.raises(ValueError, match="expected 8 actions, got 3"):
        group.step(["wait"] * 3)
    with pytest.raises(ValueError, match="expected 8 actions"):
        group.step("wait wait")
    with pytest.raises(ValueError, match="action 5 must be a str, got int"):
        group.step([*["wait"] * 5, 3, "wait", "wait"])
    with pytest.raises(ValueError, match="action 7 holds a lone surrogate"):
        group.step([*["wait"] * 7, "\udfff"])
    assert group.step([None] * 8)[4]["steps"].tolist() == [0] * 8


def test_reset_mask_selects_whole_groups_and_leaves_the_dict_alone(toy):
    group = toy()
    group.reset(seed=1)
    group.step(["wait"] * 8)
    seeds = list(group.group_seeds)
    options = {"reset_mask": np.array([False] * 4 + [True] * 4), "task_index": [None, 3]}
    copy = dict(options)
    observations, infos = group.reset(options=options)
    assert options.keys() == copy.keys()
    assert observations[0].startswith("said 1")
    assert observations[4] == "start of task-3"
    assert infos["steps"].tolist() == [1] * 4 + [0] * 4
    assert infos["_data_source"].tolist() == [False] * 4 + [True] * 4
    assert group.group_seeds[0] == seeds[0]
    assert group.group_seeds[1] != seeds[1]
    with pytest.raises(ValueError, match="whole groups"):
        group.reset(options={"reset_mask": np.array([True] + [False] * 7)})
    with pytest.raises(ValueError, match="shape"):
        group.reset(options={"reset_mask": np.ones(3, bool)})


def test_seeds_of_groups(toy):
    group = toy()
    group.reset(seed=9)
    first = list(group.group_seeds)
    group.reset()
    second = list(group.group_seeds)
    assert len(set(first + second)) == 4
    group.reset(seed=9)
    assert group.group_seeds == first
    group.reset()
    assert group.group_seeds == second
    group.reset(seed=[5, 5])
    assert group.group_seeds == [5, 5]
    observations, _ = group.reset(seed=[3, 4])
    again, _ = group.reset(seed=(3, 4))
    assert observations == again
    after = group.reset()[0], list(group.group_seeds)
    group.reset(seed=[3, 4])
    assert (group.reset()[0], list(group.group_seeds)) == after
    for wrong in ([1], [1, 2, 3], [1, -2], -1, 1.5, "7"):
        with pytest.raises(ValueError, match="seed"):
            group.reset(seed=wrong)
    with pytest.raises(OptionError, match="per group"):
        group.reset(options={"task_index": [1]})
    with pytest.raises(OptionError, match="outside"):
        group.reset(options={"task_index": [1, len(TASKS)]})
    with pytest.raises(OptionError, match="unknown reset option"):
        group.reset(options={"no_such": 1})


def test_a_replica_that_raises_is_closed_and_the_others_go_on(toy):
    """F116: one of eight fails."""
    group = toy()
    group.reset(seed=1)
    group.step(["wait"] * 8)
    observations, _, _, truncated, infos = group.step(["wait"] * 2 + ["raise"] + ["wait"] * 5)
    assert truncated.tolist() == [i == 2 for i in range(8)]
    assert infos["error"][2] == "RuntimeError: raised on command"
    assert infos["_error"].tolist() == truncated.tolist()
    assert observations[2] == "said 1: wait"
    _, _, _, truncated, infos = group.step(["win"] * 8)
    assert infos["steps"].tolist() == [3, 3, 1, 3, 3, 3, 3, 3]
    _, infos = group.fork(0, [2]) if not group.terminated[0] else group.reset()
    _, infos = group.reset()
    assert not group.truncated.any()
    assert "error" not in infos


def test_a_replica_that_cannot_start_is_closed(toy):
    group = toy(bad_tasks=("task-4",))
    observations, infos = group.reset(options={"task_index": [4, 5]})
    assert group.truncated.tolist() == [True] * 4 + [False] * 4
    assert observations[0] == ""
    assert infos["error"][0] == "RuntimeError: cannot start task-4"
    observations, infos = group.reset(options={"task_index": [6, 5]})
    assert not group.truncated.any()


def test_states_go_everywhere_or_nowhere(toy):
    group = toy()
    group.reset(seed=1)
    group.step(["wait", "a", "b", "c", "wait", "d", "e", "f"])
    states = group.get_states()
    before = group.step([None] * 8)
    assert all(isinstance(state, bytes) for state in states)
    with pytest.raises(StateError):
        group.set_states([states[1], b"rubbish", *states[2:]])
    with pytest.raises(StateError):
        group.set_states([states[1], *states[1:7], b"rubbish"])
    assert group.get_states() == states
    observations, infos = group.set_states([states[5], None, *states[2:]])
    assert observations[0] == before[0][5]
    assert observations[1:] == before[0][1:]
    with pytest.raises(ValueError, match="expected 8 states"):
        group.set_states(states[:2])
    group.step(["win"] * 8)
    group.set_states(states)
    assert not group.terminated.any()


def test_fork_copies_within_a_group(toy):
    group = toy()
    group.reset(seed=1)
    group.step(["a"] + ["wait"] * 7)
    observations, infos = group.fork(0, [1, 3])
    assert observations[1] == observations[3] == observations[0] == "said 1: a"
    assert observations[2] == "said 1: wait"
    assert infos["steps"].tolist() == [1] * 8
    with pytest.raises(ValueError, match="not in the group"):
        group.fork(0, [4])
    with pytest.raises(IndexError):
        group.fork(0, [8])
    group.step(["win"] * 4 + ["wait"] * 4)
    group.fork(0, [1])
    assert group.terminated[:2].all()


def test_states_of_closed_replicas_are_refused():
    group = agent_envs.make_group("Test/Toy-v0", 1, 2)
    with pytest.raises(StateNotPortable, match="replica 0"):
        group.get_states()


def test_experts_are_asked_through_the_group(toy):
    group = toy()
    group.reset(seed=1)
    assert group.expert_actions() == dict.fromkeys(range(8), "wait")
    group.step(["wait"] * 8)
    group.step(["wait", *["win"] * 7])
    assert group.expert_actions() == {0: "win"}
    assert group.expert_actions([0]) == {0: "win"}


def test_an_expert_that_fails_closes_its_replica(toy):
    group = toy()
    assert group.expert_actions([0, 1]) == {0: None, 1: None}  # nothing started yet
    group.reset(seed=1)
    group.step(["wait", "confuse", *["wait"] * 6])
    actions = group.expert_actions()
    assert actions == {i: None if i == 1 else "wait" for i in range(8)}
    assert group.truncated.tolist() == [i == 1 for i in range(8)]
    _, _, _, _, infos = group.step(["wait"] * 8)
    assert infos["error"][1] == "RuntimeError: the expert is confused"
    assert infos["steps"][0] == 2
    with pytest.raises(IndexError, match="replica 77"):
        group.expert_actions([77])


def test_after_close_every_call_says_so(toy):
    group = toy()
    group.reset(seed=1)
    group.close()
    for call in (
        lambda: group.step(["wait"] * 8), group.reset, group.get_states, group.expert_actions,
        lambda: group.fork(0, [1]), lambda: group.set_states([None] * 8), lambda: group.advance({}),
    ):  # fmt: skip
        with pytest.raises(gymnasium.error.ClosedEnvironmentError):
            call()


def test_masked_seeds_keep_groups_apart(toy):
    """F079, F086: whatever was masked before, groups that go on have seeds of their own."""
    group = toy(4, 1)
    mask = np.array([True, False, False, False])
    group.reset(seed=[5, 6, 7, 8], options={"reset_mask": mask})
    group.reset()
    assert len(set(group.group_seeds)) == 4
    group.reset(seed=7)
    expected = list(group.group_seeds)
    group.reset()
    following = list(group.group_seeds)
    group.reset(seed=7)
    group.reset(seed=[5, 6, 7, 8], options={"reset_mask": mask})
    assert group.group_seeds == [5, *expected[1:]]
    group.reset()
    assert group.group_seeds[1:] == following[1:]
    assert group.group_seeds[0] not in (5, following[0])


class Reuser(AgentEnv):
    """F082: an environment that hands out one and the same array for ever."""

    def __init__(self, **options):
        super().__init__(ListedTasks({"train": ["a"]}), **options)
        self.observation_space = gymnasium.spaces.Box(0, 255, (2, 2, 3), np.uint8)
        self._buffer = np.zeros((2, 2, 3), np.uint8)

    task = "count"

    def _start(self, task_id, seed, options):
        self._buffer[:] = 0
        return self._buffer

    def _act(self, action):
        self._buffer += 1
        return Outcome(self._buffer, terminated=action == "end")

    def _snapshot(self):
        return int(self._buffer[0, 0, 0])

    def _restore(self, snapshot):
        self._buffer[:] = snapshot
        return self._buffer


def test_reused_buffers_do_not_change_what_was_returned(toy):
    agent_envs.register("Test/Reuser-v0", Reuser)
    group = agent_envs.make_group("Test/Reuser-v0", 1, 2, backend=BACKENDS[toy.backend]())
    seen = [group.reset(seed=1)[0]] + [group.step(["x", "end"])[0] for _ in range(3)]
    assert [int(o[0][0, 0, 0]) for o in seen] == [0, 1, 2, 3]
    assert [int(o[1][0, 0, 0]) for o in seen] == [0, 1, 1, 1]
    group.close()


def test_closing_twice_is_fine(toy):
    group = toy()
    group.reset(seed=1)
    group.close()
    group.close()


# -- construction ----------------------------------------------------------------------------------


def test_wrong_construction_lists_what_is_valid():
    with pytest.raises(OptionError, match="inline, process"):
        agent_envs.make_group("Test/Toy-v0", 1, 1, backend="ray2")
    for wrong in (None, Process, 5):
        with pytest.raises(OptionError, match="unknown backend"):
            agent_envs.make_group("Test/Toy-v0", 1, 1, backend=wrong)
    with pytest.raises(OptionError, match="no AgentEnv"):
        agent_envs.make_group("CartPole-v1", 1, 1)
    assert agent_envs.make_group("Test/Toy-v0", np.int64(2), 1, max_steps=np.int64(3)).num_envs == 2
    for numbers in ((0, 1), (1, 0), (1.5, 1), (-1, 1), (True, 1)):
        with pytest.raises(OptionError, match="positive integer"):
            agent_envs.make_group("Test/Toy-v0", *numbers)
    with pytest.raises(OptionError, match="valid: train, test"):
        agent_envs.make_group("Test/Toy-v0", 1, 1, split="nope")
    with pytest.raises(OptionError, match="no option 'no_such'; valid: bad_tasks, split"):
        agent_envs.make_group("Test/Toy-v0", 1, 1, no_such=1)
    with pytest.raises(gymnasium.error.Error):
        agent_envs.make_group("AgentEnv/NoSuch-v0", 1, 1)
    with pytest.raises(OptionError):
        Process(workers=0)


def test_make_vec_makes_groups():
    env = gymnasium.make_vec(ALFWORLD, num_envs=6, group_size=3, difficulty="toy")
    assert isinstance(env, GroupVectorEnv)
    assert (env.num_groups, env.group_size) == (2, 3)
    observations, _ = env.reset(seed=2)
    assert observations[0] == observations[1] == observations[2]
    assert "ALFWorld" in env.spec.to_json()
    with pytest.raises(ValueError, match="multiple of group_size"):
        gymnasium.make_vec(ALFWORLD, num_envs=5, group_size=2)
    with pytest.raises(ValueError, match="max_steps"):
        gymnasium.make_vec(ALFWORLD, num_envs=2, max_episode_steps=5)


def test_registering_is_idempotent_and_guards_ids():
    agent_envs.register("Test/Toy-v0", "tests.toy:ToyEnv")
    with pytest.raises(ValueError, match="registered already"):
        agent_envs.register("Test/Toy-v0", "tests.toy:Other")


# -- text spaces in Gymnasium's utilities --------------------------------------------------------------


def test_text_spaces_batch_iterate_concatenate_and_go_to_json():
    from gymnasium.vector.utils import (
        batch_space,
        concatenate,
        create_empty_array,
        iterate,
    )

    space = TextSpace(seed=1)
    for text in ("", "x" * 100_000, "漢字", "😀", "a.b c\n{}"):
        assert space.contains(text)
    for other in ("\ud800", 3, None, b"x", ["x"]):
        assert not space.contains(other)
    batch = batch_space(space, 3)
    texts = ("a", "", "漢")
    assert batch.contains(texts)
    assert tuple(iterate(batch, texts)) == texts
    assert concatenate(space, texts, create_empty_array(space, 3)) == texts
    assert space.from_jsonable(space.to_jsonable(texts)) == list(texts)
    assert space == TextSpace()
    assert [TextSpace(seed=4).sample() for _ in range(3)] == [TextSpace(seed=4).sample()] * 3
    assert all(space.contains(space.sample()) for _ in range(50))
    for utility in ("flatten", "flatdim", "flatten_space", "unflatten"):
        with pytest.raises(NotImplementedError, match="fixed-size"):
            getattr(gymnasium.spaces.utils, utility)(
                space, *(["x"] if utility in ("flatten", "unflatten") else [])
            )


def test_lazy_columns_cannot_be_told_from_others():
    import copy
    import pickle

    from agent_envs.core.lazy import LazyDict

    def lazy() -> tuple[LazyDict, list[str]]:
        made: list[str] = []
        found = LazyDict()
        found["a"] = 1
        found.later("b", lambda: made.append("b") or 2)
        return found, made

    both = {"a": 1, "b": 2}
    found, made = lazy()
    assert (list(found), "b" in found, len(found), found["a"], made) == (["a", "b"], True, 2, 1, [])
    assert (found["b"], found["b"], made) == (2, 2, ["b"])
    for look in (
        dict, copy.copy, copy.deepcopy, lambda d: {**d}, lambda d: d.copy(), lambda d: d | {},
        lambda d: {} | d, lambda d: dict(d.items()), lambda d: pickle.loads(pickle.dumps(d)),
        lambda d: dict(zip(d.keys(), d.values(), strict=True)), lambda d: eval(repr(d)),
        lambda d: {k: d.get(k) for k in d},
    ):  # fmt: skip
        assert look(lazy()[0]) == both
    assert lazy()[0] == both
    assert (lazy()[0] != both) is False
    found, made = lazy()
    found["b"] = 5
    assert (found["b"], made) == (5, [])
    assert lazy()[0].pop("b") == 2
    assert lazy()[0].popitem() == ("b", 2)


def test_room_states_are_those_of_their_step():
    """Looked at later, they still show what was so."""
    group = agent_envs.make_group("AgentEnv/Sokoban-v0", 1, 2)
    _, infos = group.reset(seed=1)
    first = list(group.result(0).info["room_state"])
    for action in ("up", "left", "down", "right"):
        group.step([action, action])
    assert infos["room_state"][0] == first


def test_gymnasiums_async_vector_env_says_what_to_do():
    make = [lambda: gymnasium.make(ALFWORLD, difficulty="toy")] * 2
    with pytest.raises(ValueError, match="shared_memory=False"):
        gymnasium.vector.AsyncVectorEnv(make)
    env = gymnasium.vector.AsyncVectorEnv(make, shared_memory=False)
    observations, _ = env.reset(seed=[1, 1])
    assert observations[0] == observations[1]
    env.close()


# -- the process backend's own ---------------------------------------------------------------------


def test_a_replica_that_dies_or_hangs_does_not_take_its_shard_along():
    group = agent_envs.make_group("Test/Toy-v0", 2, 4, backend=Process(2, timeout=1))
    group.reset(seed=1)
    group.step([f"a{i}" for i in range(8)])
    start = time.monotonic()
    observations, _, _, truncated, infos = group.step(
        ["wait", "die", "wait", "wait", "wait", "wait", "hang", "wait"]
    )
    assert time.monotonic() - start < 30
    assert truncated.tolist() == [i in (1, 6) for i in range(8)]
    assert "exit code 3" in infos["error"][1]
    assert "no answer within 1 s" in infos["error"][6]
    assert observations[0] == "said 2: wait"
    assert observations[1] == "said 1: a1"  # the last it showed
    # mates were brought back with their whole history
    observations, *_ = group.step(["wait"] * 8)
    assert [o.partition(":")[0] for o in observations] == [
        "said 1" if i in (1, 6) else "said 3" for i in range(8)
    ]
    group.fork(0, [1])
    assert not group.truncated[1]
    group.reset()
    assert not group.truncated.any()
    group.close()


def kill_workers(group: GroupVectorEnv) -> None:
    for worker in list(group.backend._workers.values()):
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.join(10)


def test_a_worker_killed_while_idle_is_nobodys_fault():
    group = agent_envs.make_group("Test/Toy-v0", 2, 2, backend=Process(2))
    group.reset(seed=1)
    group.step(["a", "b", "c", "d"])
    kill_workers(group)
    observations, _, _, truncated, infos = group.step(["wait"] * 4)
    assert observations == ("said 2: wait",) * 4
    assert not truncated.any()
    states = group.get_states()
    kill_workers(group)
    assert group.get_states() == states
    kill_workers(group)
    assert group.expert_actions() == dict.fromkeys(range(4), "win")
    kill_workers(group)
    observations, infos = group.reset(seed=1)
    assert "error" not in infos
    group.close()


def test_an_expert_that_kills_its_worker():
    group = agent_envs.make_group("Test/Toy-v0", 1, 3, backend=Process(1))
    group.reset(seed=1)
    group.step(["wait", "murder", "wait"])
    assert group.expert_actions() == {0: "wait", 1: None, 2: "wait"}
    assert group.truncated.tolist() == [False, True, False]
    group.close()


class Unrepeatable(Reuser):
    """Shows another text in every process."""

    def __init__(self, **options):
        super().__init__(**options)
        self.observation_space = TextSpace()

    def _start(self, task_id, seed, options):
        return f"pid {os.getpid()}"

    def _act(self, action):
        if action == "die":
            os._exit(1)
        return Outcome(f"pid {os.getpid()}")


def test_replays_that_come_out_differently_are_not_trusted():
    agent_envs.register("Test/Unrepeatable-v0", Unrepeatable)
    group = agent_envs.make_group("Test/Unrepeatable-v0", 1, 2, backend=Process(1))
    group.reset(seed=1)
    group.step(["x", "x"])
    _, _, _, truncated, infos = group.step(["die", "x"])
    assert truncated.all()
    assert "not repeatable" in infos["error"][1]
    group.close()


class Slow(Reuser):
    def _act(self, action):
        if action == "die":
            os._exit(1)
        time.sleep(0.2)
        return super()._act(action)


def test_the_time_limit_is_for_one_call_also_when_replaying():
    agent_envs.register("Test/SlowReplay-v0", Slow)
    group = agent_envs.make_group("Test/SlowReplay-v0", 1, 2, backend=Process(1, timeout=2.5))
    group.reset(seed=1)
    for _ in range(14):
        group.step(["x", "x"])
    _, _, _, truncated, infos = group.step(["die", "x"])
    assert truncated.tolist() == [True, False]
    group.close()


def test_a_process_object_serves_one_group():
    backend = Process(1)
    group = agent_envs.make_group("Test/Toy-v0", 1, 1, backend=backend)
    with pytest.raises(OptionError, match="another group"):
        agent_envs.make_group("Test/Toy-v0", 1, 1, backend=backend)
    group.close()


def test_results_that_cannot_leave_a_process_close_their_replica():
    group = agent_envs.make_group("Test/Toy-v0", 1, 3, backend=Process(1))
    group.reset(seed=1)
    _, _, _, truncated, infos = group.step(["wait", "unpicklable", "wait"])
    assert truncated.tolist() == [False, True, False]
    assert "cannot leave its process" in infos["error"][1]
    group.close()


SCRIPT = """
import agent_envs
from agent_envs.core import AgentEnv, ListedTasks, Outcome

print("script runs", flush=True)
SUFFIX = "!"

def shout(text):
    return text.upper() + SUFFIX

class Mine(AgentEnv):
    def __init__(self, **options):
        super().__init__(ListedTasks({"train": ["a", "b"]}), **options)
    task = property(lambda self: "none")
    def _start(self, task_id, seed, options):
        return shout(task_id)
    def _act(self, action):
        return Outcome(shout(action))
    def _snapshot(self):
        return None
    def _restore(self, snapshot):
        return ""

agent_envs.register("Mine/Env-v0", Mine)
group = agent_envs.make_group("Mine/Env-v0", 2, 2, backend="process")
print(group.reset(seed=[0, 1])[0], group.step(["x", "y", "z", None])[0])
"""


def test_environments_of_a_script_work_and_it_runs_once(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "script runs"
    assert second == "('A!', 'A!', 'B!', 'B!') ('X!', 'Y!', 'Z!', 'B!')"


def test_no_worker_survives_ctrl_c():
    code = (
        "import agent_envs, signal\n"
        # a shell's background jobs are started with Ctrl-C ignored, and so would this be
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from agent_envs import Process\n"
        "agent_envs.register('Test/Toy-v0', 'tests.toy:ToyEnv')\n"
        "group = agent_envs.make_group('Test/Toy-v0', 2, 1, backend=Process(2))\n"
        "group.reset(seed=1)\n"
        "print(*[w.process.pid for w in group.backend._workers.values()], flush=True)\n"
        "group.step(['hang', 'hang'])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 2
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(map(is_running, workers)):
        time.sleep(0.1)
    assert not any(map(is_running, workers))


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_after_an_interrupt_a_reset_starts_anew():
    group = agent_envs.make_group("Test/Toy-v0", 2, 1, backend=Process(2))
    group.reset(seed=1)
    expected = group.step(["wait", "wait"])[0]
    backend = group.backend
    receive = type(next(iter(backend._workers.values()))).receive

    def interrupted(self):
        raise KeyboardInterrupt

    type(next(iter(backend._workers.values()))).receive = interrupted
    try:
        with pytest.raises(KeyboardInterrupt):
            group.step(["wait", "wait"])
    finally:
        from agent_envs.group.process import _Worker

        _Worker.receive = receive
    _, _, _, truncated, infos = group.step(["wait", "wait"])
    assert truncated.all()
    assert "reset" in infos["error"][0]
    group.reset(seed=1)
    assert group.step(["wait", "wait"])[0] == expected
    group.close()


class BigNumbers(ToyEnv):
    """Its own info holds what fits no 64-bit column, and changes its type."""

    def _extra_info(self):
        return {"big": 2**70, "either": 1 if self._said else "one", "ratio": 0.5}


def test_info_of_any_size_and_type_has_a_column():
    agent_envs.register("Test/BigNumbers-v0", BigNumbers)
    group = agent_envs.make_group("Test/BigNumbers-v0", 1, 2)
    _, infos = group.reset(seed=0)
    assert infos["big"].tolist() == [2**70] * 2
    *_, infos = group.step(["a", None])
    assert infos["either"].tolist() == [1, "one"]
    assert infos["ratio"].dtype == float
    group.close()
