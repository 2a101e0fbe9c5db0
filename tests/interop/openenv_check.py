"""OpenEnv's unmodified clients and server against ours; see ``openenv.sh``.

python -m tests.interop.openenv_check CLIENT_PYTHON...
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import agent_envs
from agent_envs.adapters.openenv import OpenEnvGym
from agent_envs.agent import AgentGroup
from agent_envs.agent.parsing import parser_of
from agent_envs.core import ServerError, ServerUnreachable, Spec
from agent_envs.registration import BUILT_IN, VARIANTS
from tests.conftest import ROOT
from tests.serving import Served

HERE = Path(__file__).parent
TOKEN = "interop-Token"


def episodes():
    """Local episodes of every id, as an OpenEnv client should see them."""
    for env_id in (*BUILT_IN, *VARIANTS):
        group = agent_envs.make_group(env_id)
        profile, size = group.profile, 8
        untagged = Spec(profile.parser.name, {**profile.parser.options, "untagged": "action"})
        agent = AgentGroup(group, parser=parser_of(untagged))
        for seed in (7, 12345678901):
            prompts = agent.reset([seed])
            first, steps = prompts[0].text, []
            for turn in range(size):
                action = agent.group.expert_actions([0])[0] if profile.has_expert else None
                action = "no such action" if turn == 2 or action is None else action
                reply = agent.parser.format(action)
                done = agent.step([reply])
                (step,) = done.steps
                prompt = done.prompts[0].text if done.prompts else ""
                steps.append([reply, step.next_observation, step.reward, step.terminated, step.truncated, prompt])  # fmt: skip
                if not done.prompts:
                    break
            reset = {"seed": seed, "episode_id": f"{env_id} {seed}"}
            path = f"/envs/{env_id.partition('/')[2]}"
            yield {"path": path, "reset": reset, "prompt": first, "steps": steps}


def check_clients(pythons):
    work = {"token": TOKEN, "episodes": list(episodes())}
    with (
        Served(envs="", AGENT_ENVS_SERVER_TOKEN=TOKEN) as served,
        tempfile.TemporaryDirectory() as folder,
    ):
        file = Path(folder) / "episodes.json"
        file.write_text(json.dumps({**work, "base": served.url}))
        for python in pythons:
            started = time.monotonic()
            command = [python, str(HERE / "openenv_client.py"), str(file)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if done.returncode:
                raise SystemExit(done.stderr[-4000:])
            print(done.stdout.strip(), f"{time.monotonic() - started:.1f} s", flush=True)
            validate(python, served)


def validate(python, served):
    """What ``openenv validate --url`` reports, where that version has it."""
    code = (
        "import json, sys\n"
        "try:\n"
        "    from openenv.cli._validation import validate_running_environment as validate\n"
        "except ImportError as error:\n"
        "    print('no validate here:', error); sys.exit()\n"
        "report = validate(sys.argv[1])\n"
        "print('validate:', json.dumps(report['summary']))\n"
        "sys.exit(not report['passed'])\n"
    )
    url = f"{served.url}/t/{TOKEN}/envs/Sokoban-v0"
    done = subprocess.run([python, "-c", code, url], capture_output=True, text=True, timeout=120)
    print(done.stdout.strip(), flush=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr[-4000:])


def check_auto(python):
    """AutoEnv, where ``examples/openenv`` is installed."""
    with Served(envs="AgentEnv/Sokoban-v0") as served, tempfile.TemporaryDirectory() as cache:
        url = f"{served.url}/envs/Sokoban-v0"
        command = [python, str(HERE / "openenv_auto.py"), url, str(ROOT / "examples" / "openenv")]
        own = {**os.environ, "XDG_CACHE_HOME": cache}  # where AutoEnv keeps what it once found
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=own)
    print(done.stdout.strip(), flush=True)
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])


def check_server(python):
    """Their server, our adapter: alone and in a group."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([python, str(HERE / "openenv_server.py"), str(port)])
    try:
        url = f"http://127.0.0.1:{port}"
        env = wait_for(url, process)
        for seed in range(5):
            secret = random.Random(seed).randint(1, 50)
            observation, info = env.reset(seed=seed)
            assert (observation, info["steps"]) == ("from 1 to 50", 0), observation
            refused, *_, info = env.step("no number")
            assert info["is_action_valid"] is False
            assert "refused" in refused
            assert env.step("51")[:3] == ("lower", 0.0, False)
            assert env.step(str(secret))[:4] == ("hit", 1.0, True, False)
        env.close()
        group = agent_envs.make_group(
            "agent_envs.adapters.openenv:OpenEnv/Client-v0", 2, 4, base_url=url
        )
        group.reset(seed=[3, 4])
        secrets = [random.Random(seed).randint(1, 50) for seed in (3, 4)]
        actions = [str(secrets[0])] * 4 + ["-1"] + [str(secrets[1])] * 3
        _, rewards, terminated, truncated, infos = group.step(actions)
        assert rewards.tolist() == [1.0] * 4 + [0.0] + [1.0] * 3, rewards
        assert terminated.tolist() == [True] * 4 + [False] + [True] * 3
        assert truncated.tolist() == [False] * 4 + [True] + [False] * 3
        assert "no negative numbers" in infos["error"][4]
        group.close()
        print("their server, our adapter: ok", flush=True)
    finally:
        process.terminate()
        process.wait(20)


def wait_for(url, process):
    for _ in range(300):
        try:
            return OpenEnvGym(url)
        except (ServerUnreachable, ServerError):
            assert process.poll() is None, "their server ended"
            time.sleep(0.1)
    raise SystemExit("their server did not start")


if __name__ == "__main__":
    check_clients(sys.argv[1:])
    check_auto(sys.argv[1])
    check_server(sys.argv[1])
