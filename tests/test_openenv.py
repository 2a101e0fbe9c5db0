"""OpenEnv's protocol by raw frames: every message, error, mount and route; hostile text; same episodes."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import re
import runpy
import time

import pytest

for _module in ("msgpack", "orjson", "starlette", "uvicorn", "websockets"):
    pytest.importorskip(_module, reason="the server needs the extra server")

import gymnasium
from starlette.websockets import WebSocket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

import agent_envs
from agent_envs.agent import AgentGroup, parser_for
from agent_envs.core import OptionError
from agent_envs_server import Settings, openenv_json
from agent_envs_server.counters import Counters, new_board
from agent_envs_server.engine import Crew
from agent_envs_server.openenv_http import mounts
from agent_envs_server.openenv_socket import OpenEnvSocket
from agent_envs_server.refusals import Refusal
from tests.conftest import ROOT
from tests.serving import Served
from tests.test_server import eventually

TOKEN = "s3cret-Token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
OWN = tuple(agent_envs.registration.BUILT_IN)
ENVS = "tests.served:Test/Toy-v0,Test/Slow-v0,Test/Odd-v0,Test/Broken-v0,Other/Toy-v0," + ",".join(
    OWN
)


@pytest.fixture(scope="module")
def server():
    with Served(
        "--default-env", "Test/Toy-v0", "--max-message", "2000000", "--step-timeout", "6", "--max-steps", "40",
        "--max-sessions", "4", "--idle-timeout", "4", envs=ENVS, AGENT_ENVS_SERVER_TOKEN=TOKEN,
    ) as served:  # fmt: skip
        yield served
        assert TOKEN not in served.stop()


class Client:
    """An OpenEnv client that sends any frame."""

    def __init__(self, url: str, path: str = "/envs/Toy-v0/ws", **options) -> None:
        options.setdefault("additional_headers", BEARER)
        address = url.replace("http", "ws", 1) + path
        self.socket = connect(
            address, compression=None, proxy=None, max_size=None, **options
        ).__enter__()

    def ask(self, kind: str, **fields) -> dict:
        return self.raw(json.dumps({"type": kind, **fields}))

    def raw(self, frame) -> dict:
        self.socket.send(frame)
        return self.receive()

    def receive(self) -> dict:
        text = self.socket.recv(timeout=60)
        assert isinstance(text, str)
        return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))

    def reset(self, **data) -> dict:
        answer = self.ask("reset", data=data)
        assert answer["type"] == "observation", answer
        return answer["data"]

    def step(self, text) -> dict:
        answer = self.ask("step", data={"text": text})
        assert answer["type"] == "observation", answer
        return answer["data"]

    def error(self, kind: str, **fields) -> str:
        answer = self.ask(kind, **fields)
        assert answer["type"] == "error", answer
        assert answer["data"]["message"]
        return answer["data"]["code"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


@pytest.fixture
def client(server):
    with Client(server.url) as one:
        yield one


def test_an_environment_that_cannot_be_imported_takes_no_place():
    """The session is not made, so its place must be given back; nor does its import stop the loop."""
    agent_envs.register("Test/Unimportable-v0", "tests.no_such_module:NoEnv")
    counters = Counters(new_board(1), 1, 0)
    sent: list[dict] = []

    async def play() -> None:
        incoming: asyncio.Queue[dict] = asyncio.Queue()
        await incoming.put({"type": "websocket.connect"})

        async def send(message) -> None:
            sent.append(message)

        scope = {"type": "websocket", "query_string": b"", "headers": [], "path": "/ws"}
        socket = WebSocket(scope, incoming.get, send)
        settings = Settings()
        await OpenEnvSocket(socket, settings, counters, Crew(), "Test/Unimportable-v0").serve()

    try:
        asyncio.run(asyncio.wait_for(play(), 30))
    finally:
        agent_envs.registration._ids.remove("Test/Unimportable-v0")
        gymnasium.registry.pop("Test/Unimportable-v0")
    assert counters.total("sessions") == 0
    assert [message["type"].partition(".")[2] for message in sent] == ["accept", "send", "close"]
    data = json.loads(sent[1]["text"])["data"]
    assert data["code"] == "FACTORY_ERROR"
    assert "no_such_module" in data["message"]


# -- messages --------------------------------------------------------------------------------------


def test_an_episode(client):
    assert client.ask("state")["data"] == {
        "episode_id": None,
        "step_count": 0,
        "env": "Test/Toy-v0",
    }
    start = client.reset(seed=3, episode_id="mine", split="test")
    assert (start["reward"], start["done"]) == (None, False)
    shown = start["observation"]
    assert shown["text"].startswith("start of task-")
    assert shown["prompt"] == f"T:{shown['info']['task']} O:{shown['text']} A:'wait', 'win'"
    assert (shown["terminated"], shown["truncated"]) == (False, False)
    assert shown["info"]["admissible_actions"] == ["wait", "win"]
    assert shown["info"]["data_source"] == "embedded"
    turn = client.step("<think>hm</think><action>wait</action>")
    assert (turn["observation"]["text"], turn["reward"], turn["done"]) == (
        "said 1: wait",
        0.0,
        False,
    )
    assert "H:[Observation 1: '" in turn["observation"]["prompt"]  # the memory works here
    state = client.ask("state")
    assert state["type"] == "state"
    assert state["data"] == {
        "episode_id": "mine", "step_count": 1, "env": "Test/Toy-v0", "seed": 3, "split": "test",
        "task_id": shown["info"]["task_id"], "terminated": False, "truncated": False,
    }  # fmt: skip
    turn = client.step("win")
    assert (turn["reward"], turn["done"], turn["observation"]["terminated"]) == (1.0, True, True)
    assert turn["observation"]["prompt"] == ""
    assert client.ask("state")["data"]["terminated"] is True
    client.socket.send('{"type": "close"}')
    with pytest.raises(ConnectionClosed) as caught:
        client.receive()
    assert caught.value.rcvd.code == 1000


def test_data_may_be_left_out_or_null(client):
    for frame in ('{"type": "reset"}', '{"type": "reset", "data": null}', '{"type":"reset","data":{"seed":null}}'):  # fmt: skip
        assert client.raw(frame)["type"] == "observation"


def test_steps_before_the_reset_and_after_the_end_are_typed_errors_and_start_nothing(client):
    """F118"""
    assert client.error("step", data={"text": "wait"}) == "EXECUTION_ERROR"
    client.reset(seed=1)
    client.step("win")
    assert client.error("step", data={"text": "wait"}) == "EXECUTION_ERROR"
    assert client.ask("state")["data"]["step_count"] == 1
    client.reset(seed=1)
    assert client.step("wait")["observation"]["text"] == "said 1: wait"


BAD = [
    ("unknown type", '{"type": "dance"}', "UNKNOWN_TYPE"),
    ("no type", "{}", "UNKNOWN_TYPE"),
    ("type no text", '{"type": ["step"]}', "UNKNOWN_TYPE"),
    ("group frame", '{"type": "group_reset"}', "UNKNOWN_TYPE"),
    ("no JSON", "step left", "INVALID_JSON"),
    ("empty", "", "INVALID_JSON"),
    ("cut", '{"type": "step", "data": {"text', "INVALID_JSON"),
    ("binary", b'{"type": "state"}', "INVALID_JSON"),
    ("nesting", "[" * 100_000, "INVALID_JSON"),
    ("nested data", '{"type": "step", "data": ' + '{"a":' * 50_000, "INVALID_JSON"),
    ("endless digits", '{"type": "reset", "data": {"seed": ' + "9" * 5000 + "}}", "INVALID_JSON"),
    ("a list", "[1, 2]", "VALIDATION_ERROR"),
    ("null", "null", "VALIDATION_ERROR"),
    ("no data", '{"type": "step"}', "VALIDATION_ERROR"),
    ("data no object", '{"type": "step", "data": "wait"}', "VALIDATION_ERROR"),
    ("reset data", '{"type": "reset", "data": [1]}', "VALIDATION_ERROR"),
    ("negative seed", '{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR"),
    ("seed 1.0", '{"type": "reset", "data": {"seed": 1.0}}', "VALIDATION_ERROR"),
    ("seed true", '{"type": "reset", "data": {"seed": true}}', "VALIDATION_ERROR"),
    ("seed text", '{"type": "reset", "data": {"seed": "1"}}', "VALIDATION_ERROR"),
    ("seed NaN", '{"type": "reset", "data": {"seed": NaN}}', "VALIDATION_ERROR"),
    ("seed infinite", '{"type": "reset", "data": {"seed": 1e999}}', "VALIDATION_ERROR"),
    ("long id", json.dumps({"type": "reset", "data": {"episode_id": "x" * 256}}), "VALIDATION_ERROR"),
    ("id no text", '{"type": "reset", "data": {"episode_id": 5}}', "VALIDATION_ERROR"),
    ("misspelt", '{"type": "reset", "data": {"sed": 1}}', "VALIDATION_ERROR"),
    ("split", '{"type": "reset", "data": {"split": "nope"}}', "VALIDATION_ERROR"),
    ("split no text", '{"type": "reset", "data": {"split": ["train"]}}', "VALIDATION_ERROR"),
    ("index", '{"type": "reset", "data": {"task_index": 99}}', "VALIDATION_ERROR"),
    ("index text", '{"type": "reset", "data": {"task_index": "1"}}', "VALIDATION_ERROR"),
    ("two indices", '{"type": "reset", "data": {"task_index": 1, "index": 2}}', "VALIDATION_ERROR"),
    ("option", '{"type": "reset", "data": {"max_steps": -3}}', "VALIDATION_ERROR"),
    ("window", '{"type": "reset", "data": {"render_mode": "human"}}', "VALIDATION_ERROR"),
    ("no reset", '{"type": "reset", "data": {"bad_tasks": ["task-2"], "task_index": 2}}', "EXECUTION_ERROR"),
]  # fmt: skip


def test_bad_frames_get_typed_errors_and_the_session_goes_on(client):
    client.reset(seed=1)
    client.step("wait")
    for what, frame, code in BAD:
        answer = client.raw(frame)
        assert (what, answer["type"], answer["data"].get("code")) == (what, "error", code), answer
        assert answer["data"]["message"], what
    assert client.step("wait")["observation"]["text"] == "said 2: wait"


def test_mcp_is_refused_in_json_rpc(server, client):
    answer = client.ask("mcp", data={"jsonrpc": "2.0", "id": 5, "method": "tools/list"})
    assert (answer["type"], answer["data"]["id"]) == ("mcp", 5)
    assert answer["data"]["error"]["code"] == -32601
    with Client(server.url, "/envs/Toy-v0/mcp") as tools:
        answer = tools.receive()
        assert (answer["jsonrpc"], answer["error"]["code"]) == ("2.0", -32601)
    for path in ("/mcp", "/envs/Toy-v0/mcp"):
        status, body = post(server, path, {"jsonrpc": "2.0", "id": "a", "method": "tools/call"})
        assert (status, body["id"], body["error"]["code"]) == (200, "a", -32601)
        assert post(server, path, b"{rubbish")[1]["error"]["code"] == -32700


# -- actions are turns, whatever they are ------------------------------------------------------------

SPELLED = [
    "10",
    "-0",
    "1.50",
    "1e5",
    "1E+400",
    "true",
    "false",
    "null",
    "NaN",
    "Infinity",
    "-Infinity",
    "9" * 40,
]


@pytest.mark.parametrize("spelling", SPELLED)
def test_numbers_and_words_come_back_as_they_were_spelled(client, spelling):
    client.reset(seed=1)
    answer = client.raw('{"type": "step", "data": {"text": ' + spelling + "}}")
    assert answer["data"]["observation"]["text"] == f"said 1: {spelling.lower()}"


HOSTILE = [
    ("lone surrogate", '{"text": "\\ud800"}', ""),
    ("NUL", '{"text": "a\\u0000b"}', "a\0b"),
    ("huge", json.dumps({"text": "x" * 1_000_000}), "x" * 1_000_000),
    ("empty", '{"text": ""}', ""),
    ("blank", '{"text": " \\n "}', ""),
    ("list", '{"text": [1, "a"]}', '[1, "a"]'),
    ("object", '{"text": {"a": 1}}', '{"a": 1}'),
    ("object in place of data", '{"move": "left"}', '{"move": "left"}'),
    ("nothing", "{}", "{}"),
    ("more than text", '{"text": "wait", "metadata": {}}', "wait"),
    ("two actions", '{"text": "<action>win</action><action>wait</action>"}', "win"),
    ("thought only", '{"text": "<think>win</think>"}', ""),
    ("empty tag", '{"text": "<action></action>"}', ""),
    ("unclosed", '{"text": "<action>win"}', ""),
    ("surrogate in an object", '{"\\ud800": 1}', ""),
    ("scripts", json.dumps({"text": "\u5f80\u5de6 \U0001f600 \u202e"}), "\u5f80\u5de6 \U0001f600 \u202e"),
    ("braces", '{"text": "{task} %s {0} <|im_end|>"}', "{task} %s {0} <|im_end|>"),
]  # fmt: skip


def test_hostile_text_is_a_turn_and_never_an_error(client):
    for what, data, said in HOSTILE:
        client.reset(seed=1)
        answer = client.raw('{"type": "step", "data": ' + data + "}")
        assert (what, answer["type"]) == (what, "observation"), answer
        assert answer["data"]["observation"]["text"] == f"said 1: {said}", what
        assert answer["data"]["observation"]["info"]["steps"] == 1, what


def test_deep_objects_as_actions_are_turns_or_invalid_json(client):
    client.reset(seed=1)
    frame = '{"type": "step", "data": {"text": ' + "[" * 300 + "]" * 300 + "}}"
    assert client.raw(frame)["data"]["observation"]["info"]["steps"] == 1


def test_what_json_cannot_hold_becomes_null(server):
    with Client(server.url, "/envs/Odd-v0/ws") as odd:
        info = odd.reset(seed=1)["observation"]["info"]
        assert (info["ratio"], info["row"]) == (None, [0, 1, 2])
        assert info["pair"] == [1, None]
        turn = odd.step("nan")
        assert turn["reward"] is None
        assert turn["observation"]["text"] == "lone \ud800 nan"


def test_an_environment_that_fails_ends_its_episode_only(client):
    """F116"""
    for action in ("raise", "unpicklable"):
        client.reset(seed=1)
        turn = client.step(action)
        assert turn["done"] is True
        assert turn["observation"]["truncated"] is True
        assert turn["observation"]["info"]["error"]
        assert client.error("step", data={"text": "wait"}) == "EXECUTION_ERROR"
        assert client.ask("state")["data"]["truncated"] is True
    client.reset(seed=1)
    assert client.step("wait")["observation"]["text"] == "said 1: wait"


def test_json_of_our_own():
    for text in ("{", "9" * 5000, "[" * 10**6, b"\xff"):
        with pytest.raises(Refusal) as caught:
            openenv_json.read(text)
        assert caught.value.code == "INVALID_JSON"
    for value in (object(), {"a": {1, 2}}, {("a",): 1}):
        with pytest.raises(TypeError):
            openenv_json.write(value)
    assert (
        openenv_json.write([math.nan, "\ud800\u20ac", 10**30])
        == f'[null, "\\ud800\\u20ac", {10**30}]'
    )


ODD = [
    "-1",
    "0",
    str(2**70),
    "1.5",
    "NaN",
    '""',
    '"x"',
    '"\\ud800"',
    "[]",
    "{}",
    '[[1], "a"]',
    "true",
    '{"a": 1}',
]


@pytest.mark.parametrize("env_id", OWN)
def test_any_value_of_any_option_is_an_episode_or_a_typed_error(server, env_id):
    kind, seen = agent_envs.env_class(env_id), set()
    names = ("seed", "episode_id", "task_index", *kind.start_options, *kind.option_names())
    with Client(server.url, f"/envs/{env_id.partition('/')[2]}/ws") as one:
        for name in names:
            for value in ODD:
                answer = one.raw('{"type": "reset", "data": {"' + name + '": ' + value + "}}")
                seen.add(answer["data"].get("code", answer["type"]))
        one.reset(seed=1)
        assert one.step("look")["observation"]["info"]["steps"] == 1
    assert seen <= {"observation", "VALIDATION_ERROR", "EXECUTION_ERROR"}


# -- the same episodes as everywhere -----------------------------------------------------------------


@pytest.mark.parametrize("env_id", OWN)
def test_an_episode_is_that_of_the_local_environment(server, env_id):
    """F077, F115: the seed and the options arrive."""
    name, parser = env_id.partition("/")[2], parser_for(env_id)
    env = gymnasium.make(env_id).unwrapped
    group = AgentGroup(agent_envs.make_group(env_id))
    with Client(server.url, f"/envs/{name}/ws") as remote:
        for seed, data in (
            (11, {}),
            (None, {}),
            (2**70, {}),
            (4, {"task_index": 1, "split": env.split}),
        ):
            options = {"task_index": data["task_index"]} if data else {}
            observation, info = env.reset(seed=seed, options=options)
            group_options = {"task_index": [1]} if data else {}
            prompts = group.reset(None if seed is None else [seed], group_options)
            got = remote.reset(**data, **({} if seed is None else {"seed": seed}))
            same_view(got, observation, info)
            for turn in range(4):
                assert got["observation"]["prompt"] == prompts[0].text
                action = env.expert_action() if turn < 3 else "no such thing"
                action = action if action is not None else "<search>what</search>"
                done = group.step([parser.format(action)])
                observation, reward, terminated, truncated, info = env.step(done.steps[0].action)
                got = remote.step(parser.format(action) if turn % 2 else action)
                same_view(got, observation, info)
                assert got["reward"] == reward
                assert got["observation"]["terminated"] == terminated
                assert got["observation"]["truncated"] == truncated
                assert got["done"] == (terminated or truncated)
                if got["done"]:
                    break
                prompts = done.prompts


def same_view(got, observation, info):
    assert got["observation"]["text"] == observation
    assert got["observation"]["info"] == json.loads(json.dumps(info, default=lambda a: a.tolist()))


def test_six_seeds(client):
    assert len({client.reset(seed=5)["observation"]["text"] for _ in range(6)}) == 1
    assert len({client.reset(seed=s)["observation"]["text"] for s in range(6)}) > 1
    first = client.reset(index=3, split="test")
    assert first["observation"]["info"]["task_id"] == "task-3"


def test_sessions_do_not_mix(server):
    """F113"""
    alone = []
    with Client(server.url) as one:
        for seed in (1, 2):
            alone.append([one.reset(seed=seed), one.step("a"), one.step("b")])
    with Client(server.url) as one, Client(server.url) as two:
        mixed = [[c.reset(seed=s)] for c, s in ((one, 1), (two, 2))]
        for action in ("a", "b"):
            for trace, c in zip(mixed, (one, two), strict=True):
                trace.append(c.step(action))
    assert mixed == alone


def test_pictures_are_data_urls(server):
    image_module = pytest.importorskip("PIL.Image", reason="pictures need the extra vision")
    np = pytest.importorskip("numpy")
    for mode in ("image", "both"):
        env = gymnasium.make("AgentEnv/Sokoban-v0", obs_mode=mode).unwrapped
        observation, _ = env.reset(seed=3)
        with Client(server.url, "/envs/Sokoban-v0/ws") as remote:
            shown = remote.reset(seed=3, obs_mode=mode)["observation"]
            shown = shown if mode == "image" else remote.reset(seed=3, obs_mode=mode)["observation"]
            kind, _, data = shown["images"][0].partition(",")
            assert kind == "data:image/png;base64"
            picture = np.asarray(image_module.open(io.BytesIO(base64.b64decode(data))))
            expected = observation if mode == "image" else observation["image"]
            assert (picture == expected).all()
            assert shown["text"] == ("" if mode == "image" else observation["text"])
            parts = shown["messages"][-1]["content"]
            assert {"type": "image_url", "image_url": {"url": shown["images"][0]}} in parts
            plain = remote.reset(seed=3)["observation"]  # options hold for one reset
            assert "images" not in plain
            assert "messages" not in plain


def test_another_environment_only_where_its_options_change(server, client):
    client.reset(seed=1, max_steps=1)
    turn = client.step("wait")
    assert (turn["observation"]["truncated"], turn["done"]) == (True, True)
    client.reset(seed=1)
    assert client.step("wait")["done"] is False
    first = client.reset(seed=8)["observation"]["info"]["task_id"]
    following = [client.reset()["observation"]["info"]["task_id"] for _ in range(5)]
    client.reset(seed=8)
    assert [client.reset()["observation"]["info"]["task_id"] for _ in range(5)] == following
    assert len({first, *following}) > 1


# -- mounts, the root, HTTP --------------------------------------------------------------------------


def post(server, path, body, **headers) -> tuple[int, dict]:
    import urllib.error
    import urllib.request

    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, {**BEARER, **headers})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def get(server, path):
    status, text = server.get(path, **BEARER)
    return status, json.loads(text)


@pytest.mark.parametrize("env_id", [*OWN, "Test/Toy-v0"])
def test_every_mount_answers(server, env_id):
    base = f"/envs/{env_id.partition('/')[2]}"
    assert get(server, base + "/health") == (200, {"status": "healthy"})
    status, schema = get(server, base + "/schema")
    assert status == 200
    assert schema["action"]["title"] not in ("Action", "CallToolAction", "ListToolsAction")
    assert schema["action"]["required"] == ["text"]
    assert {"text", "prompt", "terminated", "truncated", "info"} <= set(
        schema["observation"]["properties"]
    )
    assert {"episode_id", "step_count"} <= set(schema["state"]["properties"])
    status, metadata = get(server, base + "/metadata")
    assert (status, metadata["name"]) == (200, env_id)
    assert metadata["description"]
    assert "group_step" in metadata["capabilities"]["group"]["messages"]
    status, openapi = get(server, base + "/openapi.json")
    assert (status, openapi["info"]["version"]) == (200, "1.0.0")
    assert "/reset" not in openapi["paths"]
    with Client(server.url, base + "/ws") as one:
        assert one.ask("state")["data"]["env"] == env_id


def test_an_observation_fits_its_schema(server, client):
    schema = get(server, "/envs/Toy-v0/schema")[1]["observation"]
    kinds = {"string": str, "boolean": bool, "object": dict, "array": list}
    client.reset(seed=1)
    shown = client.step("wait")["observation"]
    assert set(schema["required"]) <= set(shown) <= set(schema["properties"])
    for name, value in shown.items():
        assert isinstance(value, kinds[schema["properties"][name]["type"]]), name


def test_stateless_requests_are_refused_and_name_the_socket(server):
    for method, path in (("post", "/reset"), ("post", "/step"), ("get", "/state")):
        for base in ("/envs/Toy-v0", ""):
            status, body = (
                post(server, base + path, {}) if method == "post" else get(server, base + path)
            )
            assert status == 501
            assert f"{base}/ws" in body["detail"]


def test_two_ids_that_end_alike_have_two_mounts(server):
    assert mounts(("A/X-v0", "B/X-v0", "Y-v0")) == {
        "X-v0": "A/X-v0",
        "B/X-v0": "B/X-v0",
        "Y-v0": "Y-v0",
    }
    with Client(server.url, "/envs/Other/Toy-v0/ws") as other:
        assert other.ask("state")["data"]["env"] == "Other/Toy-v0"


def test_the_root_is_the_default_environment(server):
    with Client(server.url, "/ws") as one:
        assert one.ask("state")["data"]["env"] == "Test/Toy-v0"
        assert one.reset(seed=1)["observation"]["text"].startswith("start of")
    assert get(server, "/metadata")[1]["name"] == "Test/Toy-v0"
    assert get(server, "/schema")[0] == 200
    assert "ALFWorld-v0" in get(server, "/list_environments")[1]
    assert get(server, "/sokoban-v0/splits")[0] == 200  # OpenEnv compares names without case


def test_without_a_default_the_root_names_the_mounts():
    with Served(envs="AgentEnv/Sokoban-v0,AgentEnv/NumberLine-v0") as server:
        with Client(server.url, "/ws", additional_headers={}) as one:
            answer = one.receive()
            assert answer["data"]["code"] == "FACTORY_ERROR"
            assert "/envs/Sokoban-v0" in answer["data"]["message"]
            with pytest.raises(ConnectionClosed):
                one.receive()
        for path in ("/schema", "/metadata"):
            status, text = server.get(path)
            assert status == 404
            assert "/envs/NumberLine-v0" in text
        assert server.get("/envs/Nowhere-v0/schema")[0] == 404
        assert server.metric("sessions") == 0


def test_the_default_must_be_served():
    with pytest.raises(OptionError, match="not served"):
        Settings(envs=("AgentEnv/Sokoban-v0",), default_env="AgentEnv/ALFWorld-v0")
    settings = Settings(envs=("a",), default_env="a")
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_task_routes(server):
    base = "/envs/Toy-v0"
    assert get(server, base + "/list_environments") == (200, ["Toy-v0"])
    assert get(server, base + "/Toy-v0/splits") == (
        200, [{"name": "train", "type": "train"}, {"name": "test", "type": "test"}]
    )  # fmt: skip
    ask = lambda route, body: post(server, f"{base}/toy-V0/{route}", body)  # noqa: E731
    assert ask("num_tasks", {"split": "test"}) == (200, {"num_tasks": 7})
    row = {"id": "task-2", "index": 2, "split": "test"}
    assert ask("task", {"split": "test", "index": 2}) == (200, {"task": row})
    status, body = ask("tasks", {"split": "test"})
    assert (status, len(body["tasks"]), body["tasks"][2]) == (200, 7, row)
    assert body["env_name"]
    assert ask("task_range", {"split": "test", "start": 2, "stop": 3}) == (200, {"tasks": [row]})
    assert len(ask("task_range", {"split": "test", "start": 2})[1]["tasks"]) == 5
    assert len(ask("task_range", {"split": "test", "stop": 2})[1]["tasks"]) == 2
    assert ask("task_range", {"split": "test", "start": 3, "stop": 3}) == (200, {"tasks": []})
    for route, body, status in (
        ("num_tasks", {"split": "nope"}, 400), ("num_tasks", {}, 422), ("num_tasks", {"split": 3}, 422),
        ("num_tasks", b"{", 422), ("num_tasks", b"[]", 422), ("num_tasks", b"\xff", 422),
        ("task", {"split": "test", "index": 7}, 400), ("task", {"split": "test", "index": -1}, 400),
        ("task", {"split": "test", "index": True}, 422), ("task", {"split": "test"}, 422),
        ("task_range", {"split": "test", "start": -2, "stop": 3}, 400),
        ("task_range", {"split": "test", "start": 0, "stop": 8}, 400),
        ("task_range", {"split": "test", "start": 0, "stop": 10**30}, 400),
        ("tasks", b"x" * (2 << 20), 413),
    ):  # fmt: skip
        got, answer = ask(route, body)
        assert (route, body if len(body) < 99 else "", got) == (
            route,
            body if len(body) < 99 else "",
            status,
        ), answer
        assert answer["detail"]
    assert post(server, f"{base}/Other-v0/num_tasks", {"split": "test"})[0] == 404
    assert get(server, "/envs/Broken-v0/Broken-v0/splits")[0] == 501


def test_endless_splits_have_tasks_but_no_number(server):
    base = "/envs/Sokoban-v0/Sokoban-v0"
    status, body = post(server, f"{base}/num_tasks", {"split": "train"})
    assert status == 501
    assert "endless" in body["detail"]
    status, body = post(server, f"{base}/task", {"split": "train", "index": 10**12})
    assert (status, body["task"]["index"]) == (200, 10**12)
    assert (
        len(
            post(server, f"{base}/task_range", {"split": "train", "start": 5, "stop": 8})[1][
                "tasks"
            ]
        )
        == 3
    )
    assert post(server, f"{base}/task_range", {"split": "train", "stop": 10**9})[0] == 400


# -- limits, order, who may come in ------------------------------------------------------------------


def test_frames_are_answered_in_order(server):
    with Client(server.url, "/envs/Slow-v0/ws") as slow:
        slow.reset(seed=1)
        started = time.monotonic()
        for frame in ({"type": "step", "data": {"text": "x"}}, {"type": "reset", "data": {"seed": 2}},
                      {"type": "step", "data": {"text": "y"}}, {"type": "state"}):  # fmt: skip
            slow.socket.send(json.dumps(frame))
        answers = [slow.receive()["data"] for _ in range(4)]
        assert time.monotonic() - started > 0.7
        assert answers[0]["observation"]["text"] == "said 1: x"
        assert answers[1]["observation"]["text"].startswith("start of")
        assert answers[2]["observation"]["text"] == "said 1: y"
        assert (answers[3]["seed"], answers[3]["step_count"]) == (2, 1)


def test_a_hanging_step_ends_its_session_and_nobody_waits_for_it(server, client):
    """F117"""
    client.reset(seed=1)
    client.socket.send('{"type": "step", "data": {"text": "hang"}}')
    started = time.monotonic()
    with Client(server.url) as other:
        other.reset(seed=1)
        assert other.step("wait")["observation"]["text"] == "said 1: wait"
    assert server.get("/health")[0] == 200
    assert time.monotonic() - started < 5
    assert client.receive()["data"]["code"] == "SESSION_ERROR"
    with pytest.raises(ConnectionClosed):
        client.receive()


def test_sessions_steps_and_messages_are_limited(server):
    assert eventually(lambda: server.metric("sessions", **BEARER) == 0)
    clients = [Client(server.url) for _ in range(4)]
    with Client(server.url) as fifth:
        assert fifth.receive()["data"]["code"] == "CAPACITY_REACHED"
        with pytest.raises(ConnectionClosed):
            fifth.receive()
    first, second, *others = clients
    first.reset(seed=1)
    for _ in range(40):
        first.step("wait")
    assert first.error("step", data={"text": "wait"}) == "SESSION_ERROR"
    second.socket.send("x" * 3_000_000)
    with pytest.raises(ConnectionClosed) as caught:
        second.receive()
    assert caught.value.rcvd.code == 1009
    for one in clients:
        one.socket.close()
    assert eventually(lambda: server.metric("sessions", **BEARER) == 0)


def test_an_environment_that_cannot_be_made_ends_the_session(server):
    with Client(server.url, "/envs/Broken-v0/ws") as broken:
        answer = broken.ask("reset")
        assert answer["data"]["code"] == "FACTORY_ERROR"
        assert "a part is missing" in answer["data"]["message"]
        with pytest.raises(ConnectionClosed):
            broken.receive()


def test_a_foreign_session_cannot_be_joined(server):
    with Client(server.url, "/envs/Toy-v0/ws?session_id=abc") as one:
        assert one.receive()["data"]["code"] == "SESSION_ERROR"


def test_idle_sessions_are_reaped(server):
    before = server.metric("reaped_total", **BEARER)
    with Client(server.url) as idle:
        idle.reset(seed=1)
        with pytest.raises(ConnectionClosed) as caught:
            idle.receive()
        assert caught.value.rcvd.code == 4408
    assert server.metric("reaped_total", **BEARER) == before + 1


def test_tokens_and_origins(server):
    """Clients before 0.10 send no headers: their token is a part of the URL."""
    for path in ("/envs/Toy-v0/ws", "/ws", "/t/wrong/envs/Toy-v0/ws"):
        with pytest.raises(InvalidStatus, match="401"):
            Client(server.url, path, additional_headers={})
    assert server.get("/envs/Toy-v0/schema")[0] == 401
    assert server.get(f"/t/{TOKEN}/envs/Toy-v0/schema")[0] == 200
    assert server.get(f"/t/{TOKEN}/envs/Toy-v0/health")[0] == 200
    with Client(server.url, f"/t/{TOKEN}/envs/Toy-v0/ws", additional_headers={}) as old:
        old.reset(seed=1)
    with pytest.raises(InvalidStatus, match="403"):
        Client(server.url, additional_headers={**BEARER, "Origin": "http://evil.example"})
    with Client(server.url, additional_headers={**BEARER, "Origin": server.url}) as own:
        own.reset(seed=1)


def test_options_that_name_files_are_refused(server):
    with Client(server.url, "/envs/Other/Toy-v0/ws") as one:
        for data in (
            {"data_dir": "/etc"},
            {"game_file": "/etc/passwd"},
            {"data_dir": ["x"]},
            {"game_file": "../x"},
            {"data_dir": ""},
            {"data_dir": "docs"},
        ):
            assert one.error("reset", data=data) == "VALIDATION_ERROR"
        assert one.reset(data_dir="imported")["done"] is False
    with (
        Served("--allow-paths", envs="tests.served:Other/Toy-v0") as open_server,
        Client(open_server.url, additional_headers={}) as one,
    ):
        shown = one.reset(game_file="/some/file")["observation"]
        assert shown["info"]["task_id"] == "file /some/file"


def test_a_stop_tells_clients_and_metrics_count():
    with Served(envs="tests.served:Test/Toy-v0") as server:
        one = Client(server.url, additional_headers={})
        one.reset(seed=1)
        one.step("wait")
        assert server.metric("replica_steps_total") == 1
        assert server.metric("sessions") == 1
        server.stop()
        with pytest.raises(ConnectionClosed) as caught:
            one.receive()
        assert caught.value.rcvd.code == 1012


def test_the_application_that_openenv_yaml_names(monkeypatch):
    pytest.importorskip("httpx", reason="Starlette's test client needs it")
    from starlette.testclient import TestClient

    monkeypatch.setenv("AGENT_ENVS_DEFAULT", "AgentEnv/NumberLine-v0")
    monkeypatch.delenv("AGENT_ENVS_SERVER_TOKEN", raising=False)
    folder = ROOT / "examples" / "openenv"
    app = runpy.run_path(str(folder / "server" / "app.py"))["app"]
    client = TestClient(app, base_url="http://127.0.0.1")
    assert client.get("/metadata").json()["name"] == "AgentEnv/NumberLine-v0"
    assert TestClient(app, base_url="http://elsewhere").get("/metadata").status_code == 403
    with client.websocket_connect("ws://127.0.0.1/ws") as link:
        link.send_json({"type": "reset", "data": {"seed": 1}})
        assert link.receive_json()["type"] == "observation"
    manifest = dict(
        re.findall(r"^(\w+): *(.+)$", (folder / "openenv.yaml").read_text(), re.MULTILINE)
    )
    assert manifest["spec_version"] == "1"
    assert manifest["app"] == "server.app:app"
    assert (
        "openenv-" + manifest["name"].replace("_", "-") in (folder / "pyproject.toml").read_text()
    )
