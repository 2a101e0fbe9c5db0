"""Groups on servers: what breaks comes back, what cannot is closed by name."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
import time

import pytest

for _module in ("msgpack", "orjson", "starlette", "uvicorn", "websockets"):
    pytest.importorskip(_module, reason="the remote backend needs the extra server")

import agent_envs
from agent_envs.core import OptionError, ServerError, ServerUnreachable, StateError
from agent_envs.group import GroupVectorEnv
from agent_envs.group.link import socket_url
from agent_envs.group.remote import Remote
from agent_envs.group.wire import SignedState
from agent_envs.group.worker import same
from tests import served  # noqa: F401 - registers the test environments here too
from tests.serving import Served

TOY = "Test/Toy-v0"
KEY = "ab" * 32


@pytest.fixture(scope="module")
def server():
    options = "--workers", "2", "--step-timeout", "2", "--max-message", "1000000"
    with Served(*options, AGENT_ENVS_STATE_KEY=KEY) as one:
        yield one


@pytest.fixture
def make():
    groups = []

    def make_group(backend, env_id=TOY, num_groups=2, group_size=2, **options) -> GroupVectorEnv:
        groups.append(
            agent_envs.make_group(env_id, num_groups, group_size, backend=backend, **options)
        )
        return groups[-1]

    yield make_group
    for group in groups:
        group.close()


def cut(group: GroupVectorEnv) -> None:
    """The network fails under the client's feet."""
    for shard in group.backend._shards:
        shard.link._socket.socket.shutdown(socket.SHUT_RDWR)


def kill(server: Served) -> None:
    """All workers die, so whichever served a group is dead."""
    for pid in server.workers():
        os.kill(pid, signal.SIGKILL)


def play(group: GroupVectorEnv, turns: int, disturb=lambda turn: None) -> list:
    seen = [group.reset(seed=5)[0]]
    for turn in range(turns):
        disturb(turn)
        actions = [f"a{turn}.{i}" for i in range(group.num_envs)]
        observations, rewards, terminated, truncated, infos = group.step(actions)
        seen.append((observations, truncated.tolist(), infos["steps"].tolist(), "error" in infos))
    seen.append((group.get_states(), group.expert_actions()))
    return seen


@pytest.mark.parametrize("checkpoint", [1, 3, 16])
def test_lost_connections_change_nothing(server, make, checkpoint):
    expected = play(make("inline"), 8)
    group = make(Remote([server.url] * 2, checkpoint=checkpoint))
    found = play(group, 8, lambda turn: cut(group) if turn % 3 == 1 else None)
    assert found == expected


def test_a_url_is_the_name_of_a_backend(make, monkeypatch):
    """As in `--backend` and the trainer's `env.backend`; the token comes from the environment."""
    with Served(AGENT_ENVS_SERVER_TOKEN="good") as guarded:
        with pytest.raises(ServerError, match="a token is needed"):
            make(guarded.url)
        monkeypatch.setenv("AGENT_ENVS_SERVER_TOKEN", "good")
        assert play(make(f"{guarded.url},{guarded.url}"), 3) == play(make("inline"), 3)


def test_killed_workers_lose_nothing(server, make):
    expected = play(make("inline"), 6)
    group = make(Remote(server.url, checkpoint=2))
    found = play(group, 6, lambda turn: kill(server) if turn == 3 else None)
    assert found == expected
    states = group.get_states()
    cut(group)
    assert group.get_states() == states
    cut(group)
    observations, infos = group.fork(0, [1])
    assert observations[1] == observations[0]
    cut(group)
    assert group.reset(seed=5)[0] == expected[0]


def test_finished_replicas_come_back_finished(server, make):
    group = make(Remote(server.url))
    group.reset(seed=1)
    group.step(["win", "wait", "wait", "wait"])
    cut(group)
    observations, rewards, terminated, *_ = group.step(["wait"] * 4)
    assert terminated.tolist() == [True, False, False, False]
    assert observations == ("said 1: win", *["said 2: wait"] * 3)
    group.fork(0, [1])
    assert group.terminated.tolist() == [True, True, False, False]


def test_a_replica_that_kills_or_hangs_its_worker_is_found_out(server, make):
    """F116: the others go on, with their whole history."""
    group = make(Remote(server.url), num_groups=1, group_size=4)
    group.reset(seed=1)
    group.step(["a", "b", "c", "d"])
    observations, _, _, truncated, infos = group.step(["wait", "die", "wait", "hang"])
    assert truncated.tolist() == [False, True, False, True]
    assert "connection lost" in infos["error"][1]
    assert "longer than 2 s" in infos["error"][3]
    assert observations[0] == observations[2] == "said 2: wait"
    assert observations[1] == "said 1: b"
    observations, *_ = group.step(["wait"] * 4)
    assert observations[0] == "said 3: wait"
    group.reset()
    assert not group.truncated.any()


def test_environments_without_states_are_truncated_by_name(server, make):
    group = make(Remote(server.url), "Test/Stateless-v0")
    group.reset(seed=1)
    group.step(["a"] * 4)
    cut(group)
    _, _, _, truncated, infos = group.step(["b"] * 4)
    assert truncated.all()
    assert "saves no states (StateNotPortable: no states here)" in infos["error"][0]
    group.reset(seed=1)
    assert group.step(["b"] * 4)[0] == ("said 1: b",) * 4


def test_a_message_too_large_closes_its_replica_only(server, make):
    group = make(Remote(server.url), num_groups=1, group_size=3)
    group.reset(seed=1)
    _, _, _, truncated, infos = group.step(["wait", "x" * 2_000_000, "wait"])
    assert truncated.tolist() == [False, True, False]
    assert "larger than the server takes" in infos["error"][1]
    assert group.step(["wait"] * 3)[4]["steps"].tolist() == [2, 0, 2]


def test_hostile_texts_are_valid_steps(server, make):
    texts = [
        "",
        "\x00",
        "\U0001f600\u202e" * 100,
        "x" * 300_000,
        "a\nb\r{}%s",
        "\u6f22" * 1000,
        "'\"\\",
        "nan",
    ]
    group = make(Remote(server.url), num_groups=2, group_size=4)
    local = make("inline", num_groups=2, group_size=4)
    for one in (group, local):
        one.reset(seed=3)
    assert group.step(texts)[0] == local.step(texts)[0]
    assert group.get_states() == local.get_states()


def test_states_are_signed_and_portable_between_connections(server, make):
    group = make(Remote(server.url))
    group.reset(seed=1)
    group.step(["a", "b", "c", "d"])
    states = pickle.loads(pickle.dumps(group.get_states()))
    other = make(Remote(server.url))
    assert other.set_states(states)[0] == ("said 1: a", "said 1: b", "said 1: c", "said 1: d")
    local = make("inline")
    local.set_states(states)  # and back to this process
    assert local.get_states() == states
    with pytest.raises(StateError, match="signature"):
        group.set_states([bytes(state) for state in states])
    forged = SignedState(bytes(states[0]) + b"x", states[0].signature)
    with pytest.raises(StateError, match="not signed by this server"):
        group.set_states([forged, *states[1:]])


def test_a_refused_state_changes_nothing_on_any_server(server, make):
    group = make(Remote([server.url] * 2))
    group.reset(seed=1)
    group.step(["a", "b", "c", "d"])
    before = group.get_states()
    forged = SignedState(b"AE1:", b"0" * 32)
    for states in (
        [before[1], before[0], before[2], forged],
        [forged, before[1], before[3], before[2]],
    ):
        with pytest.raises(StateError):
            group.set_states(states)
        assert group.get_states() == before
    assert group.step(["e"] * 4)[0] == ("said 2: e",) * 4


def test_servers_with_one_key_restore_each_others_states(server, make):
    with Served(
        envs="tests.served:Test/Toy-v0", AGENT_ENVS_STATE_KEY=KEY, AGENT_ENVS_SERVER_TOKEN="t"
    ) as other:
        with pytest.raises(ServerError, match="401"):
            make(Remote(other.url))
        group = make(Remote([other.url, server.url], token="t", reconnect=1), num_groups=3)
        assert group.backend._shard_of == [0, 0, 0, 0, 1, 1]
        group.reset(seed=1)
        group.step(["a"] * 6)
        moved = make(Remote(server.url), num_groups=3)
        assert moved.set_states(group.get_states())[0] == ("said 1: a",) * 6
        other.stop()  # a failed shard is truncated, the other goes on
        observations, _, _, truncated, infos = group.step(["b"] * 6)
        assert truncated.tolist() == [True] * 4 + [False] * 2
        assert other.url in infos["error"][0]
        assert observations[4:] == ("said 2: b",) * 2
        group.reset(seed=1)
        assert group.truncated.tolist() == [True] * 4 + [False] * 2


def test_an_unreachable_server_is_named_with_the_command_that_starts_it():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(
        ServerUnreachable, match=f"http://127.0.0.1:{port} .*agent-envs serve --port {port}"
    ):
        agent_envs.make_group(TOY, backend=Remote(f"http://127.0.0.1:{port}"))
    for wrong in ("", "127.0.0.1:80", "ftp://x", "http://", "http://h:x", "http://h:99999", 5):
        for given in ([wrong], wrong):
            with pytest.raises(OptionError, match="URL looks like"):
                Remote(given)
    for options in ({"timeout": 0}, {"timeout": None}, {"reconnect": -1}, {"reconnect": "5"},
                    {"checkpoint": 0}, {"token": "read from a file\n"}, {"token": 5}):  # fmt: skip
        with pytest.raises(OptionError, match=next(iter(options))):
            Remote("http://127.0.0.1:8000", **options)
    with pytest.raises(OptionError):
        Remote([])
    assert socket_url("https://h:1/t/x/") == "wss://h:1/t/x/group"


def test_a_server_that_never_answers_is_given_up_on_the_clients_clock():
    """F070"""
    silent = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{silent.getsockname()[1]}"
    started = time.monotonic()
    with pytest.raises(ServerUnreachable, match="no env server answers"):
        agent_envs.make_group(TOY, backend=Remote(url, reconnect=0.5))
    assert time.monotonic() - started < 10
    silent.close()


def test_a_frozen_server_is_given_up_too(server, make):
    group = make(Remote(server.url, timeout=1))
    group.reset(seed=1)
    workers = server.workers()
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        started = time.monotonic()
        _, _, _, truncated, infos = group.step(["a"] * 4)
        assert time.monotonic() - started < 10
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
    assert truncated.all()
    assert "no answer within 1 s" in infos["error"][0]
    group.reset(seed=1)
    assert group.step(["a"] * 4)[0] == ("said 1: a",) * 4


def test_wrong_ids_and_options_of_the_server_are_told(server):
    with pytest.raises(OptionError, match="this server has no 'AgentEnv/NumberLine-v0'"):
        agent_envs.make_group("AgentEnv/NumberLine-v0", backend=Remote(server.url))
    backend = Remote(server.url)
    agent_envs.make_group(TOY, backend=backend).close()
    with pytest.raises(OptionError, match="another group"):
        agent_envs.make_group(TOY, backend=backend)


@pytest.mark.parametrize("options", [{}, {"obs_mode": "both"}])
def test_images_and_arrays_come_as_they_are(server, make, options):
    try:
        local = make("inline", "AgentEnv/Sokoban-v0", **options)
    except (OptionError, ImportError) as error:
        pytest.skip(str(error))
    group = make(Remote(server.url), "AgentEnv/Sokoban-v0", **options)
    for one in (local, group):
        one.reset(seed=2)
    ours, theirs = ([one.step([a] * 4) for a in ("up", "left", "down")] for one in (group, local))
    for mine, yours in zip(ours, theirs, strict=True):
        for a, b in zip(mine[0], yours[0], strict=True):
            assert same(a, b)
        for key in yours[4]:
            assert mine[4][key].dtype == yours[4][key].dtype
            assert mine[4][key].tolist() == yours[4][key].tolist(), key


def test_a_full_server_is_said_to_be_full():
    """Not "no server answers, start one": it is there."""
    with Served("--max-sessions", "1") as one:
        first = agent_envs.make_group(TOY, backend=Remote(one.url))
        for _ in range(5):  # the error frame or the close code comes first
            with pytest.raises(ServerError, match=r"sessions .*taken .*--max-sessions") as caught:
                agent_envs.make_group(TOY, backend=Remote(one.url))
            assert caught.value.code == "CAPACITY_REACHED"
        first.close()


def test_clients_do_not_meet(server):
    """F113: interleaved sessions give what each gives alone."""
    expected = play(agent_envs.make_group(TOY, 2, 2), 10)
    found = {}

    def run(number: int) -> None:
        group = agent_envs.make_group(TOY, 2, 2, backend=Remote(server.url))
        found[number] = play(group, 10)
        group.close()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [found[i] == expected for i in range(6)] == [True] * 6
