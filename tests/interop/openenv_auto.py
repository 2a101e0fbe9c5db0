"""Runs in the venv of OpenEnv 0.10 with ``examples/openenv`` installed: its AutoEnv and its manifest.

python openenv_auto.py URL-OF-SOKOBAN FOLDER-WITH-OPENENV.YAML
"""

import sys
from pathlib import Path

from openenv import AutoAction, AutoEnv
from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser


def main(url, folder):
    manifest = OpenEnvYamlParser().parse(Path(folder))
    assert manifest.name == "agent_hub", manifest
    with AutoEnv.from_env("any", base_url=url, skip_install=True).sync() as env:
        first = env.reset(seed=3).observation["text"]
    action = AutoAction.from_env("agent-hub")
    with AutoEnv.from_env("agent-hub", base_url=url).sync() as env:
        assert env.reset(seed=3).observation["text"] == first
        assert env.step(action(text="up")).observation["info"]["steps"] == 1
    print("AutoEnv: ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
