"""The original ALFWorld stack (TextWorld + alfworld), measured on the same game and walk.

A script of its own: it runs under an interpreter that has ``textworld[pddl]`` and ``alfworld`` (and
need not have this project), reads ``{"game": path, "commands": [...], "repetitions": n}`` from
standard input and prints one JSON object: lists of figures per repetition, and the transcript.
CPU time of this process; TextWorld plays in it (batch size 1, as each of its workers does).
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

# a script's folder comes first on the path, and alfworld.py here is not the package of that name
sys.path[:] = [p for p in sys.path if Path(p).resolve() != Path(__file__).resolve().parent]

import textworld  # noqa: E402
import textworld.gym  # noqa: E402
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler  # noqa: E402


def infos() -> textworld.EnvInfos:
    return textworld.EnvInfos(admissible_commands=True, won=True)


def gym_env(game: str) -> Any:
    """As alfworld makes it, for a single game and replica."""
    wrappers = [AlfredDemangler(shuffle=False)]
    env_id = textworld.gym.register_games(
        [game], infos(), max_episode_steps=10**6, asynchronous=False, wrappers=wrappers
    )
    return textworld.gym.make(env_id)


def resident_kb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def play(env: Any, commands: list[str]) -> list[tuple[str, list[str]]]:
    """Observations and admissible lists along the walk."""
    seen = []
    for command in commands:
        observation, _, _, state = env.step(command)
        seen.append((observation, state["admissible_commands"]))
    return seen


def measure(game: str, commands: list[str]) -> tuple[dict[str, float], list[Any], Any]:
    """Figures of one new environment, its transcript, and the environment itself.

    ``load_ms``: gym's reset, which loads the game each time; ``step_us``: steps after it;
    ``memory_kb``: growth of this process by then; ``reset_us``: a reset without the load, which
    only the batch environment inside offers.
    """
    before = resident_kb()
    env = gym_env(game)
    start = time.process_time()
    observation, state = env.reset()
    loaded = time.process_time()
    seen = play(env, commands)
    played = time.process_time()
    memory = resident_kb() - before
    again = time.process_time()
    env.batch_env.reset()
    figures = {
        "load_ms": (loaded - start) * 1e3,
        "step_us": (played - loaded) / len(commands) * 1e6,
        "memory_kb": memory,
        "reset_us": (time.process_time() - again) * 1e6,
    }
    return figures, [(observation, state["admissible_commands"]), *seen], env


def main() -> None:
    asked = json.load(sys.stdin)
    kept, samples, sizes = [], [], []  # environments stay alive, or their memory is used again
    for _ in range(asked["repetitions"]):
        figures, transcript, env = measure(asked["game"], asked["commands"])
        samples.append(figures)
        kept.append(env)
        sizes.append(resident_kb())
    columns = {name: [sample[name] for sample in samples] for name in samples[0]}
    # the first environment also pays for what all share
    columns["memory_kb"] = columns["memory_kb"][1:] or columns["memory_kb"]
    name = f"TextWorld {version('textworld')} + alfworld {version('alfworld')}"
    report = {"name": name, "figures": columns, "transcript": transcript, "process_kb": sizes[0]}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
