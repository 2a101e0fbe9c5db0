"""The chat policy against a small local server that misbehaves on command."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import agent_envs
from agent_envs.agent import AgentGroup, OpenAIChatPolicy, TemplatePrompt
from agent_envs.agent.openai import encode_png
from agent_envs.core import OptionError, PromptSpec

agent_envs.register("Test/Toy-v0", "tests.toy:ToyEnv")


class Server:
    """Answers with ``reply(request, number)``: a text, or (status, headers, body)."""

    def __init__(self, reply):
        outer = self
        self.requests, self.headers, self.lock = [], [], threading.Lock()
        self.running = self.most = 0

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    outer.requests.append(body)
                    outer.headers.append(dict(self.headers))
                    number = len(outer.requests)
                    outer.running += 1
                    outer.most = max(outer.most, outer.running)
                try:
                    answer = reply(body, number)
                finally:
                    with outer.lock:
                        outer.running -= 1
                if isinstance(answer, str):
                    choice = {"message": {"content": answer}, "finish_reason": "stop"}
                    usage = {"prompt_tokens": 7, "completion_tokens": 3}
                    answer = 200, {}, json.dumps({"choices": [choice], "usage": usage}).encode()
                status, headers, content = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def policy(self, **options) -> OpenAIChatPolicy:
        return OpenAIChatPolicy(**{"model": "m", "base_url": self.url, "backoff": 0.01, **options})


@pytest.fixture
def serve():
    servers = []

    def start(reply):
        servers.append(Server(reply))
        return servers[-1]

    yield start
    for server in servers:
        server.server.shutdown()
        server.server.server_close()


def say(action: str) -> str:
    return f"<think>x</think><action>{action}</action>"


def toy(num_groups=1, group_size=1, **options) -> AgentGroup:
    return AgentGroup(agent_envs.make_group("Test/Toy-v0", num_groups, group_size), **options)


def test_it_plays_an_episode(serve, monkeypatch):
    server = serve(
        lambda body, number: say("win" if "N:2" in body["messages"][-1]["content"] else "wait")
    )
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_MODEL", "small")
    policy = OpenAIChatPolicy(temperature=0.5, max_tokens=99)
    rollout = toy(2, 2).rollout(policy, seed=1)
    assert [len(steps) for steps in rollout.trajectories().values()] == [3] * 4
    assert all(steps[-1].info["won"] for steps in rollout.trajectories().values())
    request = server.requests[0]
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("small", 0.5, 99)
    assert server.headers[0]["Authorization"] == "Bearer secret"
    assert policy.usage.calls == 12
    assert (policy.usage.prompt_tokens, policy.usage.completion_tokens) == (84, 36)
    assert rollout.steps[0].completion.finish_reason == "stop"


def test_overload_is_retried_and_other_errors_are_not(serve):
    server = serve(
        lambda body, number: (503, {"Retry-After": "0"}, b"busy") if number < 3 else say("win")
    )
    policy = server.policy()
    assert not toy().rollout(policy, seed=1).failures
    assert policy.usage.retries == 2
    server = serve(lambda body, number: (401, {}, b"no such key"))
    policy = server.policy()
    rollout = toy().rollout(policy, seed=1)
    assert "HTTP 401: no such key" in rollout.failures[0]
    assert len(server.requests) == 1
    assert policy.usage.failures == 1


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"message": {"content": 3}}]}',
        b"null",
    ],
)
def test_unreadable_replies_close_the_replica(serve, body: bytes):
    rollout = toy().rollout(serve(lambda *_: (200, {}, body)).policy(), seed=1)
    assert "unreadable reply" in rollout.failures[0]


def test_one_failing_replica_of_four(serve):
    def reply(body, number):
        return (400, {}, b"bad") if number == 2 else say("win")

    rollout = toy(1, 4).rollout(serve(reply).policy(concurrency=1), seed=1)
    last = [steps[-1] for steps in rollout.trajectories().values()]
    assert sum(bool(step.error) for step in last) == 1
    assert sum(step.terminated for step in last) == 3


def test_nobody_listens():
    policy = OpenAIChatPolicy("m", base_url="http://127.0.0.1:9", retries=1, backoff=0.01)
    rollout = toy().rollout(policy, seed=1)
    assert "after 2 tries" in rollout.failures[0]


def test_redirects_are_refused(serve):
    """The key and the prompts go to base_url and nowhere else."""
    other = serve(lambda *_: say("win"))
    server = serve(lambda *_: (302, {"Location": other.url + "/chat/completions"}, b""))
    rollout = toy().rollout(server.policy(api_key="secret"), seed=1)
    assert "HTTP 302" in rollout.failures[0]
    assert other.requests == []


def test_a_slow_server_meets_the_timeout(serve):
    server = serve(lambda *_: time.sleep(1.5) or say("win"))
    start = time.monotonic()
    rollout = toy().rollout(server.policy(timeout=0.2, retries=0), seed=1)
    assert time.monotonic() - start < 1.2
    assert rollout.failures


def test_concurrency_is_limited_and_quick_replicas_run_ahead(serve):
    def reply(body, number):
        text = body["messages"][-1]["content"]
        time.sleep(0.4 if "task-0" in text else 0.01)
        return say("win" if "N:3" in text else "wait")

    server = serve(reply)
    agent = toy(4, 1)
    policy = server.policy(concurrency=3)
    order = []
    agent.rollout(
        policy,
        seed=[10, 1, 2, 3],
        on_turn=lambda turn: order.extend((s.group, s.step) for s in turn.steps),
    )
    assert server.most <= 3
    # group 0 (task-0, slow) has not come to its second step when the others are done
    assert order.index((0, 1)) > max(order.index((g, 3)) for g in (1, 2, 3))


def test_pictures_are_sent_as_png(serve):
    import zlib

    image = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    png = encode_png(image)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    data = zlib.decompress(png[png.index(b"IDAT") + 4 : png.index(b"IEND") - 8])
    rows = np.frombuffer(data, np.uint8).reshape(2, 10)
    assert not rows[:, 0].any()
    assert (rows[:, 1:].reshape(2, 3, 3) == image).all()
    for wrong in (image.astype(float), image[0]):
        with pytest.raises(ValueError, match="uint8"):
            encode_png(wrong)
    server = serve(lambda *_: say("win"))
    builder = TemplatePrompt(PromptSpec(first="{observation}"))
    agent = toy(prompt=builder)
    (prompt,) = agent.reset(seed=1)
    from dataclasses import replace

    picture = builder.build(replace(prompt.view, observation={"image": image, "text": "look"}), ())
    server.policy().act([picture])
    parts = server.requests[0]["messages"][0]["content"]
    assert parts[0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert parts[1] == {"type": "text", "text": "look"}


def test_wrong_options_say_what_is_missing(monkeypatch):
    for name in ("OPENAI_MODEL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OptionError, match="OPENAI_MODEL"):
        OpenAIChatPolicy(base_url="http://x")
    with pytest.raises(OptionError, match="OPENAI_BASE_URL"):
        OpenAIChatPolicy("m")
    with pytest.raises(OptionError, match=r"http\(s\)"):
        OpenAIChatPolicy("m", base_url="file:///etc/passwd")
    with pytest.raises(OptionError, match="concurrency"):
        OpenAIChatPolicy("m", base_url="http://x", concurrency=0)


CANARY = "sk-canary-7f3a9b"


def test_a_key_reaches_the_server_and_nothing_else(serve, tmp_path, monkeypatch, caplog, capfd):
    """Some servers repeat the key in their errors, which reach trajectories, logs and the terminal."""
    from agent_envs.cli import main

    def reply(body, number):
        if number % 3 == 1:
            return say("go to shelf 1")
        padding = "x" * (290 if number % 3 == 2 else 0)
        return 401, {}, f"{padding} wrong key {CANARY}, ask for another".encode()

    server = serve(reply)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    caplog.set_level("DEBUG")
    path = tmp_path / "out.jsonl"
    words = "rollout ALFWorld -p openai:m --groups 2 --group-size 2 --max-steps 3 --out".split()
    monkeypatch.setattr("sys.argv", ["agent-envs", *words, str(path)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code in (0, 1)
    assert server.headers[0]["Authorization"] == f"Bearer {CANARY}"
    said = capfd.readouterr()
    written = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    assert "HTTP 401" in written
    for text in (written, said.out, said.err, caplog.text):
        assert CANARY not in text
        assert CANARY[:10] not in text


@pytest.mark.parametrize(
    "url", ["http://", "http://[::1", "http://host:abc/v1", "http://host/v1\n", "http://ho st"]
)
def test_an_address_that_cannot_be_called_is_refused_at_once(url):
    with pytest.raises(OptionError, match="base_url"):
        OpenAIChatPolicy("m", base_url=url)


@pytest.mark.parametrize(
    "url", ["me:pass1@host", "http://me:pass1@host:x", "http://me:pass1/2@host"]
)
def test_a_password_in_an_address_is_not_repeated(url):
    with pytest.raises(OptionError, match="base_url") as caught:
        OpenAIChatPolicy("m", base_url=url)
    assert "pass1" not in str(caught.value)


@pytest.mark.parametrize("key", ["a key", "key\n", "schl\u00fcssel"])
def test_a_key_that_fits_no_header_is_refused_unseen(key):
    with pytest.raises(OptionError) as caught:
        OpenAIChatPolicy("m", base_url="http://127.0.0.1:9", api_key=key)
    assert key not in str(caught.value)


def test_credentials_in_the_address_are_refused_unseen():
    with pytest.raises(OptionError) as caught:
        OpenAIChatPolicy("m", base_url="http://me:sesame@127.0.0.1:9")
    assert "sesame" not in str(caught.value)
