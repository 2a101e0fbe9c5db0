"""What an environment says it reads, writes, executes and connects to, and what it does."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys

import pytest

from agent_envs.cli.show import access
from agent_envs.registration import BUILT_IN, env_class
from tests.conftest import ROOT

SECTIONS = (
    "Actions",
    "Observations",
    "Rewards",
    "Start and end",
    "Arguments",
    "Data",
    "Differences from the original",
    "Access",
    "Versions",
)
FACTS = ("reads", "writes", "executes", "connects to")

PROGRAM = """
import json, sys
import gymnasium, agent_envs
warm = gymnasium.make("AgentEnv/NumberLine-v0")  # imports that everything shares
import agent_envs.registration as r
r.env_class({env_id!r})
seen = []
def hook(event, args):
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        seen.append(["writes", repr(args[0])])
    elif event in ("socket.connect", "socket.bind", "socket.getaddrinfo"):
        seen.append(["connects to", repr(args[-1])])
    elif event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.system"):
        seen.append(["executes", repr(args[:1])])
sys.addaudithook(hook)
env = gymnasium.make({env_id!r}).unwrapped
observation, info = env.reset(seed=3)
for turn in range(4):
    if env.terminated or env.truncated:
        break
    actions = info["admissible_actions"]
    observation, *_, info = env.step(actions[turn % len(actions)] if actions else "print(1)")
env.close()
sys.stdout.write(json.dumps(seen))
"""


def access_of(env_id: str) -> dict[str, str]:
    return access(inspect.getdoc(env_class(env_id)) or "")


@pytest.mark.parametrize("env_id", BUILT_IN)
def test_the_docstring_has_every_section(env_id):
    text = inspect.getdoc(env_class(env_id)) or ""
    assert tuple(re.findall(r"^### (.*)$", text, re.MULTILINE)) == SECTIONS
    assert tuple(access_of(env_id)) == FACTS


@pytest.mark.parametrize("env_id", BUILT_IN)
def test_an_embedded_episode_does_only_what_it_says(env_id, tmp_path):
    """Audit events of an episode: no connection, no program, no file but where the page says so."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(env_id=env_id)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={
            **{k: v for k, v in os.environ.items() if k not in ("ALFWORLD_DATA", "WEBSHOP_DATA")},
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "AGENT_ENVS_CACHE": str(tmp_path / "cache"),
        },
    )
    assert done.returncode == 0, done.stderr
    said = access_of(env_id)
    for kind, what in json.loads(done.stdout):
        assert not said[kind].startswith("nothing"), f"{env_id} {kind} {what}"
        assert env_id == "AgentEnv/AppWorld-v0", f"{env_id} {kind} {what}"
    assert not (tmp_path / "cache").exists()


def test_info_tells_it():
    done = subprocess.run(
        [sys.executable, "-m", "agent_envs", "info", "AppWorld", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert set(json.loads(done.stdout)["access"]) == set(FACTS)
