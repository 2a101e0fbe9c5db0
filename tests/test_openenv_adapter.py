"""OpenEnv servers as environments of ours: the way there and back, other servers, what goes wrong."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from functools import partial

import pytest

for _module in ("msgpack", "orjson", "starlette", "uvicorn", "websockets"):
    pytest.importorskip(_module, reason="the server needs the extra server")

import gymnasium
import numpy as np
from websockets.sync.server import serve as serve_sockets

import agent_envs
from agent_envs.adapters.openenv import OpenEnvGym, Server, action_maker, read_text
from agent_envs.agent import AgentGroup, ExpertPolicy, RandomPolicy
from agent_envs.core import OptionError, ServerError, ServerUnreachable, StateNotPortable
from tests.serving import Served

CLIENT = "agent_envs.adapters.openenv:OpenEnv/Client-v0"
OWN = tuple(agent_envs.registration.BUILT_IN)


@pytest.fixture(scope="module")
def server():
    envs = "tests.served:Test/Toy-v0,Test/Broken-v0," + ",".join(OWN)
    with Served(
        "--max-sessions", "16", "--idle-timeout", "3", "--step-timeout", "2", envs=envs
    ) as served:
        yield served


def url(server, name="Toy-v0"):
    return f"{server.url}/envs/{name}"


# -- there and back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", OWN)
def test_a_trajectory_survives_the_way_there_and_back(server, env_id):
    local = gymnasium.make(env_id).unwrapped
    remote = OpenEnvGym(url(server, env_id.partition("/")[2]))
    for seed, options in ((3, None), (None, None), (9, {"task_index": 2}), (2**65, None)):
        assert same(
            local.reset(seed=seed, options=options), remote.reset(seed=seed, options=options)
        )
        for turn in range(6):
            action = local.expert_action() if turn != 2 else "no such action"
            action = "<answer>no idea</answer>" if action is None else action
            here, there = local.step(action), remote.step(action)
            assert same(here, there)
            assert remote.admissible_actions() == local.admissible_actions()
            if here[2] or here[3]:
                break
    remote.close()


def same(here, there):
    plain = partial(json.loads, parse_constant=str)
    text = [json.dumps(x, default=lambda a: a.tolist(), sort_keys=True) for x in (here, there)]
    assert plain(text[0]) == plain(text[1])
    for name, value in here[-1].items():
        if not isinstance(value, list):
            assert type(value) is type(there[-1][name]), name
    return True


def test_a_group_of_sessions_is_that_of_local_replicas(server):
    local = AgentGroup(agent_envs.make_group("AgentEnv/Sokoban-v0", 2, 3, max_steps=8))
    remote = AgentGroup(
        agent_envs.make_group(CLIENT, 2, 3, base_url=url(server, "Sokoban-v0"), reset={"max_steps": 8}),
        prompt=local.group.profile.prompt, memory=local.memory, parser=local.parser,
    )  # fmt: skip
    for seed in (5, None):
        here, there = (
            agent.rollout(RandomPolicy(1), seed=seed).columns() for agent in (local, remote)
        )
        assert here["prompt"].tolist() == there["prompt"].tolist()
        assert here.keys() == there.keys()
        for name, column in here.items():
            if name != "room_state":
                assert np.array_equal(column, there[name]), name
    assert here["truncated"].any()
    remote.close()


def test_worker_processes_hold_sessions_too(server):
    local = agent_envs.make_group("AgentEnv/Sokoban-v0", 2, 2)
    remote = agent_envs.make_group(
        CLIENT, 2, 2, backend="process", base_url=url(server, "Sokoban-v0")
    )
    for group in (local, remote):
        group.reset(seed=3)
    here, there = (group.step(["up", "left", "up", "down"]) for group in (local, remote))
    assert here[0] == there[0]
    assert here[1].tolist() == there[1].tolist()
    remote.close()


def test_evaluation_asks_the_task_routes_how_many_there_are(server):
    """Whoever evaluates needs the number of tasks: the task routes tell it."""
    tasks = OpenEnvGym(url(server), split="test").tasks
    assert tasks.count("test") == 7
    assert OpenEnvGym(url(server, "Sokoban-v0")).tasks.count("train") is None
    with pytest.raises(OptionError, match="outside"):
        OpenEnvGym(url(server), split="test").reset(seed=1, options={"task_index": 7})

    class Win:
        def act(self, prompts):
            return ["<action>win</action>"] * len(prompts)

    found = agent_envs.evaluate(Win(), CLIENT, split="test", num_envs=3, base_url=url(server))
    assert (len(found.episodes), found.success_rate) == (7, 1.0)
    with pytest.raises(agent_envs.AgentEnvError):  # no scripted expert travels by OpenEnv
        agent_envs.evaluate(ExpertPolicy(), CLIENT, split="test", base_url=url(server))


def test_gymnasium_makes_it_too(server):
    env = gymnasium.make(CLIENT, base_url=url(server), max_steps=2)
    observation, info = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert info["task"] == f"win {info['task_id']}"
    env.step("wait")
    assert env.step("wait")[3] is True  # this side's limit
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.unwrapped.step("wait")
    env.close()


# -- what goes wrong -----------------------------------------------------------------------------------


def test_nobody_there_is_said_with_url_and_command():
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    for make in (OpenEnvGym, lambda address: agent_envs.make_group(CLIENT, 1, 2, base_url=address)):
        with pytest.raises(ServerUnreachable, match=f"agent-envs serve --port {port}") as caught:
            make(f"http://127.0.0.1:{port}/envs/Toy-v0")
        assert f"http://127.0.0.1:{port}/envs/Toy-v0" in str(caught.value)
    for wrong in (
        "127.0.0.1:8000",
        "",
        None,
        "ftp://x",
        "http://",
        5,
        "http://h:x",
        "http://h:99999",
    ):
        with pytest.raises(OptionError, match="URL"):
            OpenEnvGym(wrong)
    with pytest.raises(OptionError, match="timeout"):
        OpenEnvGym("http://127.0.0.1:1", timeout=0)
    with pytest.raises(OptionError, match="no option"):
        OpenEnvGym("http://127.0.0.1:1", obs_mode="text")


def test_a_token_is_sent():
    with Served(envs="tests.served:Test/Toy-v0", AGENT_ENVS_SERVER_TOKEN="s3cret") as closed:
        with pytest.raises(ServerError, match="401"):
            OpenEnvGym(url(closed))
        assert OpenEnvGym(url(closed), token="s3cret").reset(seed=1)[0].startswith("start of")
        prefixed = f"{closed.url}/t/s3cret/envs/Toy-v0/"
        assert OpenEnvGym(prefixed).reset(seed=1)[0].startswith("start of")


def test_errors_of_an_episode_close_its_replica_only(server):
    group = agent_envs.make_group(CLIENT, 1, 3, base_url=url(server))
    group.reset(seed=1)
    _, _, terminated, truncated, infos = group.step(["raise", "wait", "hang"])
    assert terminated.tolist() == [False] * 3
    assert truncated.tolist() == [True, False, True]
    assert "raised on command" in infos["error"][0]
    assert "took longer" in infos["error"][2]
    observations, *_ = group.step([None, "wait", None])
    assert observations[1] == "said 2: wait"
    group.reset(seed=2)
    assert not group.truncated.any()
    with pytest.raises(StateNotPortable):
        group.fork(0, [1])
    group.close()
    with pytest.raises(ServerError, match="a part is missing") as caught:
        OpenEnvGym(url(server, "Broken-v0")).reset(seed=1)
    assert caught.value.code == "FACTORY_ERROR"
    refused = OpenEnvGym(url(server), reset={"no_such": 1})
    with pytest.raises(ServerError, match="no_such"):
        refused.reset(seed=1)


def test_a_session_that_was_closed_meanwhile_is_opened_again(server):
    env = OpenEnvGym(url(server))
    first = env.reset(seed=4)
    threading.Event().wait(4)  # the server reaps it
    with pytest.raises(ServerUnreachable, match="lost"):
        env.step("wait")
    with pytest.raises(ServerUnreachable, match="reset"):
        env.step("wait")
    assert env.reset(seed=4) == first
    threading.Event().wait(4)
    assert env.reset(seed=4) == first
    env.close()


# -- other people's servers ------------------------------------------------------------------------------


class Foreign:
    """An OpenEnv server of another kind, as far as a client sees it."""

    def __init__(self, schema, answers):
        self.seen = []

        def page(link, request):
            if request.path == "/x/ws":
                return None
            if request.path == "/x/schema" and schema is not None:
                return link.respond(200, json.dumps({"action": schema}))
            return link.respond(404, "no such page")

        def session(link):
            for frame in link:
                message = json.loads(frame)
                self.seen.append(message)
                answer = answers(message)
                link.send(answer if isinstance(answer, str) else json.dumps(answer))

        self._server = serve_sockets(session, "127.0.0.1", 0, process_request=page)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.socket.getsockname()[1]}/x"

    def env(self, **options):
        return OpenEnvGym(self.url, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()


def shown(observation, reward=None, done=False):
    return {
        "type": "observation",
        "data": {"observation": observation, "reward": reward, "done": done},
    }


def counting(message):
    if message["type"] == "reset":
        return shown({"message": "guess", "metadata": {}})
    guess = message["data"]["guess"]
    if not isinstance(guess, int):
        return {"type": "error", "data": {"message": "Invalid message", "code": "VALIDATION_ERROR"}}
    return shown({"message": f"you said {guess}"}, 1 if guess == 7 else None, guess == 7)


def test_a_server_with_a_number_for_an_action():
    schema = {
        "required": ["guess"],
        "properties": {"guess": {"type": "integer"}, "note": {"type": "string"}},
    }
    with Foreign(schema, counting) as foreign:
        env = foreign.env(reset={"level": 2})
        observation, info = env.reset(seed=5)
        assert (observation, info["admissible_actions"], info["task"]) == ("guess", None, "")
        assert info["data_source"] == "openenv"
        assert foreign.seen[-1] == {"type": "reset", "data": {"level": 2, "seed": 5}}
        observation, reward, terminated, truncated, info = env.step("six")
        assert "refused" in observation
        assert (reward, terminated, info["is_action_valid"], info["steps"]) == (
            0.0,
            False,
            False,
            1,
        )
        assert env.step("6")[:4] == ("you said 6", 0.0, False, False)
        observation, reward, terminated, truncated, info = env.step("7")
        assert (reward, terminated, info["won"], info["score"], info["steps"]) == (
            1.0,
            True,
            True,
            1.0,
            3,
        )
        env.reset(seed=1, options={"task_index": 3})
        assert foreign.seen[-1]["data"] == {"level": 2, "seed": 1, "task_index": 3, "index": 3}


def test_actions_and_observations_of_any_shape():
    two = {"required": ["x", "y"], "properties": {}}
    with Foreign(two, lambda m: shown({"board": [1, 2], "a": "b", "c": "d"})) as foreign:
        env = foreign.env()
        assert json.loads(env.reset(seed=1)[0]) == {"board": [1, 2], "a": "b", "c": "d"}
        for action in ("no object", "[1]", "[" * 10**5, ""):
            observation, *_, info = env.step(action)
            assert (observation, info["is_action_valid"]) == (
                "The action must be a JSON object.",
                False,
            )
        assert foreign.seen[-1]["type"] == "reset"
        assert env.step('{"x": 1, "y": 2}')[4]["is_action_valid"] is True
        assert foreign.seen[-1] == {"type": "step", "data": {"x": 1, "y": 2}}
        own = foreign.env(to_action=lambda t: {"go": t}, to_observation=lambda o: o["a"])
        assert own.reset(seed=1)[0] == "b"
        own.step("north")
        assert foreign.seen[-1]["data"] == {"go": "north"}
    assert action_maker({})("{}") == {}
    assert read_text({"text": "a", "b": "c"}) == "a"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("rubbish", "lost"), ("[]", "no OpenEnv frame"), ('{"type": "observation"}', "no OpenEnv frame"),
        ('{"type": "state", "data": {}}', "answered reset by"),
        ('{"type": "error", "data": {}}', "None"),
    ],
)  # fmt: skip
def test_servers_that_answer_nonsense(answer, words):
    with (
        Foreign({"required": ["text"]}, lambda message: answer) as foreign,
        pytest.raises(ServerError, match=words),
    ):
        foreign.env().reset(seed=1)


def test_infos_of_other_meaning_are_left_out():
    info = {
        "won": "yes",
        "score": 1,
        "admissible_actions": [1],
        "task": None,
        "steps": "a",
        "lives": 3,
    }
    with Foreign(None, lambda m: shown({"text": "t", "info": info}, 0.5, True)) as foreign:
        env = foreign.env(to_action=lambda text: {"text": text})
        _, found = env.reset(seed=1)
        assert (found["score"], found["lives"], found["admissible_actions"]) == (1.0, 3, None)
        observation, reward, terminated, _, found = env.step("a")
        kinds = Counter(type(found[key]) for key in ("won", "score", "steps", "task"))
        assert kinds == Counter([bool, float, int, str])
        assert (reward, terminated, found["won"]) == (0.5, True, True)


def test_no_answer_in_time():
    with Foreign(
        {"required": ["text"]}, lambda m: threading.Event().wait(1.5) or shown({})
    ) as foreign:
        env = foreign.env(timeout=0.3)
        with pytest.raises(ServerUnreachable, match=r"0\.3 s"):
            env.reset(seed=1)
    assert Server("ws://127.0.0.1:5/a/", None, 1.0).url == "ws://127.0.0.1:5/a"
