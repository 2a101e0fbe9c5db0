"""verifiers' built-in ``openenv`` taskset on our server, with a scripted model; see ``run.sh``.

python -m tests.interop.verifiers_check VENV
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gymnasium

from tests.serving import Served

TURNS = 4
CONFIG = """
push = false
output_dir = "{folder}"
[client]
base_url = "{model}/v1"
[env.taskset]
id = "openenv"
base_url = "{env}"
resets = [{{seed = 7}}, {{seed = 8}}]
[env.player]
max_turns = {turns}
[env.player.harness]
id = "null"
[env.player.runtime]
type = "subprocess"
"""


class Model(BaseHTTPRequestHandler):
    """Streams the first card, again and again: ``10`` is a number by the time it reaches the server."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        payload = json.loads(text_of(request["messages"][-1]["content"]))
        self.server.seen.append(payload)
        action = first_card(payload["observation"]["text"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for delta, finish in (({"role": "assistant", "content": action}, None), ({}, "stop")):
            chunk = {
                "id": "x", "object": "chat.completion.chunk", "created": 1, "model": request["model"],
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }  # fmt: skip
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass


def first_card(observation):
    """Its number; used once it is wasted, and costs a point."""
    return re.search(r" = (\d+)", observation)[1]


def text_of(content):
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def main(venv):
    model = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    model.seen = []
    threading.Thread(target=model.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder, Served(envs="AgentEnv/EZPoints-v0") as served:
        config = Path(folder) / "eval.toml"
        config.write_text(
            CONFIG.format(
                folder=folder,
                turns=TURNS,
                model=f"http://127.0.0.1:{model.server_port}",
                env=f"{served.url}/envs/EZPoints-v0",
            )
        )
        done = subprocess.run(
            [f"{venv}/bin/vf-eval", "@", str(config)],
            capture_output=True, text=True, timeout=300, cwd=folder,
            env=own_environment(venv, folder),
        )  # fmt: skip
        (file,) = Path(folder).rglob("traces.jsonl")
        traces = [json.loads(line) for line in file.read_text().splitlines()]
    model.shutdown()
    try:
        check(traces, model.seen)
    except (AssertionError, KeyError) as error:
        print(json.dumps(traces)[-6000:], done.stdout[-2000:], done.stderr[-2000:], sep="\n")
        raise SystemExit(f"verifiers: {error!r}") from error
    print(f"verifiers: {len(traces)} rollouts, {len(model.seen)} turns, rewards as played locally")


def own_environment(venv, folder):
    """Ours without our modules. Its harness is a script whose dependencies uv installs."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    certificates = {"SSL_CERT_FILE": kept["PIP_CERT"]} if "PIP_CERT" in kept else {}
    path = f"{venv}/bin:{kept['PATH']}"
    return {**certificates, **kept, "PATH": path, "HOME": folder, "PRIME_API_KEY": "none"}


def check(traces, seen):
    """vf-eval exits with 0 when every rollout errs: the traces tell."""
    assert len(traces) == 2, len(traces)
    expected, given = [], sorted(rewards(traces))
    for seed in (7, 8):
        env = gymnasium.make("agent_envs:AgentEnv/EZPoints-v0").unwrapped
        observation, _ = env.reset(seed=seed)
        assert any(p["observation"]["text"] == observation for p in seen), (
            f"seed {seed} was dropped"
        )
        total, done, turns = 0.0, False, 0
        while not done and turns < TURNS:
            observation, reward, terminated, truncated, _ = env.step(first_card(observation))
            total, done, turns = total + reward, terminated or truncated, turns + 1
        expected.append(total)
    assert given == sorted(expected), (given, expected)
    assert min(expected) < 0, expected


def rewards(value):
    """All scores under ``openenv_reward``, wherever they are."""
    if isinstance(value, list):
        return [number for part in value for number in rewards(part)]
    if not isinstance(value, dict):
        return []
    own = [value["openenv_reward"]["score"]] if "openenv_reward" in value else []
    return own + rewards(list(value.values()))


if __name__ == "__main__":
    main(sys.argv[1])
