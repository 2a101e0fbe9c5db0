"""Runs with OpenEnv's own client, in its venv: plays recorded episodes and compares. No agent_envs here.

    python openenv_client.py EPISODES.json

The file: ``{"token", "base", "episodes": [{"path", "reset", "prompt", "steps": [[text, observation,
reward, terminated, truncated, prompt], ...]}]}``. Prints one JSON line.
"""

import inspect
import json
import sys
from importlib import metadata

from openenv.core import GenericEnvClient


def main(path):
    with open(path) as file:
        work = json.load(file)
    steps = 0
    with_headers = "headers" in inspect.signature(GenericEnvClient.__init__).parameters
    for episode in work["episodes"]:
        if with_headers:
            url = work["base"] + episode["path"]
            options = {"headers": {"Authorization": f"Bearer {work['token']}"}}
        else:  # the token is a part of the path
            url, options = f"{work['base']}/t/{work['token']}{episode['path']}", {}
        steps += play(GenericEnvClient(base_url=url, **options).sync(), episode)
    refused(GenericEnvClient(base_url=work["base"] + work["episodes"][0]["path"]).sync())
    versions = {d.metadata["Name"]: d.version for d in metadata.distributions()}
    name = next(name for name in ("openenv", "openenv-core") if name in versions)
    print(json.dumps({"client": f"{name} {versions[name]}", "headers": with_headers, "steps": steps,
                      "episodes": len(work["episodes"])}))  # fmt: skip


def play(env, episode):
    with env:
        try:
            env.step({"text": "too early"})
        except RuntimeError as error:
            assert "EXECUTION_ERROR" in str(error), error
        else:
            raise AssertionError("a step before the reset was taken")
        result = env.reset(**episode["reset"])
        assert (result.reward, result.done) == (None, False), result
        assert result.observation["prompt"] == episode["prompt"], (result, episode)
        for text, observation, reward, terminated, truncated, prompt in episode["steps"]:
            result = env.step({"text": text})
            shown = result.observation
            assert shown["text"] == observation, (episode["path"], text, shown["text"], observation)
            assert result.reward == reward, (episode["path"], text, result.reward, reward)
            assert (shown["terminated"], shown["truncated"]) == (terminated, truncated)
            assert result.done == (terminated or truncated)
            assert shown["prompt"] == prompt, (shown["prompt"], prompt)
        state = env.state()
        assert state["step_count"] == len(episode["steps"]), state
        assert state["episode_id"] == episode["reset"]["episode_id"], state
        try:
            env.reset(seed=-1)
        except RuntimeError as error:
            assert "VALIDATION_ERROR" in str(error), error
        env.reset(**episode["reset"])  # the session is kept
    return len(episode["steps"])


def refused(env):
    """Without a token nobody comes in."""
    try:
        with env:
            env.reset()
    except Exception as error:
        assert "401" in str(error), error
    else:
        raise AssertionError("a client came in without a token")


if __name__ == "__main__":
    main(sys.argv[1])
