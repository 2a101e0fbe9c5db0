"""The env server by its frames: handshake, typed errors, limits, token, origin, operations."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

for _module in ("msgpack", "orjson", "starlette", "uvicorn", "websockets"):
    pytest.importorskip(_module, reason="the server needs the extra server")

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from agent_envs.core import OptionError
from agent_envs.group.wire import pack, unpack
from agent_envs_server import Limits, Settings
from agent_envs_server.supervisor import listen
from tests.serving import Served

TOKEN = "s3cret-Token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def server():
    with Served(
        "--workers", "2", "--max-message", "100000", "--step-timeout", "1.5", "--max-steps", "60",
        "--max-sessions", "4", "--max-replicas", "50", "--idle-timeout", "4", AGENT_ENVS_SERVER_TOKEN=TOKEN,
    ) as served:  # fmt: skip
        yield served
        assert TOKEN not in served.stop()


class Raw:
    """Sends any frame."""

    def __init__(self, url: str, path: str = "/group", **options) -> None:
        options.setdefault("additional_headers", BEARER)
        address = url.replace("http", "ws", 1) + path
        self.socket = connect(address, compression=None, proxy=None, **options).__enter__()
        self._ids = itertools.count(1)

    def ask(self, kind: str, **fields) -> dict:
        fields.setdefault("id", next(self._ids))
        self.send({"type": kind, **fields})
        return self.receive()

    def send(self, value) -> None:
        self.socket.send(value if isinstance(value, bytes | str) else pack(value))

    def receive(self) -> dict:
        return unpack(self.socket.recv(timeout=20))

    def open(self, env="Test/Toy-v0", num_envs=4, **options):
        assert self.ask("hello", version=1)["type"] == "result"
        assert self.ask("open", env=env, num_envs=num_envs, options=options)["type"] == "result"
        return self

    def reset(self, *indices: int) -> dict:
        return self.ask(
            "group_reset", starts=[{"seed": 1, "options": {}, "indices": list(indices)}]
        )

    def step(self, indices, actions, **fields) -> dict:
        return self.ask("group_step", indices=indices, actions=actions, **fields)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


@pytest.fixture
def raw(server):
    with Raw(server.url) as client:
        yield client


def eventually(condition, seconds: float = 15) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


# -- frames ----------------------------------------------------------------------------------------


def test_the_handshake_lists_ids_and_capabilities(raw):
    hello = raw.ask("hello", version=1)
    assert "Test/Toy-v0" in hello["envs"]
    assert {"group_reset", "group_step", "fork", "expert_actions"} <= set(hello["capabilities"])
    opened = raw.ask("open", env="Test/Toy-v0", num_envs=2, options={})
    assert opened["portable_state"] is True
    assert opened["has_expert"] is True


def test_another_version_is_told_both(raw):
    answer = raw.ask("hello", version=7)
    assert answer["code"] == "VERSION_MISMATCH"
    assert "version 7" in answer["message"]
    assert "server 1" in answer["message"]


def test_a_session_plays(raw):
    raw.open()
    answer = raw.reset(0, 1, 2, 3)
    assert answer["results"][0][0].startswith("start of task-")
    answer = raw.step([2, 0], ["wait", "win"])
    assert [(r[0], r[2], r[3]) for r in answer["results"]] == [
        ("said 1: wait", 0.0, False), ("said 1: win", 1.0, True)
    ]  # fmt: skip
    answer = raw.ask("fork", source=2, targets=[1, 3])
    assert [r[0] for r in answer["results"]] == ["said 1: wait"] * 2
    assert raw.ask("expert_actions", indices=[1, 0])["actions"] == ["wait", "wait"]
    (pair,) = raw.ask("get_states", indices=[1])["states"]
    assert raw.ask("set_states", indices=[0], states=[pair])["results"][0][0] == "said 1: wait"


BAD = [
    ("unknown type", {"type": "group_dance"}, "UNKNOWN_TYPE"),
    ("type no text", {"type": [1]}, "UNKNOWN_TYPE"),
    ("step before reset", {"type": "group_step", "indices": [0], "actions": ["x"]}, "RESET_NEEDED"),
    ("wrong count", {"type": "group_step", "indices": [1], "actions": []}, "VALIDATION_ERROR"),
    ("no text", {"type": "group_step", "indices": [1], "actions": [3]}, "VALIDATION_ERROR"),
    ("surrogate", {"type": "group_step", "indices": [1], "actions": ["\ud800"]}, "VALIDATION_ERROR"),
    ("index", {"type": "get_states", "indices": [4]}, "VALIDATION_ERROR"),
    ("negative", {"type": "get_states", "indices": [-1]}, "VALIDATION_ERROR"),
    ("bool", {"type": "get_states", "indices": [True]}, "VALIDATION_ERROR"),
    ("twice", {"type": "get_states", "indices": [1, 1]}, "VALIDATION_ERROR"),
    ("no indices", {"type": "get_states"}, "VALIDATION_ERROR"),
    ("bad seed", {"type": "group_reset", "starts": [{"seed": -1, "options": {}, "indices": [1]}]}, "VALIDATION_ERROR"),
    ("bad start", {"type": "group_reset", "starts": [3]}, "VALIDATION_ERROR"),
    ("bad keys", {"type": "group_reset", "starts": [{"seed": 1, "options": {3: 4}, "indices": [1]}]}, "VALIDATION_ERROR"),
    ("path", {"type": "group_reset", "starts": [{"seed": 1, "options": {"game_file": "/etc/passwd"}, "indices": [1]}]}, "OPTION_ERROR"),
    ("forged", {"type": "set_states", "indices": [1], "states": [[b"AE1:x", b"0" * 32]]}, "STATE_ERROR"),
    ("unsigned", {"type": "set_states", "indices": [1], "states": [b"x"]}, "VALIDATION_ERROR"),
    ("open twice", {"type": "open", "env": "Test/Toy-v0", "num_envs": 1, "options": {}}, "ALREADY_OPEN"),
    ("fork nothing", {"type": "fork", "source": 3, "targets": [1]}, "STATE_NOT_PORTABLE"),
]  # fmt: skip


def test_bad_requests_get_typed_errors_and_the_session_goes_on(raw):
    raw.open()
    raw.reset(1)
    for what, message, code in BAD:
        answer = raw.ask(
            **{"kind": message["type"], **{k: v for k, v in message.items() if k != "type"}}
        )
        assert (what, answer["type"], answer["code"]) == (what, "error", code), answer
        assert answer["message"], what
    assert raw.step([1], ["wait"])["results"][0][0] == "said 1: wait"


def test_rubbish_frames_get_typed_errors_and_the_session_goes_on(raw):
    raw.open()
    raw.reset(1)
    for rubbish in (b"", b"\xc1", b"\x81", "text", "{}", pack([1]), pack({"type": "open"}), pack({"id": "x"}),
                    b"\xff" * 1000, pack(None), os.urandom(50) + b"\xc1"):  # fmt: skip
        raw.send(rubbish)
        answer = raw.receive()
        assert (answer["type"], answer["code"]) == ("error", "MALFORMED"), rubbish
    assert raw.step([1], ["wait"])["results"][0][0] == "said 1: wait"


def test_a_step_after_the_end_is_refused_and_starts_nothing(raw):
    """F118"""
    raw.open()
    raw.reset(0, 1)
    raw.step([0], ["win"])
    assert raw.step([1, 0], ["wait", "wait"])["code"] == "RESET_NEEDED"
    assert raw.step([1], ["wait"])["results"][0][0] == "said 1: wait"  # nothing had been stepped


def test_requests_before_hello_and_open_are_refused(raw):
    assert raw.reset(0)["code"] == "NOT_OPEN"
    raw.ask("hello", version=1)
    assert raw.reset(0)["code"] == "NOT_OPEN"
    assert raw.ask("open", env="No/Such-v0", num_envs=1, options={})["code"] == "UNKNOWN_ENV"
    assert (
        raw.ask("open", env="AgentEnv/WebShop-v0", num_envs=1, options={})["code"] == "UNKNOWN_ENV"
    )
    for options in ({"no_such": 1}, {"split": "nope"}, {"data_dir": "/etc"}, {"data_dir": ["x"]}):
        answer = raw.ask("open", env="AgentEnv/ALFWorld-v0", num_envs=1, options=options)
        assert answer["code"] == "OPTION_ERROR", options
    for number in (0, -1, 51, 1.5, None):
        answer = raw.ask("open", env="Test/Toy-v0", num_envs=number, options={})
        assert answer["code"] == "VALIDATION_ERROR"
    raw.ask("open", env="Test/Toy-v0", num_envs=50, options={})
    raw.reset(49)


def test_a_request_id_is_answered_once(raw):
    raw.open()
    raw.reset(0)
    first = raw.step([0], ["a"], id=77)
    again = raw.step([0], ["a"], id=77)
    assert first == again
    assert raw.step([0], ["b"])["results"][0][0] == "said 2: b"


def test_a_second_request_while_one_is_at_work_is_refused(raw):
    raw.open("Test/Slow-v0")
    raw.reset(0)
    raw.send({"type": "group_step", "id": 50, "indices": [0], "actions": ["x"]})
    raw.send(
        {"type": "group_step", "id": 50, "indices": [0], "actions": ["x"]}
    )  # the same: no error
    answer = raw.reset(0)
    assert (answer["code"], "50" in answer["message"]) == ("BUSY", True)
    answer = raw.receive()
    assert (answer["id"], answer["type"]) == (50, "result")
    assert raw.step([0], ["y"])["results"][0][0] == "said 2: y"


def test_what_environments_print_blocks_nothing(raw):
    raw.open("Test/Slow-v0")
    raw.reset(0)
    for _ in range(50):  # 240 kB: more than a pipe holds
        assert raw.step([0], ["wait"])["type"] == "result"


# -- limits ----------------------------------------------------------------------------------------


def test_a_message_too_large_closes_with_1009(raw):
    raw.open()
    raw.reset(0)
    raw.send({"type": "group_step", "id": 5, "indices": [0], "actions": ["x" * 200_000]})
    with pytest.raises(ConnectionClosed) as caught:
        raw.receive()
    assert caught.value.rcvd.code == 1009


def test_a_hanging_replica_is_named_and_other_sessions_do_not_wait(server, raw):
    """F117, F070"""
    raw.open()
    raw.reset(0, 1)
    for _ in range(3):  # by now it shares a thread with the others
        raw.step([0], ["wait"])
    raw.send({"type": "group_step", "id": 50, "indices": [0, 1], "actions": ["wait", "hang"]})
    for _ in range(3):  # whatever worker these reach; the hanging step itself would take 600 s
        with Raw(server.url) as other:
            other.open().reset(0)
        assert server.get("/health")[0] == 200
    answer = raw.receive()
    assert (answer["code"], answer["index"]) == ("TIMEOUT", 1)
    with pytest.raises(ConnectionClosed):
        raw.receive()


def test_steps_and_sessions_are_limited(server, raw):
    raw.open()
    raw.reset(0)
    for turn in range(60):
        assert raw.step([0], [f"a{turn}"])["type"] == "result"
    assert raw.step([0], ["one more"])["code"] == "LIMIT_REACHED"
    raw.socket.close()
    assert eventually(lambda: server.metric("sessions", **BEARER) == 0)
    clients = [Raw(server.url) for _ in range(4)]
    assert eventually(lambda: server.metric("sessions", **BEARER) == 4)
    with Raw(server.url) as fifth:
        assert fifth.receive()["code"] == "CAPACITY_REACHED"
    for client in clients:
        client.socket.close()
    assert eventually(lambda: server.metric("sessions", **BEARER) == 0)


def test_idle_sessions_are_reaped(server):
    before = server.metric("reaped_total", **BEARER)
    with Raw(server.url) as idle:
        idle.open()
        with pytest.raises(ConnectionClosed) as caught:
            idle.socket.recv(timeout=20)
        assert caught.value.rcvd.code == 4408
    assert server.metric("reaped_total", **BEARER) == before + 1


# -- who may come in ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer \xe9"}],
)  # fmt: skip
def test_a_wrong_token_gets_401_before_any_work(server, headers):
    opened = server.metric("sessions_total", **BEARER)
    with pytest.raises(InvalidStatus) as caught:
        Raw(server.url, additional_headers=headers)
    assert caught.value.response.status_code == 401
    status, why = server.get("/metrics", **headers)
    given = headers.get("Authorization", "").startswith("Bearer ")
    assert (status, "not the server's" in why) == (401, given)
    assert server.get("/nowhere", **headers)[0] == 401
    assert server.metric("sessions_total", **BEARER) == opened
    assert server.get("/health", **headers) == (200, '{"status":"healthy"}')


def test_a_token_may_come_in_the_path(server):
    with Raw(server.url, f"/t/{TOKEN}/group", additional_headers={}) as client:
        client.open()
    with pytest.raises(InvalidStatus, match="401"):
        Raw(server.url, "/t/wrong/group", additional_headers={})


def test_pages_of_other_sites_are_refused(server):
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "rubbish://["):
        with pytest.raises(InvalidStatus, match="403"):
            Raw(server.url, additional_headers={**BEARER, "Origin": origin})
    with Raw(server.url, additional_headers={**BEARER, "Origin": server.url}) as own:
        own.open()


def test_other_hosts_need_a_token_and_limits_must_make_sense():
    with pytest.raises(OptionError, match="token"):
        Settings(host="0.0.0.0")
    assert Settings(host="0.0.0.0", token="x").host == "0.0.0.0"
    assert "s3cret" not in repr(Settings(token="s3cret"))
    for wrong in ({"port": -1}, {"port": 70000}, {"workers": 0}, {"token": "a\nb"}, {"token": "\xe9"},
                  {"state_key": "zz"}, {"state_key": "00"}):  # fmt: skip
        with pytest.raises(OptionError):
            Settings(**wrong)
    for wrong in (
        {"sessions": 0},
        {"message": -5},
        {"idle": 0},
        {"step": float("nan")},
        {"step": "1"},
    ):
        with pytest.raises(OptionError):
            Limits(**wrong)
    settings = Settings(envs=("a",), modules=("m",), token="x", limits=Limits(idle=3))
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "0.0.0.0"), "token"),
        (("--envs", "No/Such-v0"), "unknown environment"),
        (("--max-sessions", "0"), "--max-sessions"),
        (("--step-timeout", "0"), "--step-timeout"),
        (("--log-level", "LOUD"), "valid: DEBUG, INFO"),
        (("--envs", "no_such_module:X-v0"), "no_such_module"),
    ],
)
def test_the_command_refuses_an_open_host_and_unknown_ids(arguments, words, monkeypatch, capsys):
    from agent_envs.cli import main

    monkeypatch.delenv("AGENT_ENVS_SERVER_TOKEN", raising=False)
    monkeypatch.setattr(sys, "argv", ["agent-envs", "serve", "--port", "0", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_python_m_is_the_command():
    found = subprocess.run(
        [sys.executable, "-m", "agent_envs_server", "--help"], capture_output=True, text=True
    )
    assert "Serve groups of environments" in found.stdout


def test_a_taken_port_is_named():
    taken = listen("127.0.0.1", 0)
    port = taken.getsockname()[1]
    with pytest.raises(OptionError, match=f"127.0.0.1:{port}"):
        listen("127.0.0.1", port)
    taken.close()
    ports = [listen("127.0.0.1", 0) for _ in range(32)]
    assert len({p.getsockname()[1] for p in ports}) == 32
    for one in ports:
        one.close()


# -- operations --------------------------------------------------------------------------------------


def test_metrics_sum_all_workers(server):
    before = server.metric("replica_steps_total", **BEARER)
    for _ in range(6):
        with Raw(server.url) as client:
            client.open().reset(0, 1)
            client.step([0, 1], ["a", "b"])
    assert server.metric("replica_steps_total", **BEARER) == before + 12
    assert server.metric("workers", **BEARER) == 2
    assert server.metric("worker_starts_total", **BEARER) >= 2
    text = server.get("/metrics", **BEARER)[1]
    assert "# TYPE agent_envs_sessions gauge" in text


def test_half_open_and_rubbish_connections_do_no_harm(server):
    host, port = "127.0.0.1", server.started["port"]
    open_ones = []
    for data in (b"", b"GET", b"\x00" * 100, b"GET /group HTTP/1.1\r\nHost: x\r\n\r\n"):
        one = socket.create_connection((host, port))
        one.sendall(data)
        open_ones.append(one)
    with Raw(server.url) as client:
        client.open().reset(0)
    for one in open_ones:
        one.close()
    assert server.get("/health")[0] == 200


def test_a_dead_worker_is_replaced_and_a_stop_tells_clients():
    with Served(envs="tests.served:Test/Toy-v0") as server:
        with Raw(server.url, additional_headers={}) as client:
            client.open().reset(0)
            server.kill_worker()
            with pytest.raises(ConnectionClosed):
                client.receive()
        assert eventually(lambda: server.metric("worker_starts_total") == 2, 30)
        assert server.metric("sessions") == 0
        client = Raw(server.url, additional_headers={}).open()
        workers = server.workers()
        log = server.stop()
        with pytest.raises(ConnectionClosed) as caught:
            client.receive()
        assert caught.value.rcvd.code == 1012
        assert server.process.returncode == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
        entries = [json.loads(line) for line in log.splitlines()]  # every line is JSON
        assert any("worker died" in entry["message"] for entry in entries)
        with pytest.raises(ConnectionRefusedError):
            Raw(server.url)


def test_names_that_point_here_are_no_way_in():
    """A page may point its own name at 127.0.0.1 (DNS rebinding); without a token only we are served."""
    from agent_envs_server.gate import Gate

    gate = Gate(None, Settings(), None)
    assert gate._foreign({b"host": "evil.example:8000"})
    assert gate._foreign({})
    for name in ("127.0.0.1:8000", "localhost", "[::1]:80"):
        assert not gate._foreign({b"host": name})


def test_servers_that_start_at_once_take_different_ports():
    """F074; ``python -m benchmarks.server_starts`` does it with 32, five times."""
    from benchmarks.server_starts import one_round

    ports, _ = one_round(3)
    assert ports == 3
